"""Pods that are bound to a node at creation: conditions and consequences."""

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import msgspec
import pytest

from onejob.api.writing.writes import Writes
from onejob.benchmarks.plane import a_job
from onejob.client.base import Bind, Create, Patch
from onejob.client.local import LocalClient
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import read_pod
from onejob.store.log import LogStore
from onejob.store.writer import Committer, LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from onejob.wire.errors import InternalError
from tests.client.write_series_support import FailingCommitter

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def a_plane(
    folder: Path, committer: Committer, **options: Any
) -> AsyncIterator[ControlPlane]:
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated", name="node", **options)),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=committer),
    )
    try:
        yield plane
    finally:
        await plane.stop()


async def until_finished(plane: ControlPlane) -> Job:
    for _ in range(3600):
        job = read_job(await plane.client.get(Key(JOBS, "default", "j")))
        if job.finished:
            return job
        await asyncio.sleep(1)
    raise AssertionError("the Job does not end")


async def test_the_pods_of_a_job_are_placed_by_the_write_that_creates_them(tmp_path: Path) -> None:
    async with a_plane(tmp_path, LoopCommitter(0.001)) as plane:
        changes = plane.store.watch(PODS, after=plane.store.revision)
        await plane.client.write(a_job("j", completions=3, parallelism=3))
        nodes = [read_pod(change.value or b"").spec.node_name for change in await anext(changes)]
        assert nodes == ["node", "node", "node"]


async def test_no_node_code_runs_while_pods_are_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creation asks the node for capacity through `NodeRoom`, and the node learns of the Pods from
    its watch, after the commit."""
    stage = LogStore.stage
    called: list[str] = []

    def trace(frame: FrameType, event: str, arg: object) -> None:
        called.append(frame.f_globals["__name__"])

    create_pods = Writes.create_pods

    def traced(self: Writes, *args: Any) -> Any:
        sys.setprofile(trace)
        try:
            return create_pods(self, *args)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(Writes, "create_pods", traced)
    async with a_plane(tmp_path, LoopCommitter(0.001)) as plane:
        await plane.client.write(a_job("j", completions=3, parallelism=3))
        assert (await until_finished(plane)).status.succeeded == 3
    assert stage.__module__ in called
    assert [name for name in called if name.startswith("onejob.node")] == []


async def test_pods_that_must_wait_are_placed_in_their_turn(tmp_path: Path) -> None:
    async with a_plane(tmp_path, LoopCommitter(0.001), capacity={"pods": "2"}) as plane:
        changes = plane.store.watch(PODS, after=plane.store.revision)
        await plane.client.write(a_job("j", completions=3, parallelism=3, runs_seconds=10))
        nodes = [read_pod(change.value or b"").spec.node_name for change in await anext(changes)]
        assert nodes == ["node", "node", ""]
        assert (await until_finished(plane)).status.succeeded == 3


@pytest.mark.parametrize("indexed", [False, True])
def test_a_disk_that_is_full_at_any_moment_costs_neither_pods_nor_room(
    tmp_path: Path, indexed: bool
) -> None:
    async def live(folder: Path, failing: range) -> int:
        committer = FailingCommitter()
        async with a_plane(folder, committer, capacity={"pods": "2"}) as plane:
            await plane.client.write(a_job("j", completions=5, parallelism=2, indexed=indexed))
            first = committer.commits
            committer.fails_at = {first + number for number in failing}
            finished = await until_finished(plane)
            assert (finished.status.succeeded, finished.status.failed) == (5, 0), failing
            return committer.commits - first

    commits = run_virtual(live(tmp_path, range(0)))
    assert commits > 5
    for position in range(1, commits):
        for length in (1, 2):
            folder = tmp_path / f"{position}-{length}"
            folder.mkdir()
            run_virtual(live(folder, range(position, position + length)))


class LosesAnswers(LocalClient):
    """Client that reports the next `lost` writes as failed, once the watch has shown them."""

    lost = 0

    async def durable(self, revision: int) -> None:
        await super().durable(revision)
        if self.lost:
            self.lost -= 1
            await asyncio.sleep(0.1)
            raise InternalError("the answer is lost")


def test_existing_pod_runs_for_any_creation_response(tmp_path: Path) -> None:
    async def live(folder: Path, lost: int) -> None:
        plane = await ControlPlane.start(
            Settings(folder, NodeOptions(runtime="simulated", name="node")),
            Dependencies(virtual_clock(), Random(1), LoopCommitter(0.001), client=LosesAnswers),
        )
        assert isinstance(plane.client, LosesAnswers)
        await plane.client.write(a_job("j", completions=3, parallelism=2))
        plane.client.lost = lost
        assert (await until_finished(plane)).status.succeeded == 3
        await plane.stop()

    for lost in range(1, 6):
        folder = tmp_path / str(lost)
        folder.mkdir()
        run_virtual(live(folder, lost))


class Pods:
    """Creates Pods through the trusted client of a plane, as its controllers do."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def created(self, **spec: Any) -> dict[str, Any]:
        """Create a Pod and return it as in the response."""
        containers = [{"name": "c", "image": "none"}]
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "p-"},
            "spec": {"restartPolicy": "Never", "containers": containers, **spec},
        }
        written = await self._plane.client.write(
            Create(PODS, "default", msgspec.json.encode(document))
        )
        pod: dict[str, Any] = msgspec.json.decode(written.document)
        return pod


async def with_pods(folder: Path, play: Callable[[ControlPlane, Pods], Awaitable[None]]) -> None:
    async with a_plane(folder, LoopCommitter(0.001)) as plane:
        await play(plane, Pods(plane))


async def test_a_pod_that_is_created_with_its_node_is_as_if_it_had_been_bound(
    tmp_path: Path,
) -> None:
    async def play(plane: ControlPlane, pods: Pods) -> None:
        # The first Pod of a kind takes another code path in the API than later ones.
        placed = [await pods.created() for _ in range(3)]
        elsewhere = LocalClient(plane.service)
        for pod in placed:
            unbound = copy.deepcopy(pod)
            del unbound["spec"]["nodeName"], unbound["status"]["conditions"]
            unbound["metadata"] = {"name": pod["metadata"]["name"] + "-again"}
            body = Create(PODS, "default", msgspec.json.encode(unbound))
            created = msgspec.json.decode((await elsewhere.write(body)).document)["metadata"]
            bound = await elsewhere.write(
                Bind(Key(PODS, "default", created["name"]), "node", created["uid"])
            )
            same = msgspec.json.decode(bound.document)
            assert (same["spec"], same["status"]) == (pod["spec"], pod["status"])
            assert pod["metadata"]["generation"] == same["metadata"]["generation"]
        (condition,) = placed[0]["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        assert condition["lastTransitionTime"] == placed[0]["metadata"]["creationTimestamp"]

    await with_pods(tmp_path, play)


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingGates": [{"name": "wait"}]},
        {"schedulerName": "another"},
        {"nodeSelector": {"disk": "fast"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
                        ]
                    }
                }
            }
        },
        {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"gpu/x": "1"}}}]},
    ],
    ids=["gated", "another scheduler", "selector", "affinity", "no such resource"],
)
async def test_a_pod_that_may_not_have_the_node_yet_is_created_without(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    async def play(plane: ControlPlane, pods: Pods) -> None:
        for _ in range(2):
            pod = await pods.created(**spec)
            assert "nodeName" not in pod["spec"]
            scheduled = [c["status"] for c in pod["status"].get("conditions", ())]
            assert scheduled in ([], ["False"])
        # No Pod holds resources that the next one lacks.
        assert (await pods.created())["spec"]["nodeName"] == "node"

    await with_pods(tmp_path, play)


async def test_a_node_that_is_tainted_or_cordoned_takes_no_pod_that_does_not_tolerate_it(
    tmp_path: Path,
) -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}

    async def play(plane: ControlPlane, pods: Pods) -> None:
        for spec in ({"unschedulable": True}, {"unschedulable": None, "taints": [taint]}):
            patch = msgspec.json.encode({"spec": spec})
            await plane.client.write(Patch(Key("nodes", "", "node"), patch, type="merge"))
            await asyncio.sleep(1)
            assert "nodeName" not in (await pods.created())["spec"]
        tolerant = await pods.created(tolerations=[{"key": "dedicated", "operator": "Exists"}])
        # Others wait, so it waits as well, and is bound at once.
        await asyncio.sleep(1)
        key = Key(PODS, "default", tolerant["metadata"]["name"])
        assert read_pod(await plane.client.get(key)).spec.node_name == "node"

    await with_pods(tmp_path, play)


async def test_a_pod_of_another_node_is_left_alone(tmp_path: Path) -> None:
    async def play(plane: ControlPlane, pods: Pods) -> None:
        pod = await pods.created(nodeName="another")
        await asyncio.sleep(1)
        key = Key(PODS, "default", pod["metadata"]["name"])
        assert read_pod(await plane.client.get(key)).status.phase == "Pending"
        assert "conditions" not in pod["status"]

    await with_pods(tmp_path, play)
