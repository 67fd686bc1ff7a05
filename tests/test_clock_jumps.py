"""Changes of the wall clock while a whole control plane waits or is down.

Forward: everything due by the new time happens at once. Back: no wait takes longer than intended. A
machine that was suspended looks the same as a clock set forward.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Selection
from onejob.clock_watch import LOOK_EVERY_SECONDS
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.gates import parse_gates
from onejob.node.agent.node_object import LEASES
from onejob.node.options import NodeOptions
from onejob.node.simulated import DURATION, EXIT_CODE
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, NODES, PODS, Key
from onejob.planning.names import INDEX_ANNOTATION
from onejob.store.writer import LoopCommitter
from tests import build
from tests.controllers.housekeeping import SettableClock, a_settable_clock

pytestmark = pytest.mark.virtual_time

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
FOR_EVER = "1000000"
#: Seconds until a jump is noticed and handled.
NOTICED = LOOK_EVERY_SECONDS + 1

Document = dict[str, Any]


class Scene:
    def __init__(self, folder: Path, clock: SettableClock) -> None:
        self.folder = folder
        self.clock = clock
        self.plane: ControlPlane

    @asynccontextmanager
    async def server(self, gates: str = "") -> AsyncIterator[None]:
        self.plane = await ControlPlane.start(
            Settings(
                data_dir=self.folder,
                node=NodeOptions(runtime="simulated", name="node"),
                gates=parse_gates(gates),
            ),
            Dependencies(self.clock, Random(int(self.clock.monotonic())), LoopCommitter()),
        )
        try:
            yield
        finally:
            await self.plane.stop()

    async def jump(self, by: timedelta) -> None:
        self.clock.set_by(by)
        await asyncio.sleep(NOTICED)

    async def create(self, resource: str, document: Document) -> Key:
        await self.plane.client.write(Create(resource, "default", msgspec.json.encode(document)))
        return Key(resource, "default", document["metadata"]["name"])

    async def a_job(self, *, runs: str = "0", ends: str = "0", **spec: Any) -> Key:
        metadata = {"annotations": {DURATION: runs, EXIT_CODE: ends}}
        policy = spec.pop("restartPolicy", "Never")
        template = build.template(metadata=metadata, restartPolicy=policy)
        return await self.create(JOBS, build.a_job("job", template=template, **spec))

    async def all_of(self, resource: str) -> list[Document]:
        listing = await self.plane.client.list(Selection(resource))
        return [msgspec.json.decode(document) for document in listing.documents]

    async def get(self, key: Key) -> Document:
        document: Document = msgspec.json.decode(await self.plane.client.get(key))
        return document

    async def failure(self, job: Key) -> str:
        """Return the reason why a Job failed; "" if it has not."""
        conditions = (await self.get(job))["status"].get("conditions", ())
        return next((c["reason"] for c in conditions if c["type"] == "Failed"), "")

    async def restarts(self) -> int:
        (pod,) = await self.all_of(PODS)
        return sum(c["restartCount"] for c in pod["status"].get("containerStatuses", ()))


async def play(folder: Path, act: Callable[[Scene], Awaitable[None]]) -> None:
    scene = Scene(folder, a_settable_clock())
    async with scene.server():
        await act(scene)


async def play_with_restart(
    folder: Path,
    before: Callable[[Scene], Awaitable[None]],
    jump: timedelta,
    after: Callable[[Scene], Awaitable[None]],
) -> None:
    """Run a scene whose clock is set while no server runs."""
    scene = Scene(folder, a_settable_clock())
    async with scene.server():
        await before(scene)
    scene.clock.set_by(jump)
    async with scene.server():
        await after(scene)


# --- deadlines of Jobs and Pods


async def test_a_days_sleep_ends_a_job_with_a_deadline_of_an_hour(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = await scene.a_job(runs=FOR_EVER, activeDeadlineSeconds=3600)
        await asyncio.sleep(10)
        await scene.jump(DAY)
        assert await scene.failure(job) == "DeadlineExceeded"

    await play(tmp_path, act)


async def test_a_clock_set_back_does_not_prolong_a_jobs_deadline(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = await scene.a_job(runs=FOR_EVER, activeDeadlineSeconds=60)
        await asyncio.sleep(10)
        await scene.jump(-HOUR)
        assert await scene.failure(job) == ""
        await asyncio.sleep(60)
        assert await scene.failure(job) == "DeadlineExceeded"

    await play(tmp_path, act)


async def test_a_clock_set_back_twice_does_not_prolong_a_jobs_deadline(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = await scene.a_job(runs=FOR_EVER, activeDeadlineSeconds=60)
        await scene.jump(-HOUR)
        await scene.jump(-DAY)
        await asyncio.sleep(60)
        assert await scene.failure(job) == "DeadlineExceeded"

    await play(tmp_path, act)


async def test_a_clock_set_back_while_the_server_was_down_does_not_prolong_a_jobs_deadline(
    tmp_path: Path,
) -> None:
    async def before(scene: Scene) -> None:
        await scene.a_job(runs=FOR_EVER, activeDeadlineSeconds=60)
        await asyncio.sleep(10)

    async def after(scene: Scene) -> None:
        await asyncio.sleep(55)
        assert await scene.failure(Key(JOBS, "default", "job")) == ""
        await asyncio.sleep(10)
        assert await scene.failure(Key(JOBS, "default", "job")) == "DeadlineExceeded"

    await play_with_restart(tmp_path, before, -HOUR, after)


async def a_pod(scene: Scene, **spec: Any) -> Key:
    metadata = {"annotations": {DURATION: FOR_EVER}}
    return await scene.create(PODS, build.a_pod("pod", metadata=metadata, **spec))


@pytest.mark.parametrize("jump", [DAY, -HOUR])
async def test_a_pods_deadline_follows_the_clock(tmp_path: Path, jump: timedelta) -> None:
    async def act(scene: Scene) -> None:
        pod = await a_pod(scene, activeDeadlineSeconds=3600 if jump > timedelta() else 60)
        await asyncio.sleep(10)
        await scene.jump(jump)
        if jump < timedelta():
            assert (await scene.get(pod))["status"]["phase"] == "Running"
            await asyncio.sleep(60)
        status = (await scene.get(pod))["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")

    await play(tmp_path, act)


async def test_a_pods_deadline_is_not_prolonged_by_a_clock_set_back_while_the_server_was_down(
    tmp_path: Path,
) -> None:
    async def before(scene: Scene) -> None:
        await a_pod(scene, activeDeadlineSeconds=60)
        await asyncio.sleep(10)

    async def after(scene: Scene) -> None:
        await asyncio.sleep(65)
        status = (await scene.get(Key(PODS, "default", "pod")))["status"]
        assert status["reason"] == "DeadlineExceeded"

    await play_with_restart(tmp_path, before, -HOUR, after)


# --- the end


@pytest.mark.parametrize(
    "spec", [{}, {"completionMode": "Indexed", "completions": 2}], ids=["NonIndexed", "Indexed"]
)
@pytest.mark.parametrize("ends", ["0", "1"])
async def test_a_job_ends_though_the_clock_was_set_back_to_before_its_start(
    tmp_path: Path, spec: Document, ends: str
) -> None:
    """The API accepts no end before the start."""

    async def act(scene: Scene) -> None:
        job = await scene.a_job(runs="20", ends=ends, backoffLimit=0, parallelism=2, **spec)
        await asyncio.sleep(10)
        await scene.jump(-HOUR)
        await asyncio.sleep(20)
        status = (await scene.get(job))["status"]
        last = status["conditions"][-1]["type"]
        assert last == ("Complete" if ends == "0" else "Failed")
        if ends == "0":
            assert status["completionTime"] == status["startTime"]

    await play(tmp_path, act)


async def test_a_job_counted_by_existence_ends_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, a_settable_clock())
    async with scene.server("JobTrackingWithFinalizers=false"):
        job = await scene.a_job(runs="20")
        await asyncio.sleep(10)
        await scene.jump(-HOUR)
        await asyncio.sleep(20)
        assert (await scene.get(job))["status"]["conditions"][-1]["type"] == "Complete"


# --- retries


INDEXED = {
    "completionMode": "Indexed",
    "completions": 1,
    "backoffLimitPerIndex": 3,
}


@pytest.mark.parametrize("spec", [{}, INDEXED], ids=["job", "index"])
@pytest.mark.parametrize(
    ("jump", "base", "waits"), [(DAY, 3600, NOTICED), (-HOUR, 30, 30 + NOTICED)]
)
async def test_a_retry_follows_the_clock(
    tmp_path: Path, spec: Document, jump: timedelta, base: int, waits: float
) -> None:
    async def act(scene: Scene) -> None:
        await scene.a_job(ends="1", backoffSeconds=base, **spec)
        await asyncio.sleep(5)
        assert len(await scene.all_of(PODS)) == 1
        await scene.jump(jump)
        await asyncio.sleep(waits - NOTICED)
        pods = await scene.all_of(PODS)
        assert len(pods) == 2
        assert all((INDEX_ANNOTATION in p["metadata"]["annotations"]) == bool(spec) for p in pods)

    await play(tmp_path, act)


@pytest.mark.parametrize("spec", [{}, INDEXED], ids=["job", "index"])
async def test_a_clock_set_back_does_not_shorten_the_wait_before_a_retry(
    tmp_path: Path, spec: Document
) -> None:
    async def act(scene: Scene) -> None:
        await scene.a_job(ends="1", backoffSeconds=300, **spec)
        await asyncio.sleep(5)
        await scene.jump(-HOUR)
        await asyncio.sleep(280)
        assert len(await scene.all_of(PODS)) == 1

    await play(tmp_path, act)


@pytest.mark.parametrize("spec", [{}, INDEXED], ids=["job", "index"])
async def test_a_clock_set_back_while_the_server_was_down_does_not_prolong_the_wait_before_a_retry(
    tmp_path: Path, spec: Document
) -> None:
    async def before(scene: Scene) -> None:
        await scene.a_job(ends="1", backoffSeconds=60, **spec)
        await asyncio.sleep(5)

    async def after(scene: Scene) -> None:
        await asyncio.sleep(55)
        assert len(await scene.all_of(PODS)) == 1
        await asyncio.sleep(10)
        assert len(await scene.all_of(PODS)) == 2

    await play_with_restart(tmp_path, before, -HOUR, after)


# --- containers restarted in place


async def test_after_a_days_sleep_a_crashed_container_is_restarted_at_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.a_job(ends="1", restartPolicy="OnFailure", backoffLimit=100)
        await asyncio.sleep(80)  # restarted at 0, 10, 30 and 70 s; next at 150 s
        assert await scene.restarts() == 4
        await scene.jump(DAY)
        assert await scene.restarts() == 5

    await play(tmp_path, act)


async def test_a_clock_set_back_does_not_prolong_the_back_off_of_a_container(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        await scene.a_job(ends="1", restartPolicy="OnFailure", backoffLimit=100)
        await asyncio.sleep(80)
        await scene.jump(-HOUR)
        assert await scene.restarts() == 4
        await asyncio.sleep(80)
        assert await scene.restarts() == 5

    await play(tmp_path, act)


async def test_a_clock_set_back_while_the_server_was_down_does_not_prolong_that_back_off(
    tmp_path: Path,
) -> None:
    async def before(scene: Scene) -> None:
        await scene.a_job(ends="1", restartPolicy="OnFailure", backoffLimit=100)
        await asyncio.sleep(80)

    async def after(scene: Scene) -> None:
        await asyncio.sleep(75)
        assert await scene.restarts() == 4
        await asyncio.sleep(10)
        assert await scene.restarts() == 5

    await play_with_restart(tmp_path, before, -HOUR, after)


# --- CronJobs


async def a_cronjob(scene: Scene, schedule: str) -> Key:
    return await scene.create(CRONJOBS, build.a_cronjob("tick", schedule))


async def slots(scene: Scene) -> list[str]:
    """Return the slots of the existing Jobs, in the order of creation."""
    jobs = sorted(await scene.all_of(JOBS), key=lambda job: int(job["metadata"]["resourceVersion"]))
    minutes = [int(job["metadata"]["name"].removeprefix("tick-")) for job in jobs]
    return [f"{datetime.fromtimestamp(60 * minute, UTC):%H:%M}" for minute in minutes]


async def test_after_an_hours_sleep_the_latest_slot_is_run_and_then_each(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await a_cronjob(scene, "* * * * *")
        await asyncio.sleep(90)
        assert await slots(scene) == ["12:01"]
        await scene.jump(HOUR)
        assert await slots(scene) == ["12:01", "13:01"]
        await asyncio.sleep(60)
        assert await slots(scene) == ["12:01", "13:01", "13:02"]

    await play(tmp_path, act)


async def test_a_clock_set_back_goes_on_with_each_minute(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await a_cronjob(scene, "* * * * *")
        await asyncio.sleep(3 * 60 + 30)
        assert await slots(scene) == ["12:01", "12:02", "12:03"]
        await scene.jump(-HOUR)
        await asyncio.sleep(3 * 60)
        # Three are kept.
        assert await slots(scene) == ["11:04", "11:05", "11:06"]

    await play(tmp_path, act)


async def test_a_clock_set_back_a_little_runs_no_slot_twice(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await a_cronjob(scene, "* * * * *")
        await asyncio.sleep(3 * 60 + 30)
        before = {job["metadata"]["uid"] for job in await scene.all_of(JOBS)}
        await scene.jump(timedelta(minutes=-2))
        await asyncio.sleep(2 * 60)
        assert {job["metadata"]["uid"] for job in await scene.all_of(JOBS)} == before
        await asyncio.sleep(60)
        assert await slots(scene) == ["12:02", "12:03", "12:04"]

    await play(tmp_path, act)


async def test_a_clock_set_back_does_not_run_the_daily_job_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        key = await a_cronjob(scene, "1 12 * * *")
        await asyncio.sleep(120)
        assert await slots(scene) == ["12:01"]
        for job in await scene.all_of(JOBS):
            job_key = Key(JOBS, "default", job["metadata"]["name"])
            await scene.plane.client.write(Delete(job_key, "Background"))
        await scene.jump(timedelta(minutes=-2))
        await asyncio.sleep(180)
        assert await slots(scene) == []
        assert (await scene.get(key))["status"]["lastScheduleTime"].endswith("T12:01:00Z")

    await play(tmp_path, act)


async def test_a_clock_set_back_while_the_server_was_down_goes_on_with_each_minute(
    tmp_path: Path,
) -> None:
    async def before(scene: Scene) -> None:
        await a_cronjob(scene, "* * * * *")
        await asyncio.sleep(150)

    async def after(scene: Scene) -> None:
        await asyncio.sleep(120)
        assert (await slots(scene))[-2:] == ["11:03", "11:04"]

    await play_with_restart(tmp_path, before, -HOUR, after)


# --- expiry


async def test_expired_objects_are_deleted_after_suspend(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.a_job(ttlSecondsAfterFinished=7200)
        await asyncio.sleep(10)
        assert len(await scene.all_of(JOBS)) == 1
        assert await scene.all_of(EVENTS)
        await scene.jump(DAY)
        await asyncio.sleep(5)
        assert await scene.all_of(JOBS) == []
        assert [e for e in await scene.all_of(EVENTS) if e["involvedObject"]["kind"] == "Job"] == []

    await play(tmp_path, act)


async def test_a_clock_set_back_prolongs_a_ttl_as_upstream_but_not_the_life_of_events(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        await scene.a_job(ttlSecondsAfterFinished=60)
        await asyncio.sleep(10)
        await scene.jump(-HOUR)
        await asyncio.sleep(3500)
        assert len(await scene.all_of(JOBS)) == 1
        assert await scene.all_of(EVENTS)
        await asyncio.sleep(200)
        assert await scene.all_of(JOBS) == []
        assert [e for e in await scene.all_of(EVENTS) if e["involvedObject"]["kind"] == "Job"] == []

    await play(tmp_path, act)


# --- the node


@pytest.mark.parametrize("jump", [DAY, -HOUR])
async def test_the_nodes_heartbeats_follow_the_clock(tmp_path: Path, jump: timedelta) -> None:
    async def act(scene: Scene) -> None:
        await asyncio.sleep(30)
        await scene.jump(jump)
        now = scene.clock.now()
        lease = await scene.get(Key(LEASES, "kube-node-lease", "node"))
        renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
        node = await scene.get(Key(NODES, "", "node"))
        (ready,) = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
        beat = datetime.fromisoformat(ready["lastHeartbeatTime"])
        assert timedelta(0) <= now - renewed <= timedelta(seconds=NOTICED)
        assert timedelta(0) <= now - beat <= timedelta(seconds=NOTICED)
        await asyncio.sleep(320)
        node = await scene.get(Key(NODES, "", "node"))
        (ready,) = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
        assert datetime.fromisoformat(ready["lastHeartbeatTime"]) > beat

    await play(tmp_path, act)
