"""Job queue on a whole control plane with a simulated node, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Delete, Op, Patch, Selection, Written
from onejob.control_plane import ControlPlane
from onejob.objects.meta import JOBS, PODS, Key
from onejob.wire.errors import ApiError
from tests.controllers.housekeeping import LateWatch
from tests.queue.support import (
    StartsInOrder,
    a_job,
    a_plane,
    a_priority_class,
    create,
    job,
    jobs_of,
    running,
    set_limits,
    until_finished,
)

pytestmark = pytest.mark.virtual_time


async def suspend(name: str, plane: ControlPlane, suspended: bool) -> None:
    body = msgspec.json.encode({"spec": {"suspend": suspended}})
    await plane.client.write(Patch(Key(JOBS, "default", name), body, "merge"))


async def test_200_jobs_with_priorities_start_in_exact_order_five_at_a_time(tmp_path: Path) -> None:
    rng = Random(7)
    priorities = {"low": -5, "normal": 0, "high": 100, "urgent": 1000}
    async with a_plane(tmp_path, "*=5") as plane:
        seen = StartsInOrder(plane)
        await create(plane, *(a_priority_class(*one) for one in priorities.items()))
        blockers = [a_job(f"first-{n}", seconds=60) for n in range(5)]
        await create(plane, *blockers)
        await asyncio.sleep(1)
        chosen = [rng.choice(list(priorities)) for _ in range(200)]
        names = [f"job-{n:03}" for n in range(200)]
        await create(
            plane,
            *(
                a_job(name, priority=priority, seconds=rng.randint(1, 30))
                for name, priority in zip(names, chosen, strict=True)
            ),
        )
        await asyncio.sleep(5)
        waiting = [one for one in (await jobs_of(plane)).values() if one.spec.suspend]
        assert len(waiting) == 200
        await until_finished(plane)
        expected = sorted(range(200), key=lambda n: (-priorities[chosen[n]], n))
        assert seen.order[5:] == [names[n] for n in expected]
        assert seen.most == 5
        assert all(one.condition_is_true("Complete") for one in (await jobs_of(plane)).values())


async def test_a_job_that_has_to_wait_never_gets_a_pod_before(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        created: list[str] = []
        plane.informers.pods.on_change(
            lambda deltas: created.extend(d.key.name for d in deltas if d.old is None)
        )
        await create(plane, a_job("one"), a_job("two"))
        await asyncio.sleep(5)
        pods = (await plane.client.list(Selection(PODS))).documents
        assert len(pods) == 1
        assert all(name.startswith("one-") for name in created)
        two = await job(plane, "two")
        assert two.spec.suspend
        assert two.condition_is_true("Suspended"), "so that kubectl shows it as suspended"
        events = (await plane.client.list(Selection("events"))).documents
        assert any(b'"Queued"' in event and b"all Jobs may run 1" in event for event in events)
        await until_finished(plane)
        assert "onejob.dev/queued" not in (await job(plane, "two")).metadata.annotations


async def test_queue_and_namespace_limits_apply_together(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "gpu=1", "namespace/kube-public=2") as plane:
        await create(
            plane,
            *(a_job(f"gpu-{n}", queue="gpu") for n in range(3)),
            *(a_job(f"public-{n}", namespace="kube-public") for n in range(3)),
            a_job("public-gpu", namespace="kube-public", queue="gpu"),
            a_job("free-1"),
            a_job("free-2", queue="without-limit"),
        )
        await asyncio.sleep(2)
        assert await running(plane) == ["free-1", "free-2", "gpu-0", "public-0", "public-1"]
        await asyncio.sleep(10)
        assert await running(plane) == ["gpu-1", "public-2"]
        await until_finished(plane)


async def test_limits_can_be_changed_while_jobs_wait(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await set_limits(plane, "*=1")
        await asyncio.sleep(1)
        await create(plane, *(a_job(f"j{n}", seconds=100) for n in range(6)))
        await asyncio.sleep(1)
        assert await running(plane) == ["j0"]
        await set_limits(plane, "*=3")
        await asyncio.sleep(1)
        assert await running(plane) == ["j0", "j1", "j2"]
        await set_limits(plane, "*=oops")
        await asyncio.sleep(1)
        assert await running(plane) == ["j0", "j1", "j2"], "the limits before it stay"
        await set_limits(plane, "*=1")
        await asyncio.sleep(1)
        assert await running(plane) == ["j0", "j1", "j2"], "what runs goes on"
        await set_limits(plane, None)
        await asyncio.sleep(1)
        assert await running(plane) == [f"j{n}" for n in range(6)]


async def test_suspending_a_job_removes_it_from_queue(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        await create(plane, a_job("own", suspend=True), a_job("one"), a_job("two"))
        await asyncio.sleep(1)
        assert await running(plane) == ["one"]
        await suspend("one", plane, True)
        await asyncio.sleep(1)
        assert await running(plane) == ["two"], "its place is free"
        await suspend("one", plane, False)
        await suspend("own", plane, False)
        await asyncio.sleep(1)
        assert await running(plane) == ["two"], "who comes back queues up"
        queued = Key(JOBS, "default", "one")
        body = msgspec.json.encode({"metadata": {"annotations": {"onejob.dev/queued": None}}})
        await plane.client.write(Patch(queued, body, "merge"))
        await asyncio.sleep(60)
        assert (await job(plane, "own")).finished
        left = await job(plane, "one")
        assert left.spec.suspend, "without the annotation it is somebody else's suspension"
        assert not left.finished


async def test_resuming_a_job_that_waits_does_not_jump_the_queue(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        seen = StartsInOrder(plane)
        await create(plane, a_job("one"), a_job("two"), a_job("three"))
        await asyncio.sleep(1)
        await suspend("three", plane, False)
        await asyncio.sleep(1)
        assert await running(plane) == ["one"]
        await until_finished(plane)
        assert seen.order == ["one", "two", "three"]


async def test_a_deleted_job_frees_its_place(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        await create(plane, *(a_job(f"j{n}", seconds=1000) for n in range(4)))
        await asyncio.sleep(1)
        await plane.client.write(Delete(Key(JOBS, "default", "j1"), "Background"))
        await plane.client.write(Delete(Key(JOBS, "default", "j0"), "Background"))
        await asyncio.sleep(60)
        assert await running(plane) == ["j2"]


class CountsPatches(LateWatch):
    """Client that delivers Jobs late, and counts patches."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, JOBS, 5)
        self.patches: Counter[str] = Counter()

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Written | ApiError]:
        self.patches.update(op.key.name for op in ops if isinstance(op, Patch))
        assert max(self.patches.values(), default=0) < 20, self.patches
        return await super().write_many(ops)


async def test_a_job_that_is_gone_before_the_cache_knows_is_not_asked_for_again_and_again(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path, "*=1", client=CountsPatches) as plane:
        await create(plane, a_job("one", seconds=60))
        await asyncio.sleep(20)
        await create(plane, a_job("two"))
        await plane.client.write(Delete(Key(JOBS, "default", "two"), "Background"))
        await asyncio.sleep(20)
        assert isinstance(plane.client, CountsPatches)
        assert plane.client.patches["two"] == 1
        await create(plane, a_job("three"))
        await until_finished(plane)
        assert list(await jobs_of(plane)) == ["one", "three"]


async def test_a_limit_of_zero_lets_nothing_start(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=0") as plane:
        await create(plane, a_job("one"))
        await asyncio.sleep(100)
        assert await running(plane) == []
        await set_limits(plane, "")
        await until_finished(plane)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.002, 0.003, 0.005, 0.01, 2.0, 12.0])
async def test_a_restart_keeps_order_and_limit(tmp_path: Path, after: float) -> None:
    """The server ends at some moment after the Jobs were created, and starts without --queue."""
    async with a_plane(tmp_path, "*=2") as plane:
        await create(plane, *(a_job(f"j{n:02}", seconds=15) for n in range(12)))
        await asyncio.sleep(after)
        await plane._parts.controllers.cancel()
    async with a_plane(tmp_path) as plane:
        seen = StartsInOrder(plane)
        await until_finished(plane)
        assert seen.order == sorted(seen.order)
        assert seen.most <= 2


async def test_a_class_that_changes_moves_jobs_in_the_queue(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        seen = StartsInOrder(plane)
        await create(plane, a_job("one"), a_job("two"), a_job("three", priority="later"))
        await asyncio.sleep(1)
        await create(plane, a_priority_class("later", 10))
        await create(plane, a_job("critical", priority="system-node-critical"))
        await until_finished(plane)
        assert seen.order == ["one", "critical", "three", "two"]


async def test_jobs_of_other_controllers_neither_wait_nor_count(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        await create(
            plane, a_job("other", managedBy="example.com/else"), a_job("one"), a_job("two")
        )
        await asyncio.sleep(1)
        found = await jobs_of(plane)
        assert not found["other"].spec.suspend
        assert await running(plane) == ["one", "other"]
