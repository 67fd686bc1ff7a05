"""CronJob controller on the real store and API, in virtual time. It begins at noon."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Create, Delete, Op, Patch, Result, Written
from onejob.client.local import LocalClient
from onejob.informers.cache import Delta
from onejob.objects.cronjob import read_cronjob
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, JOBS, Key
from onejob.planning.cronjob.documents import SCHEDULED_AT_ANNOTATION, slot_of
from onejob.wire.errors import ApiError, Conflict, InsufficientStorage, InternalError
from tests import build
from tests.controllers.housekeeping import TEMPLATE, House, LateWatch, a_house

pytestmark = pytest.mark.virtual_time

NOON_MINUTES = 29454480  # of 2026-01-01T12:00Z since 1970


async def a_cronjob(house: House, name: str = "tick", **spec: Any) -> Key:
    template = {"metadata": {"labels": {"from": name}}, "spec": {"template": TEMPLATE}}
    return await house.create(CRONJOBS, build.a_cronjob(name, **{"jobTemplate": template, **spec}))


def job(minute: int, name: str = "tick") -> str:
    return f"{name}-{NOON_MINUTES + minute}"


async def test_each_minute_a_job_is_created_and_recorded(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house)
        await asyncio.sleep(150)
        assert await house.names(JOBS) == [job(1), job(2)]
        cronjob = await house.get(key)
        assert [active["name"] for active in cronjob["status"]["active"]] == [job(1), job(2)]
        assert cronjob["status"]["lastScheduleTime"] == "2026-01-01T12:02:00Z"
        made = await house.get(Key(JOBS, "default", job(1)))
        assert made["metadata"]["labels"] == {"from": "tick"}
        assert made["metadata"]["annotations"] == {
            "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T12:01:00Z"
        }
        assert made["metadata"]["ownerReferences"][0]["uid"] == cronjob["metadata"]["uid"]
        assert await house.reasons() == ["SuccessfulCreate"] * 2
        metrics = house.metrics
        assert metrics.cronjob_skew.value() == 2
        assert metrics.cronjob_active.value(namespace="default", cronjob="tick") == 2
        last = metrics.cronjob_last_schedule
        started_at = datetime(2026, 1, 1, 12, 2, tzinfo=UTC).timestamp()
        assert last.value(namespace="default", cronjob="tick") == started_at
        assert "last_successful_time{" not in house.metrics.exposition()
        await house.client.write(Delete(key))
        await asyncio.sleep(1)
        assert f"{last.name}{{" not in house.metrics.exposition()


async def test_status_changes_of_own_start_do_not_enqueue(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        assert house.cronjobs is not None
        key = await a_cronjob(house)
        await asyncio.sleep(70)
        assert await house.names(JOBS) == [job(1)]
        # A second sync would have noted that no slot is due any more.
        assert house.cronjobs.note(key) == ""
        await house.finish(Key(JOBS, "default", job(1)))
        await asyncio.sleep(1)
        assert house.cronjobs.note(key) == "no time of its schedule is due"


async def test_a_status_that_someone_else_wrote_is_looked_at(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house)
        await asyncio.sleep(70)
        await house.patch(key, {"status": {"active": None}}, "status")
        await asyncio.sleep(1)
        assert "UnexpectedJob" in await house.reasons()


async def test_finished_jobs_leave_the_active_list_and_history_is_bounded(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
        for minute in range(1, 8):
            await asyncio.sleep(61 if minute == 1 else 60)
            await house.finish(
                Key(JOBS, "default", job(minute)), "Failed" if minute % 2 else "Complete"
            )
        await asyncio.sleep(30)
        assert await house.names(JOBS) == [job(4), job(6), job(7)]
        status = (await house.get(key))["status"]
        assert "active" not in status
        assert status["lastSuccessfulTime"] == "2026-01-01T12:06:01Z"
        reasons = await house.reasons()
        assert reasons.count("SawCompletedJob") == 7
        assert reasons.count("SuccessfulDelete") == 4


async def test_history_limits_of_zero_still_record_the_last_success(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, successfulJobsHistoryLimit=0)
        await asyncio.sleep(61)
        await house.finish(Key(JOBS, "default", job(1)))
        await asyncio.sleep(1)
        assert await house.names(JOBS) == []
        assert (await house.get(key))["status"]["lastSuccessfulTime"] == "2026-01-01T12:01:01Z"


async def test_forbid_waits_for_the_terminal_condition_and_then_starts_the_missed_slot(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, concurrencyPolicy="Forbid")
        await asyncio.sleep(130)
        assert await house.names(JOBS) == [job(1)]
        assert "JobAlreadyActive" in await house.reasons()
        status = (await house.get(key))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T12:01:00Z"
        await house.finish(Key(JOBS, "default", job(1)))
        await asyncio.sleep(1)
        assert await house.names(JOBS) == [job(1), job(2)]


async def test_replace_deletes_the_running_job_first(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, concurrencyPolicy="Replace")
        await asyncio.sleep(190)
        assert await house.names(JOBS) == [job(3)]
        active = (await house.get(key))["status"]["active"]
        assert [reference["name"] for reference in active] == [job(3)]


async def test_while_suspended_nothing_starts_and_afterwards_only_the_latest_slot(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, suspend=True)
        await asyncio.sleep(600)
        assert await house.names(JOBS) == []
        await house.patch(key, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        assert await house.names(JOBS) == [job(10)]


async def test_a_slot_missed_by_more_than_the_deadline_passes_silently(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, schedule="0 * * * *", suspend=True, startingDeadlineSeconds=60)
        await asyncio.sleep(3600 + 300)
        await house.patch(key, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        assert await house.names(JOBS) == []
        assert await house.reasons() == []


async def test_an_edited_schedule_takes_effect_at_its_next_slot(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(630)
        await house.patch(key, {"spec": {"schedule": "*/20 * * * *"}})
        await asyncio.sleep(60)
        assert await house.names(JOBS) == []
        await asyncio.sleep(540)
        assert await house.names(JOBS) == [job(20)]


async def test_schedule_without_slots_records_event(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(1)
        await house.patch(key, {"spec": {"schedule": "0 0 31 2 *"}})
        await asyncio.sleep(60)
        assert await house.reasons() == ["InvalidSchedule"]


async def test_a_deleted_job_is_not_started_again_for_its_slot(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        await a_cronjob(house)
        await asyncio.sleep(61)
        await house.delete(Key(JOBS, "default", job(1)))
        await asyncio.sleep(30)
        assert await house.names(JOBS) == []
        assert "MissingJob" in await house.reasons()


async def test_a_strangers_job_of_the_slots_name_is_left_alone(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house)
        await house.a_job(job(1))
        await asyncio.sleep(90)
        status = (await house.get(key)).get("status", {})
        assert "lastScheduleTime" not in status
        await asyncio.sleep(3600)
        assert len(await house.names(JOBS)) > 1, "it looks again"


async def test_a_job_made_by_hand_is_unexpected_but_takes_part_in_history(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, schedule="0 0 1 1 *", successfulJobsHistoryLimit=0)
        uid = (await house.get(key))["metadata"]["uid"]
        reference = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "tick",
            "uid": uid,
            "controller": True,
        }
        manual = await house.a_job("by-hand", metadata={"ownerReferences": [reference]})
        await asyncio.sleep(1)
        assert "UnexpectedJob" in await house.reasons()
        assert "active" not in (await house.get(key)).get("status", {})
        await house.finish(manual)
        await asyncio.sleep(1)
        assert not await house.exists(manual)
        assert (await house.get(key))["status"]["lastSuccessfulTime"]


async def test_many_cronjobs_on_the_same_minute_all_run(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        for number in range(1000):
            await a_cronjob(house, f"cj-{number}")
        await asyncio.sleep(70)
        assert len(await house.names(JOBS)) == 1000
        assert house.metrics.cronjob_skew.value() == 1000


@pytest.mark.parametrize("jump", [timedelta(hours=3), timedelta(hours=-3)])
async def test_a_clock_that_is_set_is_noticed_and_never_doubles_a_slot(
    tmp_path: Path, jump: timedelta
) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(3660)
        assert await house.names(JOBS) == [job(60)]
        house.clock.set_by(jump)
        await asyncio.sleep(120)
        forward = jump > timedelta()
        assert await house.names(JOBS) == [job(60), *([job(240)] if forward else [])]
        await asyncio.sleep(4 * 3600)
        # Set back, the clock shows 11:00 and 12:00 once more; the slot of 13:00 has its Job.
        expected = [60, 240, 300, 360, 420, 480] if forward else [-60, 0, 60, 120]
        assert await house.names(JOBS) == [job(minute) for minute in expected]


async def test_a_restart_between_creation_and_record_does_not_create_twice(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        key = await a_cronjob(house)
        uid = (await house.get(key))["metadata"]["uid"]
        reference = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "tick",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        await house.a_job(job(1), metadata={"ownerReferences": [reference]})
    async with a_house(tmp_path, "cronjobs") as house:
        await asyncio.sleep(80)
        assert await house.names(JOBS) == [job(1)]
        status = (await house.get(key))["status"]
        assert [reference["name"] for reference in status["active"]] == [job(1)]
        assert status["lastScheduleTime"] == "2026-01-01T12:01:00Z"
        assert "SuccessfulCreate" not in await house.reasons()


class FailingClient(LateWatch):
    """Client that refuses CronJob statuses, or loses responses and shows Jobs late.

    The lost responses are those to creations of Jobs.
    """

    def __init__(self, service: Service, *, refuses_status: bool, loses_answers: bool) -> None:
        super().__init__(service, JOBS, 600 if loses_answers else 0)
        self._refuses_status = refuses_status
        self._loses_answers = loses_answers
        self.failing = True

    async def write(self, op: Op) -> Written:
        status = isinstance(op, Patch) and op.key.resource == CRONJOBS
        creation = isinstance(op, Create) and op.resource == JOBS
        if self.failing and self._refuses_status and status:
            raise InternalError("the status is refused")
        written = await super().write(op)
        if self.failing and self._loses_answers and creation:
            raise InternalError("the answer is lost")
        return written


@pytest.mark.parametrize(
    ("refuses_status", "loses_answers"), [(True, False), (False, True), (True, True)]
)
async def test_forbid_counts_a_job_that_the_status_does_not_list(
    tmp_path: Path, refuses_status: bool, loses_answers: bool
) -> None:
    """At the next sync another slot is due, whose Job has another name."""
    clients: list[FailingClient] = []

    def losing(service: Service) -> FailingClient:
        client = FailingClient(service, refuses_status=refuses_status, loses_answers=loses_answers)
        clients.append(client)
        return client

    async with a_house(tmp_path, "cronjobs", client_of=losing) as house:
        key = await a_cronjob(house, concurrencyPolicy="Forbid")
        await asyncio.sleep(60.5)
        house.clock.set_by(timedelta(minutes=5))
        await asyncio.sleep(90)
        clients[0].failing = False
        await asyncio.sleep(1200)
        assert await house.names(JOBS) == [job(1)]
        status = (await house.get(key))["status"]
        assert [reference["name"] for reference in status["active"]] == [job(1)]
        assert status["lastScheduleTime"] == "2026-01-01T12:01:00Z"


def _refusing_statuses() -> tuple[list[FailingClient], Callable[[Service], FailingClient]]:
    clients: list[FailingClient] = []

    def failing(service: Service) -> FailingClient:
        clients.append(FailingClient(service, refuses_status=True, loses_answers=False))
        return clients[0]

    return clients, failing


async def test_a_slot_is_not_run_again_because_its_finished_job_is_too_many(tmp_path: Path) -> None:
    """The Job is the only evidence that the slot was run until the status records it."""
    clients, failing = _refusing_statuses()
    async with a_house(tmp_path, "cronjobs", client_of=failing) as house:
        key = await a_cronjob(house, schedule="0 * * * *", failedJobsHistoryLimit=0)
        await asyncio.sleep(3601)
        await house.finish(Key(JOBS, "default", job(60)), "Failed")
        await asyncio.sleep(60)
        assert await house.names(JOBS) == [job(60)]
        clients[0].failing = False
        await asyncio.sleep(1000)
        assert await house.names(JOBS) == []
        status = (await house.get(key))["status"]
        assert status == {"lastScheduleTime": "2026-01-01T13:00:00Z"}
        assert (await house.reasons()).count("SuccessfulCreate") == 1


async def test_a_slot_is_not_run_again_because_its_job_was_deleted_before_it_was_recorded(
    tmp_path: Path,
) -> None:
    """Only the controller's memory still has that Job."""
    clients, failing = _refusing_statuses()
    async with a_house(tmp_path, "cronjobs", client_of=failing) as house:
        key = await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(3601)
        assert await house.names(JOBS) == [job(60)]
        await house.client.write(Delete(Key(JOBS, "default", job(60)), "Background"))
        await asyncio.sleep(60)
        clients[0].failing = False
        await asyncio.sleep(1000)
        assert await house.names(JOBS) == []
        status = (await house.get(key))["status"]
        assert status == {"lastScheduleTime": "2026-01-01T13:00:00Z"}
        assert (await house.reasons()).count("SuccessfulCreate") == 1


class LosesOneAnswer(LocalClient):
    """Client that loses the response to one creation of a Job."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.losing = False
        self.lost = asyncio.Event()

    async def write(self, op: Op) -> Written:
        written = await super().write(op)
        if self.losing and isinstance(op, Create) and op.resource == JOBS:
            self.losing = False
            self.lost.set()
            raise InternalError("the answer is lost")
        return written


@pytest.mark.parametrize("set_back", [False, True])
@pytest.mark.parametrize("how", ["too many", "deleted"])
async def test_slot_is_not_restarted_if_its_job_was_deleted_unseen(
    tmp_path: Path, how: str, set_back: bool
) -> None:
    """Its creation was not answered, but the watch showed the Job.

    If the clock was set back, it looks like a recorded one: its slot is before that of the last
    run.
    """
    clients: list[LosesOneAnswer] = []

    def losing(service: Service) -> LosesOneAnswer:
        clients.append(LosesOneAnswer(service))
        return clients[0]

    async with a_house(tmp_path, "cronjobs", client_of=losing) as house:
        key = await a_cronjob(house, successfulJobsHistoryLimit=0 if how == "too many" else 9)
        await asyncio.sleep(601)
        if set_back:
            house.clock.set_by(timedelta(minutes=-30))
        clients[0].losing = True
        before = set(await house.names(JOBS))
        await clients[0].lost.wait()
        (name,) = set(await house.names(JOBS)) - before
        new = Key(JOBS, "default", name)
        slot = (await house.get(new))["metadata"]["annotations"][SCHEDULED_AT_ANNOTATION]
        if how == "deleted":
            await house.client.write(Delete(new, "Background"))
        else:
            await house.finish(new)
        await asyncio.sleep(30)
        assert name not in await house.names(JOBS)
        assert (await house.get(key))["status"]["lastScheduleTime"] == slot


@pytest.mark.parametrize("when", ["before the restart", "after the restart"])
async def test_cronjob_runs_a_slot_once_when_the_clock_is_set_back_around_a_crash(
    tmp_path: Path, when: str
) -> None:
    """The status of a run could not be written, and its slot is before that of the last run.

    Only the Job shows that it ran, until it is recorded; then the Job may be deleted.
    """
    clients: list[FailingClient] = []

    def failing(service: Service) -> FailingClient:
        clients.append(FailingClient(service, refuses_status=True, loses_answers=False))
        clients[-1].failing = False
        return clients[-1]

    async with a_house(tmp_path, "cronjobs", client_of=failing) as house:
        cronjob = await a_cronjob(house, schedule="*/10 * * * *")
        await asyncio.sleep(1201)
        for name in await house.names(JOBS):
            await house.delete(Key(JOBS, "default", name))
        house.clock.set_by(timedelta(minutes=-15))
        clients[0].failing = True
        await asyncio.sleep(600)
        (name,) = await house.names(JOBS)
        assert name == job(10)
        status = (await house.get(cronjob))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T12:20:00Z"
        key = Key(JOBS, "default", name)
        if when == "before the restart":
            await house.finish(key)
    async with a_house(tmp_path, "cronjobs") as house:
        # The clock of a house begins at noon plus the time of the loop; continue before it.
        house.clock.set_by(timedelta(minutes=-15))
        await asyncio.sleep(1)
        if when == "after the restart":
            await house.finish(key)
        await asyncio.sleep(60)
        status = (await house.get(cronjob))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T12:10:00Z"
        await house.delete(key)
        house.clock.set_by(timedelta(minutes=-8))
        await asyncio.sleep(540)
        assert await house.names(JOBS) == []
        assert (await house.reasons()).count("SuccessfulCreate") == 3


@pytest.mark.parametrize("policy", ["Allow", "Replace"])
async def test_cronjob_commits_a_job_together_with_the_status_that_records_it(
    tmp_path: Path, policy: str
) -> None:
    """Whenever a Job can be read, its slot is recorded: no crash can separate them."""
    seen: list[bool] = []
    async with a_house(tmp_path, "cronjobs", staged=True) as house:
        key = await a_cronjob(house, concurrencyPolicy=policy)

        def recorded(deltas: Sequence[Delta[Job]]) -> None:
            stored = house.cluster.service.store.get(key)
            assert stored is not None
            status = read_cronjob(stored.value).status
            seen.extend(
                str(status.last_schedule_time)
                == str(slot_of(read_cronjob(stored.value), delta.new))
                and delta.new.metadata.uid in {ref.uid for ref in status.active}
                for delta in deltas
                if delta.old is None and delta.new is not None
            )

        house.informers.jobs.on_change(recorded)
        await asyncio.sleep(181)
        assert len(await house.names(JOBS)) == (3 if policy == "Allow" else 1)
    assert seen == [True, True, True]


class RefusesStatus(LocalClient):
    """Client that refuses the first staged statuses of CronJobs."""

    refusals = 3

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        (op,) = ops
        if isinstance(op, Patch) and b'"status"' in op.body and self.refusals:
            self.refusals -= 1
            return [Conflict("changed meanwhile")]
        return super().stage_many(ops)


async def test_cronjob_keeps_a_staged_job_whose_status_is_refused(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs", staged=True, client_of=RefusesStatus) as house:
        key = await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(3660)
        assert await house.names(JOBS) == [job(60)]
        status = (await house.get(key))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T13:00:00Z"
        assert [reference["name"] for reference in status["active"]] == [job(60)]
        assert (await house.reasons()).count("SuccessfulCreate") == 1


async def test_cronjob_creates_no_job_whose_slot_it_cannot_record(tmp_path: Path) -> None:
    """Regression: a CronJob was changed, which the controller had not seen yet when a slot was due.

    The status of the Job was refused. After a crash, and once the Job was deleted, the slot ran
    again.
    """

    def late(service: Service) -> LateWatch:
        return LateWatch(service, CRONJOBS, 10)

    async with a_house(tmp_path, "cronjobs", staged=True, client_of=late) as house:
        key = await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(3599)
        label = msgspec.json.encode({"metadata": {"labels": {"a": "b"}}})
        await house.client.write(Patch(key, label))
        await asyncio.sleep(5)
        assert await house.names(JOBS) == []
        await asyncio.sleep(30)
        assert await house.names(JOBS) == [job(60)]
        status = (await house.get(key))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T13:00:00Z"
        assert "FailedCreate" not in await house.reasons()


class RollsBack(LocalClient):
    """Client that rolls back the first commit with a Job, with all writes staged with it."""

    staged_job = False
    lost = False

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        (op,) = ops
        self.staged_job |= isinstance(op, Create) and op.resource == JOBS
        if not self.staged_job or self.lost:
            return super().stage_many(ops)
        document = with_uid(op.document) if isinstance(op, Create) else b"{}"
        return [Written(10**9, document)]

    async def durable(self, revision: int) -> None:
        if revision >= 10**9 and not self.lost:
            self.lost = True
            raise InsufficientStorage("the disk is full")
        await super().durable(revision)


def with_uid(document: bytes) -> bytes:
    body = msgspec.json.decode(document)
    body["metadata"] |= {"uid": "never-stored", "namespace": "default"}
    return msgspec.json.encode(body)


async def test_cronjob_runs_a_slot_whose_commit_was_rolled_back(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs", staged=True, client_of=RollsBack) as house:
        key = await a_cronjob(house, schedule="0 * * * *")
        await asyncio.sleep(3660)
        assert await house.names(JOBS) == [job(60)]
        status = (await house.get(key))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T13:00:00Z"
        uid = (await house.get(Key(JOBS, "default", job(60))))["metadata"]["uid"]
        assert [reference["uid"] for reference in status["active"]] == [uid]


class CountsRefusals(LateWatch):
    """Client that delivers CronJobs late, and counts the refused writes."""

    refusals = 0

    async def write(self, op: Op) -> Written:
        try:
            return await super().write(op)
        except ApiError:
            self.refusals += 1
            raise


async def test_a_sync_waits_for_its_own_writes_instead_of_conflicting_with_them(
    tmp_path: Path,
) -> None:
    clients: list[CountsRefusals] = []

    def late(service: Service) -> CountsRefusals:
        clients.append(CountsRefusals(service, CRONJOBS, 0.2))
        return clients[0]

    async with a_house(tmp_path, "cronjobs", client_of=late) as house:
        key = await a_cronjob(house)
        await asyncio.sleep(60.35)
        await house.finish(Key(JOBS, "default", job(1)))
        await asyncio.sleep(1)
        assert "active" not in (await house.get(key))["status"]
        assert clients[0].refusals == 0
