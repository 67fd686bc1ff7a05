"""Start gates of Jobs: conditions that must hold before the Job controller acts on a Job."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from onejob.controllers.context import ControllerContext
from onejob.informers.cache import Delta
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.planning.names import AFTER_ANNOTATION, AFTER_HELD_ANNOTATION

if TYPE_CHECKING:
    from onejob.controllers.dependencies.controller import DependencyController
    from onejob.planning.history import JobEnd


class StartGate(Protocol):
    """Admission of Jobs to syncing. A Job that the gate holds is not acted on."""

    def holds(self, job: Job) -> bool:
        """Return whether the Job must not be acted on yet. A gate notes that it held the Job."""

    def on_admitted(self, call: Callable[[Key], None]) -> None:
        """Call `call` with the key of each Job that was held and no longer is."""


class HeldJobs:
    """Jobs that a gate has withheld from the Job controller and not admitted yet."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._call: Callable[[Key], None] = lambda key: None

    def on_admitted(self, call: Callable[[Key], None]) -> None:
        """Call `call` with the key of each Job that is admitted."""
        self._call = call

    def add(self, key: Key) -> None:
        """Note that a Job is withheld."""
        self._keys.add(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._keys))

    def admit(self, key: Key) -> None:
        """Admit a Job: notify the Job controller, if the Job was withheld."""
        if key in self._keys:
            self._keys.discard(key)
            self._call(key)


class AllGates:
    """Several gates in order; a Job starts once none of them holds it."""

    def __init__(self, gates: Sequence[StartGate]) -> None:
        self._gates = gates

    def holds(self, job: Job) -> bool:
        """Return whether one of the gates holds the Job; later gates are not asked then."""
        return any(gate.holds(job) for gate in self._gates)

    def on_admitted(self, call: Callable[[Key], None]) -> None:
        """Call `call` with the key of each Job that a gate has admitted; other gates may still hold
        it."""
        for gate in self._gates:
            gate.on_admitted(call)


def _no_records(namespace: str, uid: str) -> "JobEnd | None":
    """Return None: no ends are recorded."""
    return None


class DependencyGate:
    """Start gate that holds Jobs until their dependencies are met.

    It imports its controller on first use: without a Job with dependencies there is none, and each
    change of a Job costs one lookup.

    `recorded_end` looks up the end of a deleted Job by namespace and UID. It is called for pinned
    Jobs only. By default there are no such records.
    """

    def __init__(
        self,
        context: ControllerContext,
        *,
        is_ours: Callable[[Job], bool],
        recorded_end: "Callable[[str, str], JobEnd | None]" = _no_records,
    ) -> None:
        self._context = context
        self._is_ours = is_ours
        self._recorded_end = recorded_end
        self._held = HeldJobs()
        self._controller: DependencyController | None = None
        self._wanted = asyncio.Event()
        context.informers.jobs.on_change(self._jobs_changed)

    def on_admitted(self, call: Callable[[Key], None]) -> None:
        self._held.on_admitted(call)

    def holds(self, job: Job) -> bool:
        if AFTER_ANNOTATION not in job.metadata.annotations or job.spec.suspend:
            return False
        held = self.waits(job)
        if held:
            self._held.add(job.key)
        return held

    def waits(self, job: Job) -> bool:
        """Return whether the Job is ours and waits for dependencies, suspended or not."""
        if AFTER_ANNOTATION not in job.metadata.annotations:
            return False
        from onejob.planning.dependencies.standing import waits_for_dependencies

        return waits_for_dependencies(job) and self._is_ours(job)

    def awaits(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether some Job waits for the end of this one."""
        return self._controller is not None and self._controller.awaits(namespace, name, uid)

    async def run(self) -> None:
        await self._wanted.wait()
        assert self._controller is not None, "set together"
        await self._controller.run()

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        """Pass changes on to the controller, created with the first Job that has dependencies."""
        if self._controller is None:
            if not any(_concerned(delta.new) for delta in deltas):
                return
            from onejob.controllers.dependencies.controller import DependencyController

            self._controller = DependencyController(
                self._context, self.waits, self._held.admit, self._recorded_end
            )
            self._wanted.set()
        self._controller.jobs_changed(deltas)


def _concerned(job: Job | None) -> bool:
    if job is None:
        return False
    annotations = job.metadata.annotations
    # The second one is left when a user removes the first one.
    return AFTER_ANNOTATION in annotations or AFTER_HELD_ANNOTATION in annotations
