"""Composition root of cluster mode: clients, leader election and controllers."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from onejob.client.answers import UNTRUSTED
from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.client.http import AlwaysPermitted, HttpClient, WritePermit
from onejob.client.kubeconfig import Connection
from onejob.client.pacing import rate_limit
from onejob.clock import Clock, SystemClock
from onejob.clock_watch import ClockWatch
from onejob.cluster.election import LEASES, Elector, Leadership, NotLeading
from onejob.cluster.permissions import questions
from onejob.cluster.preflight import check
from onejob.controllers.context import ControllerContext
from onejob.controllers.job import JobController
from onejob.controllers.mirror.on_demand import MirrorOnDemand
from onejob.controllers.start_gates import DependencyGate
from onejob.controllers.ttl import TtlController
from onejob.gates import FeatureGates
from onejob.informers.queue_metrics import Queues, export_queues
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics
from onejob.objects.meta import Key
from onejob.planning.job.operator_settings import Settings as JobSettings
from onejob.planning.job.operator_settings import is_ours
from onejob.planning.leadership import Timing

if TYPE_CHECKING:
    from onejob.controllers.cronjob import CronJobController
    from onejob.controllers.workflow import WorkflowController

log = logging.getLogger(__name__)

DEFAULT_MANAGER: Final = "onejob.dev/job-controller"
_REQUEST_SECONDS: Final = 30.0
#: Seconds that writing the last Events may take when a term ends regularly.
_LAST_EVENTS_SECONDS: Final = 2.0
#: Seconds after its term by which a leader that could not renew its lease should have stopped.
_STUCK_SECONDS: Final = 20.0
#: Finished Jobs are deleted by the cluster's own TTL controller, whichever controller ran them.
_GATES: Final = FeatureGates({"TTLAfterFinished": False})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of cluster mode."""

    manager: str = DEFAULT_MANAGER
    #: Empty means all.
    namespaces: tuple[str, ...] = ()
    leader_elect: bool = False
    timing: Timing = field(default_factory=Timing)
    #: Namespace of the lease and of dry runs; "" means the connection's.
    own_namespace: str = ""
    #: Requests per second, and burst; 0 disables the limit.
    qps: float = 50.0
    burst: int = 100
    #: Whether Jobs with `managedBy: onejob.dev/mirror` are run on the clusters in their
    #: annotations.
    mirror: bool = False
    #: Whether workflows are run; their kinds must be installed.
    workflows: bool = False


class Manager:
    """Runs the controllers whenever this replica leads. Call `check` first."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._clock = clock or SystemClock()
        self._rng = rng or Random(os.urandom(16))
        self._pace = rate_limit(settings.qps, settings.burst)
        self._identity = f"{socket.gethostname()}_{self._rng.getrandbits(64):016x}"
        self._namespace = settings.own_namespace or connection.namespace
        self.metrics = Metrics()
        self._leadership: Leadership | None = None
        self._term: _Controllers | None = None
        self._requests_before = 0
        self.metrics.controller_leading.read(lambda: int(self.leading))
        self.metrics.controller_requests.read(lambda: self.requests)
        export_queues(self.metrics, lambda: self._term.queues() if self._term is not None else ())

    @property
    def leading(self) -> bool:
        """Return whether the controllers run in this replica, with complete caches."""
        return self._term is not None and self._term.ready

    @property
    def requests(self) -> int:
        """Number of API requests, over all terms."""
        return self._requests_before + (self._term.client.requests if self._term else 0)

    async def check(self) -> str:
        """Run the preflight check. Return the server's version. Raises PreflightError."""
        settings = self._settings
        client = HttpClient(self._connection, rng=self._rng, request_seconds=_REQUEST_SECONDS)
        try:
            needs = questions(
                settings.namespaces,
                self._namespace,
                leader_elect=settings.leader_elect,
                mirror=settings.mirror,
                workflows=settings.workflows,
            )
            return await check(
                client,
                needs,
                own_namespace=self._namespace,
                manager=settings.manager,
                workflows=settings.workflows,
            )
        finally:
            await client.close()

    async def run(self, stopping: asyncio.Event) -> None:
        """Lead, or wait to lead, until `stopping` is set; then release the lease.

        The controllers stop in order before the lease is released.
        """
        if not self._settings.leader_elect:
            await self._lead(AlwaysPermitted(), None, stopping)
            return
        timing = self._settings.timing
        client = HttpClient(
            self._connection, rng=self._rng, request_seconds=timing.renew_seconds / 2
        )
        lease = Key(LEASES, self._namespace, self._settings.manager.replace("/", "-"))
        elector = Elector(client, lease, self._identity, timing, self._clock, self._rng)
        try:
            while not stopping.is_set():
                leadership = await _unless(stopping, elector.acquire())
                if leadership is None:
                    break
                await self._lead_term(leadership, elector, stopping)
        finally:
            await client.close()

    async def _lead_term(
        self, leadership: Leadership, elector: Elector, stopping: asyncio.Event
    ) -> None:
        """Run the controllers until the term ends or `stopping` is set; then release the Lease,
        unless it was lost."""
        log.warning("%s leads", self._identity)
        holding = asyncio.create_task(elector.hold(leadership))
        self._leadership = leadership
        try:
            await self._lead(leadership, holding, stopping)
        finally:
            self._leadership = None
            if not holding.done():
                holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
        if holding.cancelled():
            await elector.release()
        else:
            log.warning("%s is no longer the leader: %s", self._identity, holding.result())

    async def _lead(
        self, permit: WritePermit, lost: asyncio.Task[str] | None, stopping: asyncio.Event
    ) -> None:
        """Run the controllers until the term ends: the lease is lost, or `stopping` is set."""
        gate = _Gate(permit)
        client = HttpClient(
            self._connection,
            rng=self._rng,
            pace=self._pace,
            permit=gate,
            request_seconds=_REQUEST_SECONDS,
        )
        controllers = _Controllers(
            client, gate, self._settings, self._clock, self.metrics, self._identity, self._connect
        )
        self._term = controllers
        running = asyncio.create_task(controllers.run())
        asked = asyncio.create_task(stopping.wait())
        ends: set[asyncio.Task[Any]] = {running, asked, *([lost] if lost else [])}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await controllers.finish()
        finally:
            # If this task is cancelled, its controllers must end as well: they would go on writing
            # until the term ends.
            gate.close()
            running.cancel()
            asked.cancel()
            await asyncio.gather(running, asked, return_exceptions=True)
            self._term = None
            self._requests_before += client.requests
            await client.close()
        if not running.cancelled() and (failure := running.exception()) is not None:
            raise failure

    def _connect(self, target: Connection, permit: WritePermit) -> Client:
        """Return a client of a mirror target. Its writes stop at the end of the term, too."""
        return HttpClient(
            target,
            rng=self._rng,
            permit=permit,
            request_seconds=_REQUEST_SECONDS,
            limits=UNTRUSTED,
        )

    # --- health checks --------------------------------------------------------------------

    def health(self) -> tuple[int, str]:
        """Return 500 if this replica still runs long after it failed to renew its lease."""
        leadership = self._leadership
        if leadership is not None:
            late = self._clock.monotonic() - leadership.term.ends_at
            if late > _STUCK_SECONDS:
                return 500, f"lease renewal is overdue by {late:.0f} s\n"
        return 200, "ok\n"

    def readiness(self) -> tuple[int, str]:
        """Return 503 while a leader's caches are incomplete.

        A replica that waits to lead is ready.
        """
        if self._term is not None and not self._term.ready:
            return 503, "waiting for caches to sync\n"
        return 200, "ok, leading\n" if self._term is not None else "ok, not the leader\n"


class _Controllers:
    """Components that run while this replica leads.

    There is one set of controllers per watched namespace.
    """

    def __init__(
        self,
        client: HttpClient,
        gate: "_Gate",
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        identity: str,
        connect: Callable[[Connection, WritePermit], Client],
    ) -> None:
        self.client = client
        self._gate = gate
        self.ready = False
        self._recorder = EventRecorder(client, settings.manager, clock, host=identity)
        self._informers: list[SharedInformers] = []
        self._clock_watch = ClockWatch(clock)
        self._parts: list[Coroutine[Any, Any, None]] = [
            self._clock_watch.run(),
            self._recorder.run(),
        ]
        self._queues: list[_QueuedController] = []
        for namespace in settings.namespaces or ("",):
            informers = SharedInformers(client, namespace)
            context = ControllerContext(client, informers, self._recorder, clock, metrics)
            job_settings = JobSettings.under(_GATES, manager=settings.manager)
            dependencies = DependencyGate(context, is_ours=partial(is_ours, settings=job_settings))
            self._parts.append(dependencies.run())
            jobs = JobController(context, settings=job_settings, gate=dependencies)
            ttl = TtlController(
                client,
                informers,
                clock=clock,
                metrics=metrics,
                gates=_GATES,
                workflows=settings.workflows,
            )
            self._informers.append(informers)
            running: list[_QueuedController] = [jobs, ttl]
            if settings.workflows:
                running += _workflow_controllers(context)
            for controller in running:
                self._clock_watch.on_jump(controller.clock_jumped)
                self._parts.append(controller.run())
                self._queues.append(controller)
            if settings.mirror:
                # Without stand-ins for remote Pods: the cluster's API server would not forward
                # their logs, and its controllers would consider them lost.
                mirror = MirrorOnDemand(
                    client,
                    informers,
                    clock=clock,
                    connect=lambda target: connect(target, gate),
                    stand_ins=False,
                )
                self._parts.append(mirror.run())

    def queues(self) -> list[Queues]:
        """Return the queues of all controllers."""
        return [controller.queues for controller in self._queues]

    async def run(self) -> None:
        """Run until cancelled. Raises if any component ends."""
        try:
            await asyncio.gather(*(informers.start() for informers in self._informers))
            self.ready = True
            async with asyncio.TaskGroup() as group:
                for part in self._take_parts():
                    group.create_task(_endless(part))
                for informers in self._informers:
                    for task in informers.tasks:
                        group.create_task(_endless(_await_shielded(task)))
        finally:
            for part in self._take_parts():
                part.close()
            for informers in self._informers:
                await informers.stop()

    async def finish(self) -> None:
        """Start no more writes, and wait for writes in flight.

        A late write must not reach the server after the next leader has started.
        """
        try:
            async with asyncio.timeout(_LAST_EVENTS_SECONDS):
                await self._recorder.flush()
        except TimeoutError:
            log.warning("the last events are lost: sending them timed out")
        self._gate.close()
        await self.client.no_writes()

    def _take_parts(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Remove and return the coroutines that are still to be started."""
        parts, self._parts = self._parts, []
        return parts


class _QueuedController(Protocol):
    """Controller with work queues, some of it delayed by wall-clock time."""

    def run(self) -> Coroutine[Any, Any, None]: ...

    @property
    def queues(self) -> Queues: ...

    def clock_jumped(self) -> None: ...


def _workflow_controllers(context: ControllerContext) -> "list[_QueuedController]":
    from onejob.controllers.on_demand import OnDemand, holds_start

    def make_workflows() -> "WorkflowController":
        from onejob.controllers.workflow import WorkflowController

        return WorkflowController(context)

    def make_cronworkflows() -> "CronJobController":
        from onejob.controllers.cronjob import CronJobController
        from onejob.objects.workflow import CRONWORKFLOW

        return CronJobController(context, kind=CRONWORKFLOW)

    informers = context.informers
    workflows = OnDemand(informers.workflows, make_workflows)
    # Their workflow may have been deleted while no controller ran.
    workflows.also_for(informers.jobs, holds_start)
    return [
        workflows,
        OnDemand(informers.cronworkflows, make_cronworkflows),
    ]


class _Gate:
    """Write permit that can be revoked permanently."""

    def __init__(self, permit: WritePermit) -> None:
        self._permit = permit
        self._closed = False

    def seconds(self) -> float:
        """Return the seconds for which writes are permitted. Raises NotLeading."""
        if self._closed:
            raise NotLeading("this replica is shutting down")
        return self._permit.seconds()

    def close(self) -> None:
        """Close the gate for good."""
        self._closed = True


async def _endless(part: Coroutine[Any, Any, None]) -> None:
    """Run a component that must not end before the term does; if it does, that is a bug.

    Raises RuntimeError.
    """
    await part
    raise RuntimeError(f"{part} ended")


async def _await_shielded(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


async def _unless(
    stopping: asyncio.Event, wanted: Coroutine[Any, Any, Leadership]
) -> Leadership | None:
    """Return the awaited result, or None if `stopping` is set first."""
    task = asyncio.create_task(wanted)
    asked = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        asked.cancel()
        await asyncio.gather(task, asked, return_exceptions=True)
