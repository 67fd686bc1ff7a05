"""The parts that all capabilities of a control plane share."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from onejob.api.service import Service
from onejob.api.unreadable import ReadabilityChecker
from onejob.assembly.background import Background, Loop
from onejob.assembly.settings import Dependencies, Front, Settings
from onejob.client.events import EventRecorder
from onejob.client.write_series import DurableWrites, StagedWrites, WriteSeries
from onejob.clock_watch import ClockWatch
from onejob.controllers.context import ControllerContext
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import WorkQueue
from onejob.metrics import Metrics, QueueName
from onejob.node.runtimes import runtime_kind
from onejob.planning.pod.security import Means
from onejob.store.log import LogStore

if TYPE_CHECKING:
    from random import Random

    from onejob.api.access.service_accounts.accounts import ServiceAccounts
    from onejob.client.acting import AuthorizedClient
    from onejob.client.local import LocalClient
    from onejob.controllers.access import AccessPolicy
    from onejob.controllers.identities import Identities


class Controller(Protocol):
    def run(self) -> Loop: ...


@runtime_checkable
class QueuedController(Protocol):
    """Controller with work queues, some of it delayed by wall-clock time."""

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Any]]: ...

    def clock_jumped(self) -> None: ...


class Parts:
    """Store, API, clients, informers and metrics of a control plane, and where to register.

    A capability builds its objects from the attributes and registers what must run: loops with
    `controllers.add`, clean-up with `on_stop`, corrections of timers with `clock_watch.on_jump`.
    """

    def __init__(
        self,
        settings: Settings,
        dependencies: Dependencies,
        store: LogStore,
        front: Front,
        readability: ReadabilityChecker,
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.settings = settings
        self.root_ca = front.root_ca
        #: Directory of the certificate authority; None without one.
        self.pki = front.pki
        #: URL under which Pods on this machine reach the API server; "" while it does not listen.
        self.api_url = front.api_url
        self.clock = dependencies.clock
        self.rng: Random = dependencies.rng
        self.store = store
        self.metrics = Metrics()
        self.service = Service(
            store,
            clock=dependencies.clock,
            rng=dependencies.rng,
            gates=settings.gates,
            tracking=settings.tracking_finalizer,
            means=_means(settings.node.runtime),
        )
        self.service.admission.host_paths = settings.host_paths
        self.service.admission.enable(settings.admission_plugins)
        #: The trusted in-process client.
        self.client = dependencies.client(self.service)
        self.identities = self._make_identities(front) if settings.with_access else None
        #: Client of the API server's own requests.
        self.own_client: LocalClient | AuthorizedClient = (
            self.client if self.identities is None else self.identities.server
        )
        self.accounts = self._make_accounts() if settings.with_access else None
        self.informers = SharedInformers(
            self.client if self.identities is None else self.identities.informers,
            known_view=readability.take_view,
        )
        #: The controllers, and all else that stops before the store.
        self.controllers = Background(on_end)
        #: Recorders of Events, which outlive the controllers that use them.
        self.recorders = Background(on_end)
        self.clock_watch = ClockWatch(dependencies.clock)
        self.controllers.add(self.clock_watch.run())
        self._on_begin: list[Callable[[], None]] = []
        self._on_stop: list[Callable[[], Awaitable[None]]] = []
        self._begun = False

    @property
    def access(self) -> "AccessPolicy | None":
        """The RBAC policy; None without RBAC."""
        return None if self.identities is None else self.identities.access

    def on_begin(self, start: Callable[[], None]) -> None:
        """Call `start` once controllers and node run, or now if they do."""
        if self._begun:
            start()
        else:
            self._on_begin.append(start)

    def on_stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Await `close` when controllers and node have stopped, before the store is closed."""
        self._on_stop.append(close)

    def begin(self) -> None:
        self._begun = True
        starts, self._on_begin = self._on_begin, []
        for start in starts:
            start()

    async def stop(self) -> None:
        for close in self._on_stop:
            await close()

    def controller_context(self, component: str) -> ControllerContext:
        client = self.acting_client(component)
        recorder = EventRecorder(client, component, self.clock)
        self.recorders.add(recorder.run())
        return ControllerContext(client, self.informers, recorder, self.clock, self.metrics)

    def acting_client(self, name: str) -> "LocalClient | AuthorizedClient":
        """Return the client with a controller's permissions, if RBAC is enabled."""
        return self.client if self.identities is None else self.identities.controller(name)

    def new_series(self, controller: str) -> WriteSeries:
        client = self.acting_client(controller)
        # A write that waits for a policy or webhook cannot be staged with others.
        if self.service.admission.dynamic.active:
            return DurableWrites(client)
        return StagedWrites(client)

    def _make_identities(self, front: Front) -> "Identities":
        from onejob.controllers.identities import Identities

        return Identities(self.client, self.service.kinds, self.metrics, front.auditor)

    def _make_accounts(self) -> "ServiceAccounts":
        from onejob.api.access.service_accounts.accounts import ServiceAccounts
        from onejob.api.access.service_accounts.signing_keys import KEYS_FILE
        from onejob.api.admission.pod_accounts import PodAccounts

        self.service.admission.accounts = PodAccounts(self.store)
        keys = self.settings.data_dir / "pki" / KEYS_FILE
        return ServiceAccounts(keys, self.store, self.clock, lambda: self.api_url)


def _means(runtime: str) -> Means:
    return Means(
        engine=runtime_kind(runtime).traits.uses_images,
        root=os.geteuid() == 0,
        runtime=_reported_runtime(runtime),
    )


def _reported_runtime(name: str) -> Literal["process", "podman", ""]:
    """Return the runtime whose missing effects clients are warned of; simulated Pods have none."""
    match name:
        case "process" | "podman":
            return name
        case _:
            return ""
