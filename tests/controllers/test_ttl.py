"""TTL controller on the real store and API, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Delete, Op, Patch, Written
from onejob.client.local import LocalClient
from onejob.gates import FeatureGates
from onejob.objects.meta import JOBS, PODS, Key
from onejob.wire.errors import Conflict
from tests.controllers.housekeeping import House, LateWatch, a_house
from tests.harness import checked

pytestmark = pytest.mark.virtual_time


async def a_finished_job(house: House, name: str = "job", **spec: Any) -> Key:
    key = await house.a_job(name, **spec)
    await house.finish(key)
    return key


async def a_finished_pod(house: House, name: str = "pod", **spec: Any) -> Key:
    key = await house.a_pod(name, **spec)
    terminated = {"exitCode": 0, "finishedAt": house.stamp()}
    statuses = [{"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}]
    statuses[0]["state"] = {"terminated": terminated}
    status = {"phase": "Succeeded", "containerStatuses": statuses}
    await house.patch(key, {"status": status}, "status")
    return key


async def test_a_finished_job_is_deleted_when_its_time_is_over_and_not_before(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await a_finished_job(house, ttlSecondsAfterFinished=60)
        await asyncio.sleep(59.5)
        assert await house.exists(key)
        await asyncio.sleep(1)
        assert not await house.exists(key)
        assert house.metrics.ttl_deletion_delay.value() == 1


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
async def test_zero_ttl_deletes_at_once_for_any_outcome(tmp_path: Path, condition: str) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await house.a_job("job", ttlSecondsAfterFinished=0)
        await asyncio.sleep(3600)
        assert await house.exists(key), "it has not finished"
        await house.finish(key, condition)
        await asyncio.sleep(1)
        assert not await house.exists(key)


async def test_the_ttl_may_be_raised_lowered_set_and_removed_after_the_end(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        raised = await a_finished_job(house, "raised", ttlSecondsAfterFinished=60)
        lowered = await a_finished_job(house, "lowered", ttlSecondsAfterFinished=600)
        added = await a_finished_job(house, "added")
        removed = await a_finished_job(house, "removed", ttlSecondsAfterFinished=60)
        await asyncio.sleep(30)
        await house.patch(raised, {"spec": {"ttlSecondsAfterFinished": 120}})
        await house.patch(lowered, {"spec": {"ttlSecondsAfterFinished": 10}})
        await house.patch(added, {"spec": {"ttlSecondsAfterFinished": 40}})
        await house.patch(removed, {"spec": {"ttlSecondsAfterFinished": None}})
        await asyncio.sleep(1)
        assert await house.names(JOBS) == ["added", "raised", "removed"]
        await asyncio.sleep(40)
        assert await house.names(JOBS) == ["raised", "removed"]
        await asyncio.sleep(60)
        assert await house.names(JOBS) == ["removed"]
        await asyncio.sleep(10**5)
        assert await house.names(JOBS) == ["removed"]


async def test_job_with_zero_finish_time_is_kept(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        client = checked(house.cluster.service)
        key = await house.a_job("job", ttlSecondsAfterFinished=60)
        end = {"status": "True", "lastTransitionTime": "0001-01-01T00:00:00Z"}
        conditions = [{"type": kind, **end} for kind in ("FailureTarget", "Failed")]
        body = {"status": {"startTime": house.stamp(), "conditions": conditions}}
        await client.write(Patch(key, msgspec.json.encode(body), "merge", "status"))
        await asyncio.sleep(100)
        assert await house.exists(key)


async def test_an_end_in_the_last_year_of_the_calendar_does_not_stop_the_clean_up(
    tmp_path: Path,
) -> None:
    """An error here would end the informer, and with it every controller that follows Jobs."""
    async with a_house(tmp_path, "ttl", "garbage") as house:
        odd = await house.a_job("odd", ttlSecondsAfterFinished=60)
        end = {"status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}
        conditions = [{"type": kind, **end} for kind in ("FailureTarget", "Failed")]
        status = {"startTime": house.stamp(), "conditions": conditions}
        await house.patch(odd, {"status": status}, "status")
        key = await a_finished_job(house, ttlSecondsAfterFinished=60)
        await asyncio.sleep(61)
        assert await house.exists(odd)
        assert not await house.exists(key)


async def test_a_namesake_created_anew_is_not_deleted_for_its_predecessor(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await a_finished_job(house, ttlSecondsAfterFinished=60)
        await asyncio.sleep(50)
        await house.delete(key)
        await house.a_job("job", ttlSecondsAfterFinished=60)
        await asyncio.sleep(3600)
        assert await house.exists(key)


class Recreating(LocalClient):
    """Client that calls `replace` between the last read and the deletion of an object."""

    replace: Callable[[], Awaitable[object]] | None = None
    refused = 0

    async def write(self, op: Op) -> Written:
        if isinstance(op, Delete) and self.replace is not None:
            replace, self.replace = self.replace, None
            await replace()
        try:
            return await super().write(op)
        except Conflict:
            self.refused += 1
            raise


@pytest.mark.parametrize("resource", [JOBS, PODS])
async def test_ttl_spares_a_namesake_created_just_before_the_deletion(
    tmp_path: Path, resource: str
) -> None:
    clients: list[Recreating] = []

    def recreating(service: Service) -> Recreating:
        clients.append(Recreating(service))
        return clients[0]

    async with a_house(tmp_path, "ttl", "garbage", client_of=recreating) as house:
        finished = a_finished_job if resource == JOBS else a_finished_pod
        key = await finished(house, "name", ttlSecondsAfterFinished=10)
        uid = (await house.get(key))["metadata"]["uid"]

        async def replace() -> None:
            await house.client.write(Delete(key, "Background", grace_seconds=0))
            create = house.a_job if resource == JOBS else house.a_pod
            await create("name", ttlSecondsAfterFinished=10)

        clients[0].replace = replace
        await asyncio.sleep(3600)
        assert clients[0].refused == 1
        metadata = (await house.get(key))["metadata"]
        assert metadata["uid"] != uid
        assert "deletionTimestamp" not in metadata


async def test_finalizers_are_honoured(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await a_finished_job(
            house,
            metadata={"finalizers": ["example.org/keep"]},
            ttlSecondsAfterFinished=10,
        )
        await asyncio.sleep(3600)
        metadata = (await house.get(key))["metadata"]
        assert metadata["deletionTimestamp"] == "2026-01-01T12:00:10Z"
        assert metadata["finalizers"] == ["example.org/keep"]
        await house.patch(key, {"metadata": {"finalizers": None}})
        assert not await house.exists(key)


async def test_the_pods_of_an_expired_job_go_with_it(tmp_path: Path) -> None:
    everything = ("ttl", "garbage", "jobs")
    async with a_house(tmp_path, *everything, script=lambda pod: 0) as house:
        key = await house.a_job("job", ttlSecondsAfterFinished=30, completions=3)
        await asyncio.sleep(20)
        assert (await house.get(key))["status"]["succeeded"] == 3
        await asyncio.sleep(30)
        assert await house.names(JOBS) == []
        assert await house.names(PODS) == []


async def test_a_job_with_an_owner_expires_all_the_same(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        owner = await house.a_job("owner")
        uid = (await house.get(owner))["metadata"]["uid"]
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": uid}
        await a_finished_job(
            house, metadata={"ownerReferences": [reference]}, ttlSecondsAfterFinished=5
        )
        await asyncio.sleep(6)
        assert await house.names(JOBS) == ["owner"]


async def test_a_clock_set_forward_is_noticed_within_the_minute(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await a_finished_job(house, ttlSecondsAfterFinished=3600)
        await asyncio.sleep(1)
        house.clock.set_by(timedelta(hours=2))
        await asyncio.sleep(61)
        assert not await house.exists(key)


async def test_a_clock_set_back_makes_the_job_wait_for_its_time(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await a_finished_job(house, ttlSecondsAfterFinished=3600)
        await asyncio.sleep(1)
        house.clock.set_by(timedelta(hours=-2))
        await asyncio.sleep(3600 + 7200 - 2)
        assert await house.exists(key)
        await asyncio.sleep(2)
        assert not await house.exists(key)


async def test_ttl_warns_once_a_minute_about_jobs_that_finished_in_the_future(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        return [message for message in messages if "finished in the future" in message]

    async with a_house(tmp_path, "ttl", "garbage") as house:
        await asyncio.sleep(10)
        await a_finished_job(house, "present", ttlSecondsAfterFinished=60)
        await asyncio.sleep(1)
        assert warnings() == []
        house.clock.set_by(timedelta(hours=2))
        ahead = house.ending()
        house.clock.set_by(timedelta(hours=-2))
        for name in ("first", "second"):
            key = await house.a_job(name, ttlSecondsAfterFinished=60)
            await house.patch(key, ahead, "status")
        await asyncio.sleep(1)
        assert warnings() == [
            "jobs.batch/default/first finished in the future, at 2026-01-01T14:00:11Z "
            "(check the clocks); keeping it until 2026-01-01T14:01:11Z"
        ]
        await asyncio.sleep(60)
        third = await house.a_job("third", ttlSecondsAfterFinished=60)
        await house.patch(third, ahead, "status")
        await asyncio.sleep(1)
        assert len(warnings()) == 2
        assert await house.names(JOBS) == ["first", "second", "third"]
        await asyncio.sleep(7200)
        assert await house.names(JOBS) == []


async def test_a_finished_pod_expires_by_its_own_ttl(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl") as house:
        await a_finished_pod(house, "soon", ttlSecondsAfterFinished=10)
        await a_finished_pod(house, "never")
        await house.a_pod("running", ttlSecondsAfterFinished=0)
        await asyncio.sleep(9)
        assert await house.names(PODS) == ["never", "running", "soon"]
        await asyncio.sleep(2)
        assert await house.names(PODS) == ["never", "running"]


@pytest.mark.parametrize(
    ("gate", "left"),
    [("TTLAfterFinished", ["job"]), ("TTLAfterFinishedPods", ["pod"])],
)
async def test_disabled_gate_keeps_expired_objects(
    tmp_path: Path, gate: str, left: list[str]
) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        await house.a_job("job", ttlSecondsAfterFinished=0)
        await house.a_pod("pod", ttlSecondsAfterFinished=0)
    gates = FeatureGates({gate: False})
    async with a_house(tmp_path, "ttl", "garbage", gates=gates) as house:
        await house.finish(Key(JOBS, "default", "job"))
        await house.patch(Key(PODS, "default", "pod"), {"status": {"phase": "Failed"}}, "status")
        await asyncio.sleep(3600)
        assert await house.names(JOBS) + await house.names(PODS) == left


async def test_objects_expired_during_downtime_are_deleted_at_start(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        await a_finished_job(house, "old", ttlSecondsAfterFinished=60)
        await a_finished_job(house, "kept", ttlSecondsAfterFinished=10**6)
        await asyncio.sleep(3600)
    async with a_house(tmp_path, "ttl", "garbage") as house:
        await asyncio.sleep(1)
        assert await house.names(JOBS) == ["kept"]
        assert house.ttl is not None
        assert len(house.ttl) == 1


async def test_a_backlog_is_deleted_without_holding_up_others(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        names = [f"old-{number}" for number in range(2000)]
        await house.many_finished_jobs(names, ttlSecondsAfterFinished=1)
        last = Key(JOBS, "default", names[-1])
        other = await house.create(
            "configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}},
        )
        await asyncio.sleep(60)
    async with a_house(tmp_path, "ttl", "garbage") as house:
        turns = 0
        while await house.exists(last):
            await house.patch(other, {"data": {"turns": str(turns)}})
            turns += 1
        assert turns >= 50, "at least one turn in forty deletions"
        await asyncio.sleep(1)
        assert await house.names(JOBS) == []


class CountingReads(LocalClient):
    """Client that counts the reads of single objects."""

    reads = 0

    async def get(self, key: Key) -> bytes:
        self.reads += 1
        return await super().get(key)


async def test_jobs_that_wait_are_not_looked_at_until_their_time(tmp_path: Path) -> None:
    clients: list[CountingReads] = []

    def counting(service: Service) -> CountingReads:
        clients.append(CountingReads(service))
        return clients[0]

    async with a_house(tmp_path, "ttl", client_of=counting) as house:
        await house.many_finished_jobs(
            [f"job-{number}" for number in range(500)], ttlSecondsAfterFinished=86400
        )
        await asyncio.sleep(86390)
        assert house.ttl is not None
        assert len(house.ttl) == 500
        assert clients[0].reads == 0
        await asyncio.sleep(20)
        assert clients[0].reads == 500


async def test_a_ttl_raised_at_the_last_moment_is_seen_by_the_final_look(tmp_path: Path) -> None:
    def late(service: Service) -> LateWatch:
        return LateWatch(service, JOBS, 0.5)

    async with a_house(tmp_path, "ttl", "garbage", client_of=late) as house:
        key = await a_finished_job(house, ttlSecondsAfterFinished=10)
        await asyncio.sleep(9.9)
        await house.patch(key, {"spec": {"ttlSecondsAfterFinished": 100}})
        await asyncio.sleep(80)
        assert await house.exists(key)
        await asyncio.sleep(20)
        assert not await house.exists(key)


async def test_job_without_finish_time_is_not_deleted(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await house.a_job("job", ttlSecondsAfterFinished=10)
        ending = house.ending()
        for condition in ending["status"]["conditions"]:
            del condition["lastTransitionTime"]
        await house.patch(key, ending, "status")
        await asyncio.sleep(3600)
        assert await house.exists(key)
        conditions = house.ending()["status"]["conditions"]
        await house.patch(key, {"status": {"conditions": conditions}}, "status")
        await asyncio.sleep(11)
        assert not await house.exists(key)


@pytest.mark.parametrize(("condition", "seconds"), [("Complete", 10), ("Failed", 100)])
async def test_a_ttl_by_outcome_counts_before_the_general_one(
    tmp_path: Path, condition: str, seconds: int
) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        key = await house.a_job("job", ttlSecondsAfterFinished=50)
        annotations = {
            "onejob.dev/ttl-seconds-after-success": "10",
            "onejob.dev/ttl-seconds-after-failure": "100",
        }
        await house.patch(key, {"metadata": {"annotations": annotations}})
        await house.finish(key, condition)
        await asyncio.sleep(seconds - 0.5)
        assert await house.exists(key)
        await asyncio.sleep(1)
        assert not await house.exists(key)


async def test_ttl_of_one_outcome_does_not_apply_to_other(tmp_path: Path) -> None:
    async with a_house(tmp_path, "ttl", "garbage") as house:
        for name, text in (("kept", "10"), ("unreadable", "soon")):
            key = await house.a_job(name)
            annotations = {"onejob.dev/ttl-seconds-after-success": text}
            await house.patch(key, {"metadata": {"annotations": annotations}})
            await house.finish(key, "Failed" if name == "kept" else "Complete")
            await asyncio.sleep(3600)
            assert await house.exists(key)
