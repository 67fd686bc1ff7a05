"""Lazy start of a controller: with the first object of its kind.

Until then, nothing of it is imported, and it handles no changes of other kinds.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.workqueue import WorkQueue
from onejob.metrics import QueueName
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.planning.names import WORKFLOW_START_FINALIZER


def holds_start(job: Job) -> bool:
    """Return whether a Job has the finalizer that the controller of workflows removes."""
    return WORKFLOW_START_FINALIZER in job.metadata.finalizers


class QueuedController(Protocol):
    """Controller whose queue holds the keys of its kind."""

    async def run(self) -> None: ...

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]: ...

    @property
    def idle(self) -> bool: ...

    def note(self, key: Key) -> str: ...

    def clock_jumped(self) -> None: ...


class OneQueue:
    """Base of controllers with one queue and nothing to say about single objects."""

    queue_name: ClassVar[QueueName]
    _queue: WorkQueue[Key]

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        """Queues by the name that metrics use."""
        return {self.queue_name: self._queue}

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle

    def note(self, key: Key) -> str:
        return ""

    def clock_jumped(self) -> None:
        """Sync all delayed objects: their times may have passed, or be further away."""
        self._queue.make_delayed_due()


C = TypeVar("C", bound=QueuedController)
V = TypeVar("V")


class OnDemand(Generic[C]):
    """A controller that `make` creates when the informer reports the first object.

    Requirements: the controller begins with the objects in the informer's cache.
    """

    def __init__(
        self,
        informer: Informer[Any],
        make: Callable[[], C],
        wanted_for: Callable[[Any], bool] = lambda view: True,
    ) -> None:
        """`wanted_for` selects the objects that the controller acts on."""
        self._make = make
        self._wanted_for = wanted_for
        self._wanted = asyncio.Event()
        #: The controller; None until the first object.
        self.controller: C | None = None
        informer.on_change(self._changed)

    def also_for(self, informer: Informer[V], is_remnant: Callable[[V], bool]) -> None:
        """Start with the first object of another kind that the controller has to finish, too."""

        def changed(deltas: Sequence[Delta[V]]) -> None:
            if not self._wanted.is_set() and any(
                delta.new is not None and is_remnant(delta.new) for delta in deltas
            ):
                self._wanted.set()

        informer.on_change(changed)

    async def run(self) -> None:
        await self._wanted.wait()
        self.controller = self._make()
        await self.controller.run()

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        return {} if self.controller is None else self.controller.queues

    @property
    def idle(self) -> bool:
        if self.controller is None:
            return not self._wanted.is_set()
        return self.controller.idle

    def note(self, key: Key) -> str:
        """Return why the last sync started nothing, for `onejob why`; "" if it did."""
        return "" if self.controller is None else self.controller.note(key)

    def clock_jumped(self) -> None:
        if self.controller is not None:
            self.controller.clock_jumped()

    def _changed(self, deltas: Sequence[Delta[Any]]) -> None:
        if self._wanted.is_set():
            return
        if any(delta.new is not None and self._wanted_for(delta.new) for delta in deltas):
            self._wanted.set()
