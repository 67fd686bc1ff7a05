"""Whole control plane in virtual time, with a scripted node and a client that can fail.

The store, the API, the informers and the controllers are the real ones. Only the node is fake: it
reports the outcome of each Pod at once and records it, so that a test can compare the Job's status
with the real outcomes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.api.service import Service
from onejob.client.base import (
    Bind,
    Client,
    Delete,
    Listing,
    Op,
    Patch,
    Result,
    Selection,
    WatchEvent,
    Written,
)
from onejob.client.events import EventRecorder
from onejob.client.local import LocalClient
from onejob.client.write_series import StagedWrites
from onejob.clock import LoopClock
from onejob.controllers.bootstrap import bootstrap
from onejob.controllers.context import ControllerContext
from onejob.controllers.job import JobController
from onejob.controllers.start_gates import StartGate
from onejob.gates import FeatureGates
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.operator_settings import Settings
from onejob.store.log import LogStore
from onejob.store.writer import Committer, LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import ApiError, Conflict, InsufficientStorage, InternalError, NotFound
from tests.build import a_job, creation

#: Outcome of a Pod that the node runs: an exit code, or None to let it run forever.
Script = Callable[[Pod], int | None]


class CountingClient:
    """Client that counts writes and fails after a given one.

    That write happens, but its response is lost.
    """

    def __init__(self, inner: Client, *, dies_after: int | None = None) -> None:
        self._inner = inner
        self._dies_after = dies_after
        self.calls = 0
        self.ops = 0
        self.dead = asyncio.Event()

    async def get(self, key: Key) -> bytes:
        return await self._inner.get(key)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        return await self._inner.list(what, limit=limit, token=token)

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        return self._inner.watch(what, after=after)

    async def write(self, op: Op) -> Written:
        (result,) = await self.write_many([op])
        if isinstance(result, Written):
            return result
        raise result

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Write one at a time, so that a crash can fall between any two writes of a batch."""
        results: list[Result] = []
        for op in ops:
            if self.dead.is_set():
                await asyncio.get_running_loop().create_future()
            results.extend(await self._inner.write_many([op]))
            self.ops += 1
            if self._dies_after is not None and self.ops >= self._dies_after:
                self.dead.set()
                await asyncio.get_running_loop().create_future()
        self.calls += 1
        return results

    async def close(self) -> None:
        await self._inner.close()


@dataclass
class ScriptedNode:
    """Node that binds, runs and ends Pods as its script says, and records their outcomes."""

    client: Client
    clock: LoopClock
    script: Script
    runs_seconds: float = 1.0
    started: set[str] = field(default_factory=set)
    #: Exit code of each Pod, past or future.
    exits: dict[str, int] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    async def run(self) -> None:
        listing = await self.client.list(Selection(PODS))
        for document in listing.documents:
            await self._advance(read_pod(document))
        async for batch in self.client.watch(Selection(PODS), after=listing.revision):
            for event in batch:
                if event.type in ("ADDED", "MODIFIED"):
                    await self._advance(read_pod(event.document))

    @property
    def succeeded(self) -> int:
        return sum(code == 0 for code in self.exits.values())

    @property
    def failed(self) -> int:
        return sum(code != 0 for code in self.exits.values())

    async def _advance(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if pod.terminal:
            return
        if pod.metadata.deleting:
            await self._end(pod, 143)
            return
        if not pod.spec.node_name:
            await self._write(Bind(pod.key, "node"))
        elif pod.phase == "Pending" and uid not in self.started:
            # Other clients may change a Pod between its binding and our report that it runs.
            self.started.add(uid)
            await self._report(pod, {"phase": "Running", "conditions": _ready("True")})
        elif pod.phase == "Running" and uid not in self.exits:
            code = self.script(pod)
            if code is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(self.runs_seconds, self._end_later, pod, code)
                self.exits[uid] = code

    def _end_later(self, pod: Pod, code: int) -> None:
        task = asyncio.ensure_future(self._end(pod, code))
        task.add_done_callback(lambda done: done.result())

    async def _end(self, pod: Pod, code: int) -> None:
        """End a Pod once: a Pod that has ended never ends with another code."""
        if pod.metadata.uid in self._ended:
            return
        self._ended.add(pod.metadata.uid)
        self.exits[pod.metadata.uid] = code
        finished = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        terminated = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": finished,
            "finishedAt": finished,
        }
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "conditions": _ready("False"),
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": terminated},
                }
            ],
        }
        await self._report(pod, status)
        if pod.metadata.deleting:
            await self._write(Delete(pod.key, grace_seconds=0, uid=pod.metadata.uid))

    async def _report(self, pod: Pod, status: dict[str, Any]) -> None:
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._write(Patch(pod.key, msgspec.json.encode(body), "strategic", "status"))

    async def _write(self, op: Op) -> None:
        """Write, tolerating that the Pod is being deleted or gone.

        Any other refusal fails the test.
        """
        while True:
            try:
                (result,) = await self.client.write_many([op])
            except (InsufficientStorage, InternalError):
                # The store could not keep the write: a node retries.
                await asyncio.sleep(0.1)
                continue
            if isinstance(result, ApiError) and not isinstance(result, (Conflict, NotFound)):
                raise result
            return


def _ready(status: str) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": status}]


@dataclass
class Cluster:
    """Store, API and clients of one cluster; node and controllers are started on request."""

    store: LogStore
    service: Service
    client: LocalClient
    clock: LoopClock
    metrics: Metrics
    settings: Settings = field(default_factory=Settings)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start_node(self, script: Script) -> ScriptedNode:
        """Start a node whose Pods end as `script` decides."""
        node = ScriptedNode(self.client, self.clock, script)
        self.tasks.append(asyncio.create_task(node.run()))
        return node

    async def start_job_controller(
        self, client: Client | None = None, gate: StartGate | None = None
    ) -> "RunningController":
        """Start a Job controller, by default with the cluster's in-process client."""
        client = client or self.client
        informers = SharedInformers(client)
        recorder = EventRecorder(client, "job-controller", self.clock)
        controller = JobController(
            ControllerContext(client, informers, recorder, self.clock, self.metrics),
            settings=self.settings,
            new_series=(lambda: StagedWrites(local)) if (local := _local(client)) else None,
            gate=gate,
        )
        await informers.start()
        tasks = [asyncio.create_task(controller.run()), asyncio.create_task(recorder.run())]
        return RunningController(controller, informers, tasks)

    async def create_job(self, name: str = "job", **spec: Any) -> Key:
        """Create a Job and return its key; keywords are fields of its spec."""
        metadata = {"annotations": spec.pop("annotations", {})}
        await self.client.write(creation(a_job(name, metadata=metadata, **spec)))
        return Key(JOBS, "default", name)

    async def job(self, key: Key) -> Job:
        return read_job(await self.client.get(key))

    async def pods(self) -> list[Pod]:
        listing = await self.client.list(Selection(PODS))
        return [read_pod(document) for document in listing.documents]

    async def until_finished(self, key: Key, *, within: float = 3600) -> Job:
        """Return the Job once it is finished. Raises TimeoutError after `within` seconds."""
        selection = Selection(JOBS, key.namespace, fields=f"metadata.name={key.name}")
        async with asyncio.timeout(within):
            job = await self.job(key)
            if job.finished:
                return job
            async for batch in self.client.watch(selection, after=job.metadata.revision):
                for event in batch:
                    if event.type == "BOOKMARK":
                        continue
                    job = read_job(event.document)
                    if job.finished:
                        return job
        raise AssertionError("the watch ended before the Job did")


def _local(client: Client) -> LocalClient | None:
    """Return the client if it is in-process, else None.

    Only with an in-process client the controller stages writes ahead.
    """
    return client if isinstance(client, LocalClient) else None


@dataclass
class RunningController:
    """A started Job controller with its informers."""

    controller: JobController
    informers: SharedInformers
    tasks: list[asyncio.Task[None]]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.informers.stop()


@asynccontextmanager
async def a_cluster(
    folder: Path,
    *,
    seed: int = 1,
    gates: FeatureGates | None = None,
    committer: Committer | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """Run a cluster in virtual time; `settings` are those of the planner."""
    clock = virtual_clock()
    committer = committer or LoopCommitter()
    store = await LogStore.open(folder / "onejob.db", clock=clock, committer=committer)
    gates = gates or FeatureGates()
    planning = Settings.under(gates, **settings)
    service = Service(
        store, clock=clock, rng=Random(seed), gates=gates, tracking=planning.tracking_finalizer
    )
    client = LocalClient(service)
    await bootstrap(client)
    cluster = Cluster(store, service, client, clock, Metrics(), planning)
    try:
        yield cluster
    finally:
        for task in cluster.tasks:
            task.cancel()
        await asyncio.gather(*cluster.tasks, return_exceptions=True)
        await store.close()
