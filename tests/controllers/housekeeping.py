"""Cluster with selected controllers, on the real store and API, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from onejob.api.service import Service
from onejob.client.base import Create, Delete, Patch, Propagation, Selection, WatchEvent
from onejob.client.events import EventRecorder
from onejob.client.local import LocalClient
from onejob.client.write_series import StagedWrites
from onejob.clock import LoopClock
from onejob.clock_watch import ClockWatch
from onejob.controllers.context import ControllerContext
from onejob.controllers.cronjob import CronJobController
from onejob.controllers.custom_resources import DefinitionController
from onejob.controllers.disruption import DisruptionController
from onejob.controllers.event_expiry import EventExpiry
from onejob.controllers.garbage import GarbageCollector
from onejob.controllers.job import JobController
from onejob.controllers.namespaces import NamespaceController
from onejob.controllers.on_demand import OnDemand, holds_start
from onejob.controllers.pod_gc import PodGarbageCollector
from onejob.controllers.ttl import TtlController
from onejob.controllers.workflow import WorkflowController
from onejob.gates import FeatureGates
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics
from onejob.objects.meta import EVENTS, JOBS, PODS, Key
from onejob.objects.workflow import CRONWORKFLOW
from onejob.virtual_time import NOON
from onejob.wire.errors import ApiError, Expired, NotFound
from tests import build
from tests.scripted_cluster import Cluster, Script, a_cluster

ROOT_CA = "-----BEGIN CERTIFICATE-----\nof this server\n-----END CERTIFICATE-----\n"

#: A Pod template that passes validation.
TEMPLATE = build.template()


class SettableClock(LoopClock):
    """Wall clock that a test can set; timers are not affected, as on a real machine."""

    def set_by(self, jump: timedelta) -> None:
        self.epoch += jump


def a_settable_clock() -> SettableClock:
    """Return the clock of the running virtual loop."""
    return SettableClock(asyncio.get_running_loop(), NOON)


class LateWatch(LocalClient):
    """Client that delivers the changes of one resource late, as a busy network would."""

    def __init__(self, service: Service, resource: str, seconds: float) -> None:
        super().__init__(service)
        self._resource = resource
        self._seconds = seconds

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async for batch in super().watch(what, after=after):
            if what.resource == self._resource:
                await asyncio.sleep(self._seconds)
            yield batch


class ForgetfulWatch(LocalClient):
    """Client that reports deletions of one resource only as an expired history (410)."""

    def __init__(self, service: Service, resource: str) -> None:
        super().__init__(service)
        self._resource = resource

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async for batch in super().watch(what, after=after):
            if what.resource == self._resource and any(event.type == "DELETED" for event in batch):
                raise Expired("history is gone")
            yield batch


@dataclass
class House:
    """Cluster with some of its controllers running."""

    cluster: Cluster
    client: LocalClient
    clock: SettableClock
    metrics: Metrics
    informers: SharedInformers
    jobs: JobController | None = None
    cronjobs: CronJobController | None = None
    workflows: OnDemand[WorkflowController] | None = None
    cronworkflows: CronJobController | None = None
    ttl: TtlController | None = None
    garbage: GarbageCollector | None = None
    pod_gc: PodGarbageCollector | None = None
    events: EventExpiry | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def create(
        self, resource: str, document: dict[str, Any], namespace: str = "default"
    ) -> Key:
        metadata = {"namespace": namespace} if namespace else {}
        document["metadata"] = {**metadata, **document.get("metadata", {})}
        written = await self.client.write(
            Create(resource, namespace, msgspec.json.encode(document))
        )
        name = msgspec.json.decode(written.document)["metadata"]["name"]
        return Key(resource, namespace, name)

    async def get(self, key: Key) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.json.decode(await self.client.get(key))
        return document

    async def exists(self, key: Key) -> bool:
        try:
            await self.client.get(key)
        except NotFound:
            return False
        return True

    async def all_of(self, resource: str, namespace: str = "") -> list[dict[str, Any]]:
        listing = await self.client.list(Selection(resource, namespace))
        return [msgspec.json.decode(document) for document in listing.documents]

    async def names(self, resource: str, namespace: str = "") -> list[str]:
        return [document["metadata"]["name"] for document in await self.all_of(resource, namespace)]

    async def patch(self, key: Key, body: dict[str, Any], subresource: str = "") -> None:
        await self.client.write(Patch(key, msgspec.json.encode(body), "merge", subresource))

    async def delete(self, key: Key, propagation: Propagation = "Background") -> None:
        await self.client.write(Delete(key, propagation))

    async def reasons(self) -> list[str]:
        """Return the reasons of all events, repeated by their counts, in no particular order."""
        return [
            event["reason"]
            for event in await self.all_of(EVENTS)
            for _ in range(event.get("count", 1))
        ]

    async def finish(self, job: Key, condition: str = "Complete") -> None:
        """Write the status with which its controller would finish a Job."""
        await self.patch(job, self.ending(condition), "status")

    def ending(self, condition: str = "Complete") -> dict[str, Any]:
        stamp = self.stamp()
        first = "SuccessCriteriaMet" if condition == "Complete" else "FailureTarget"
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": stamp, "lastProbeTime": stamp}
            for kind in (first, condition)
        ]
        status: dict[str, Any] = {"conditions": conditions, "startTime": stamp}
        if condition == "Complete":
            status["completionTime"] = stamp
        return {"status": status}

    async def many_finished_jobs(
        self, names: list[str], *, namespace: str = "default", **spec: Any
    ) -> None:
        """Create and finish Jobs in two commits."""
        documents = [build.a_job(name, **spec) for name in names]
        ending = msgspec.json.encode(self.ending())
        creates = [build.creation(each, namespace) for each in documents]
        ends = [Patch(Key(JOBS, namespace, name), ending, "merge", "status") for name in names]
        for result in (*await self.client.write_many(creates), *await self.client.write_many(ends)):
            assert not isinstance(result, ApiError), result

    async def a_job(self, name: str, **fields: Any) -> Key:
        return await self.create(JOBS, build.a_job(name, **fields))

    async def a_pod(self, name: str, **fields: Any) -> Key:
        return await self.create(PODS, build.a_pod(name, **fields))

    def stamp(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


@asynccontextmanager
async def a_house(
    folder: Path,
    *which: str,
    gates: FeatureGates | None = None,
    script: Script | None = None,
    terminated_limit: int = 12500,
    client_of: Callable[[Service], LocalClient] = LocalClient,
    staged: bool = False,
) -> AsyncIterator[House]:
    """Run a cluster with some controllers.

    `which` of: cronjobs, workflows, cronworkflows, ttl, garbage, pod_gc, namespaces, definitions,
    disruption, events, jobs.
    The controllers use the client that `client_of` makes; if `staged`, the writes of a CronJob's
    sync share a commit, as in a server.
    """
    gates = gates or FeatureGates()
    async with a_cluster(folder, gates=gates) as cluster:
        clock = SettableClock(asyncio.get_running_loop(), cluster.clock.epoch)
        client, metrics = client_of(cluster.service), cluster.metrics
        informers = SharedInformers(client)
        recorder = EventRecorder(client, "test", clock)
        house = House(cluster, cluster.client, clock, metrics, informers)
        context = ControllerContext(client, informers, recorder, clock, metrics)
        # Some tests simulate weeks.
        watch = ClockWatch(clock, look_every_seconds=60)
        runs = [recorder.run, watch.run]
        if "cronjobs" in which:
            house.cronjobs = CronJobController(
                context,
                new_series=(lambda: StagedWrites(client)) if staged else None,
                shows_next_slot=gates.enabled("CronJobsNextScheduleTime"),
            )
            runs.append(house.cronjobs.run)
        if "workflows" in which:
            house.workflows = OnDemand(
                informers.workflows,
                lambda: WorkflowController(
                    context,
                    new_series=(lambda: StagedWrites(client)) if staged else None,
                    removed_job=lambda *job: cluster.service.history.removed_job(*job),
                ),
            )
            house.workflows.also_for(informers.jobs, holds_start)
            runs.append(house.workflows.run)
        if "cronworkflows" in which:
            house.cronworkflows = CronJobController(
                context,
                new_series=(lambda: StagedWrites(client)) if staged else None,
                kind=CRONWORKFLOW,
            )
            runs.append(house.cronworkflows.run)
        if "ttl" in which:
            house.ttl = TtlController(
                client,
                informers,
                clock=clock,
                metrics=metrics,
                gates=gates,
                kinds=cluster.service.kinds,
                recorder=recorder,
                workflows="workflows" in which,
            )
            runs.append(house.ttl.run)
        if "garbage" in which:
            house.garbage = GarbageCollector(context, cluster.service.kinds)
            runs.append(house.garbage.run)
        if "pod_gc" in which:
            house.pod_gc = PodGarbageCollector(
                client,
                informers,
                clock=clock,
                metrics=metrics,
                terminated_limit=terminated_limit,
            )
            runs.append(house.pod_gc.run)
        if "namespaces" in which:
            namespaces = NamespaceController(
                client, informers, clock=clock, root_ca=ROOT_CA, kinds=cluster.service.kinds
            )
            runs.append(namespaces.run)
        if "definitions" in which:
            definitions = DefinitionController(
                client, lambda: cluster.service.definitions, clock=clock
            )
            runs += [definitions.run, definitions.informer.run]
        if "disruption" in which:
            runs.append(DisruptionController(context, cluster.service.kinds).run)
        if "events" in which:
            house.events = EventExpiry(client, clock=clock)
            runs += [house.events.run, house.events.follow]
        if "jobs" in which:
            house.jobs = JobController(context, settings=cluster.settings)
            runs.append(house.jobs.run)
        for waits in (
            house.cronjobs,
            house.cronworkflows,
            house.workflows,
            house.ttl,
            house.events,
            house.jobs,
        ):
            if waits is not None:
                watch.on_jump(waits.clock_jumped)
        await informers.start()
        house.tasks = [asyncio.create_task(run()) for run in runs]
        if script is not None:
            cluster.start_node(script)
        try:
            yield house
        finally:
            for task in house.tasks:
                task.cancel()
            results = await asyncio.gather(*house.tasks, return_exceptions=True)
            await informers.stop()
            for result in results:
                if isinstance(result, Exception):
                    raise result
