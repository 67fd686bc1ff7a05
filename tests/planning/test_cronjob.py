"""CronJob planner: due slots, obstacles and status. Times are 2026-01-01 unless stated."""

import msgspec
import pytest
from msgspec.structs import replace

from onejob.objects.cronjob import CronJob, ObjectReference
from onejob.objects.job import Job, read_job
from onejob.planning.cronjob.documents import (
    SCHEDULED_AT_ANNOTATION,
    STARTED_FROM_ANNOTATION,
    job_document,
    status_patch,
)
from onejob.planning.cronjob.planner import (
    Created,
    Existed,
    NotCreated,
    NotReplaced,
    StartPlan,
    _obstacle,
    plan_start,
    reschedule,
    settle,
)
from onejob.planning.cronjob.slots import is_too_late
from onejob.planning.cronjob.status import (
    Deleted,
    needs_reread,
    plan_history,
    record_slots,
    update_status,
)
from onejob.planning.future_times import NO_FUTURE_TIMES
from onejob.planning.job.plan import Event
from tests.planning.cronjob_support import a_cronjob, a_job, at, stamp


def plan_at(
    now: str, cronjob: CronJob, *jobs: Job, missing: frozenset[str] = frozenset()
) -> StartPlan:
    return plan_start(update_status(cronjob, None, jobs), missing, at(now))


def reasons(events: tuple[Event, ...]) -> list[str]:
    return [event.reason for event in events]


@pytest.mark.parametrize(
    ("cronjob", "now", "slot"),
    [
        (a_cronjob(), "09:59:59", None),
        (a_cronjob(), "10:00", "10:00"),
        (a_cronjob(), "13:10", "13:00"),  # of several missed slots only the latest
        (a_cronjob(last="10:00"), "10:30", None),
        (a_cronjob(last="11:00"), "10:30", None),  # the clock was set back
        (a_cronjob(startingDeadlineSeconds=600), "10:09", "10:00"),
        (a_cronjob(startingDeadlineSeconds=600), "10:11", None),  # silently: too late
        (a_cronjob(startingDeadlineSeconds=0), "10:00", None),
        (a_cronjob("0 10 * * 1-5", created="11:00"), "2026-01-02T10:01Z", "2026-01-02T10:00Z"),
        (a_cronjob("0 10 * * 1-5", created="11:00"), "2026-01-04T10:01Z", "2026-01-02T10:00Z"),
        (a_cronjob("@every 90s", created="09:00:10"), "09:01:39", None),
        (a_cronjob("@every 90s", created="09:00:10"), "09:01:40", "09:01:40"),
        (a_cronjob("@every 90s", created="09:00", last="09:02:10"), "09:03:41", "09:03:40"),
        (a_cronjob(suspend=True), "10:00", None),
        (a_cronjob(deleting=True), "10:00", None),
        (a_cronjob(startingDeadlineSeconds=2**62), "10:00", "10:00"),
    ],
)  # fmt: skip
def test_the_latest_due_slot_is_started(cronjob: CronJob, now: str, slot: str | None) -> None:
    start = plan_at(now, cronjob).start
    assert (start.slot if start else None) == (at(slot) if slot else None)


@pytest.mark.parametrize(
    ("cronjob", "now", "seconds"),
    [
        (a_cronjob(), "09:59", 60.1),
        (a_cronjob(last="10:00"), "10:30", 1800.1),
        (a_cronjob("@every 7m", last="10:00"), "10:01", 360.1),
        (a_cronjob(startingDeadlineSeconds=10), "10:00:30", 3570.1),
        (a_cronjob(suspend=True), "10:00", None),
        (a_cronjob("0 0 31 2 *"), "10:00", None),
    ],
)
def test_with_nothing_to_start_it_looks_again_just_after_the_next_slot(
    cronjob: CronJob, now: str, seconds: float | None
) -> None:
    plan = plan_at(now, cronjob)
    assert plan.start is None
    assert settle(plan).look_again_seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("cronjob", "now", "expected"),
    [
        (a_cronjob("nonsense"), "10:00", ["UnparseableSchedule"]),
        (a_cronjob("0 0 31 2 *"), "10:00", ["InvalidSchedule"]),
        (a_cronjob(timeZone="Moon/Base"), "10:00", ["UnknownTimeZone"]),
        (a_cronjob("TZ=Asia/Tokyo 0 * * * *"), "09:59", ["UnsupportedSchedule"]),
        (a_cronjob("TZ=UTC"), "09:59", ["UnsupportedSchedule", "UnparseableSchedule"]),
        (a_cronjob("* * * * *", created="00:00"), "01:41:30", ["TooManyMissedTimes"]),
        (a_cronjob("* * * * *", created="00:00"), "01:39:30", []),
        (a_cronjob(concurrencyPolicy="Forbid", active=("tick-1",)), "10:00", ["JobAlreadyActive"]),
        (a_cronjob(suspend=True, timeZone="Moon/Base"), "10:00", ["UnknownTimeZone"]),
    ],
)
def test_schedule_problems_record_events(cronjob: CronJob, now: str, expected: list[str]) -> None:
    assert reasons(plan_at(now, cronjob).events) == expected


def test_a_slot_is_never_started_twice() -> None:
    name = f"tick-{int(at('10:00').timestamp()) // 60}"
    assert plan_at("10:01", a_cronjob(last="09:00", active=(name,))).start is None
    assert plan_at("10:01", a_cronjob("0 * * * *", last="10:00")).start is None


def test_obstacle_names_the_slot_that_was_run_last() -> None:
    """Upstream's check (syncCronJob).

    `due_slot` returns only slots after lastScheduleTime, so the check is a second line of defence
    and is called directly.
    """
    cronjob = a_cronjob(last="10:00")
    obstacle = _obstacle(cronjob, cronjob.status, at("10:00"), at("10:01"))
    assert obstacle is not None
    assert obstacle.note.startswith("the time that is due is already started as tick-")
    assert _obstacle(cronjob, cronjob.status, at("11:00"), at("11:01")) is None


def test_a_slot_older_than_the_deadline_is_too_late() -> None:
    cronjob = a_cronjob(startingDeadlineSeconds=60)
    assert not is_too_late(cronjob, at("10:00"), at("10:01"))
    assert is_too_late(cronjob, at("10:00"), at("10:01:01"))
    assert not is_too_late(a_cronjob(), at("10:00"), at("23:00"))


def test_forbid_waits_for_the_end_of_the_previous_job_and_then_starts_late() -> None:
    cronjob = a_cronjob(concurrencyPolicy="Forbid", last="09:00", active=("a",))
    waiting = plan_at("10:00", cronjob, a_job("a"))
    assert waiting.start is None
    assert settle(waiting).status is None  # lastScheduleTime is not advanced
    late = plan_at("10:20", cronjob, a_job("a", "Complete", completed="10:19"))
    assert late.start is not None
    assert late.start.slot == at("10:00")


def test_replace_names_the_active_jobs_to_remove_first() -> None:
    cronjob = a_cronjob(concurrencyPolicy="Replace", last="09:00", active=("a", "b"))
    plan = plan_at("10:00", cronjob, a_job("a"), a_job("b"))
    assert plan.start is not None
    assert [reference.name for reference in plan.start.replaces] == ["a", "b"]
    replaced = (Deleted("a", "uid-a"), Deleted("b", "uid-b"))
    end = settle(plan, replaced, Created(a_job("new")))
    assert reasons(end.events) == ["SuccessfulDelete", "SuccessfulDelete", "SuccessfulCreate"]
    assert end.status is not None
    assert [reference.name for reference in end.status.active] == ["new"]


def test_partial_replacement_records_completed_steps() -> None:
    cronjob = a_cronjob(concurrencyPolicy="Replace", last="09:00", active=("a", "b"))
    plan = plan_at("10:00", cronjob, a_job("a"), a_job("b"))
    end = settle(plan, (Deleted("a", "uid-a"),), NotReplaced("no answer", lookup=True))
    assert end.error == "no answer"
    assert end.events[-1] == Event("Warning", "FailedGet", "Get job: no answer")
    assert end.status is not None
    assert [reference.name for reference in end.status.active] == ["b"]
    assert end.status.last_schedule_time == at("09:00")


def test_a_started_job_is_recorded() -> None:
    plan = plan_at("10:00:02", a_cronjob())
    assert plan.start is not None
    job = read_job(
        msgspec.json.encode(
            {
                "metadata": {
                    "name": plan.start.name,
                    "namespace": "default",
                    "uid": "u",
                    "resourceVersion": "12",
                    "creationTimestamp": stamp("10:00:02"),
                }
            }
        )
    )
    end = settle(plan, (), Created(job))
    assert end.status is not None
    assert end.status.last_schedule_time == at("10:00")
    assert end.status.active == (
        ObjectReference(
            api_version="batch/v1",
            kind="Job",
            name=plan.start.name,
            namespace="default",
            uid="u",
            resource_version="12",
        ),
    )
    assert end.look_again_seconds == pytest.approx(3598.1)
    assert end.skew_seconds == 2.0


@pytest.mark.parametrize(
    ("job", "recorded"),
    [
        (a_job("x"), True),  # made by an earlier attempt whose status write failed
        (a_job("x", owner="somebody"), False),
        (a_job("x", owner=None), False),
    ],
)
def test_a_job_that_exists_already_is_recorded_only_if_it_is_ours(job: Job, recorded: bool) -> None:
    end = settle(plan_at("10:00", a_cronjob()), (), Existed(job))
    assert (end.status is not None) is recorded
    assert end.events == ()
    assert end.skew_seconds is None


def test_settle_records_nothing_when_the_existing_job_is_listed_as_active() -> None:
    cronjob = a_cronjob(active=("x",))
    end = settle(plan_at("10:00", cronjob, a_job("x")), (), Existed(a_job("x")))
    assert (end.status, end.events, end.look_again_seconds) == (None, (), None)


def test_refused_creation_is_reported_unless_namespace_terminates() -> None:
    plan = plan_at("10:00", a_cronjob())
    settled = settle(plan, (), NotCreated("quota"))
    assert settled.events == (Event("Warning", "FailedCreate", "Error creating job: quota"),)
    silent = settle(plan, (), NotCreated("terminating", silent=True))
    assert silent.events == ()
    assert settled.error == "quota"
    assert silent.error == "terminating"
    assert settled.status is None


def test_completion_counts_only_with_the_complete_condition() -> None:
    jobs = (
        a_job("unfinished", completed="10:40"),
        a_job("failed", "Failed", completed="10:30"),
        a_job("done", "Complete", completed="10:20"),
        a_job("earlier", "Complete", completed="10:10"),
    )
    current = update_status(a_cronjob(active=("unfinished",)), None, jobs)
    assert current.status.last_successful_time == at("10:20")
    assert current.changed


def test_an_older_success_does_not_set_the_time_back() -> None:
    cronjob = a_cronjob(last_success="10:30")
    current = update_status(cronjob, None, (a_job("done", "Complete", completed="10:20"),))
    assert not current.changed
    assert current.status == cronjob.status


def test_finished_jobs_leave_the_active_list() -> None:
    cronjob = a_cronjob(active=("a", "b", "c"))
    jobs = (a_job("a", "Complete", completed="10:00"), a_job("b", "Failed"), a_job("c"))
    current = update_status(cronjob, None, jobs)
    assert [event.message for event in current.events] == [
        "Saw completed job: a, condition: Complete",
        "Saw completed job: b, condition: Failed",
    ]
    assert [reference.name for reference in current.status.active] == ["c"]
    assert current.unseen == ()


def test_a_running_job_that_is_not_listed_is_unexpected_unless_a_newer_cronjob_lists_it() -> None:
    cached, live = a_cronjob(last="09:00"), a_cronjob(last="10:00", active=("a",))
    jobs = (a_job("a"),)
    assert needs_reread(cached, jobs)
    assert not needs_reread(live, jobs)
    unexpected = update_status(cached, cached, jobs)
    assert reasons(unexpected.events) == ["UnexpectedJob"]
    assert unexpected.status.active == ()
    assert not unexpected.changed
    informed = update_status(cached, live, jobs)
    assert informed.events == ()
    assert informed.cronjob is live


def of_slot(slot: str, *, name: str = "", annotation: str = "", deleting: bool = False) -> Job:
    """Return a running Job as the CronJob creates it for a slot."""
    document = msgspec.json.decode(job_document(a_cronjob(), at(slot)))
    metadata = document["metadata"]
    metadata |= {"namespace": "default", "uid": "made"}
    if name:
        metadata["name"] = name
    if annotation:
        metadata["annotations"] = {SCHEDULED_AT_ANNOTATION: annotation}
    if deleting:
        metadata["deletionTimestamp"] = stamp("11:00")
    return read_job(msgspec.json.encode(document))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, "10:00"),
        ("09:00", "10:00"),
        ("11:00", "11:00"),
        ("14:00", "10:00"),  # run before the clock was set back
    ],
)
def test_a_job_that_it_started_and_forgot_is_active(last: str | None, expected: str) -> None:
    """The status was not written after the creation: later slots must take the Job into account."""
    forgetful = a_cronjob(last=last, concurrencyPolicy="Forbid")
    jobs = (of_slot("10:00"),)
    current = record_slots(update_status(forgetful, forgetful, jobs), jobs, at("12:00"))
    assert current.changed
    assert reasons(current.events) == ["UnexpectedJob"]
    assert [reference.uid for reference in current.status.active] == ["made"]
    assert current.status.last_schedule_time == at(expected)
    plan = plan_start(current, frozenset(), at("12:00"))
    assert plan.start is None
    assert reasons(plan.events) == ["JobAlreadyActive"]


@pytest.mark.parametrize(
    ("policy", "job"),
    [
        ("Forbid", of_slot("10:00", name="by-hand")),
        ("Forbid", of_slot("10:00", annotation="nonsense")),
        ("Forbid", of_slot("10:00", annotation="2026-01-01T10:00:00")),
        ("Forbid", of_slot("10:00", annotation="2026-01-01T10:07:00Z")),
        # It was removed from the list when it was replaced.
        ("Replace", of_slot("10:00", deleting=True)),
    ],
    ids=["another name", "no time", "no time zone", "another time", "being replaced"],
)
def test_other_jobs_that_are_not_listed_are_not_active(policy: str, job: Job) -> None:
    cronjob = a_cronjob(concurrencyPolicy=policy)
    current = update_status(cronjob, cronjob, (job,))
    assert current.status == cronjob.status
    assert reasons(current.events) == ["UnexpectedJob"]


@pytest.mark.parametrize(
    ("last", "now", "recorded"),
    [
        (None, "12:30", "10:00"),
        ("09:00", "12:30", "10:00"),
        ("10:00", "12:30", None),
        ("11:00", "12:30", None),
        ("08:00", "09:00", None),  # run before the clock was set back
    ],
)
def test_a_finished_job_stays_until_its_slot_is_recorded(
    last: str | None, now: str, recorded: str | None
) -> None:
    cronjob = a_cronjob(last=last, failedJobsHistoryLimit=0)
    done = replace(of_slot("10:00"), status=a_job("done", "Failed").status)
    assert plan_history(cronjob, (done,), at(now)) == (() if recorded else (done,))
    listed = update_status(cronjob, None, (done,))
    current = record_slots(listed, (done,), at(now))
    assert (current is not listed) == current.changed == bool(recorded)
    expected = at(recorded) if recorded else cronjob.status.last_schedule_time
    assert current.status.last_schedule_time == expected
    assert current.status.active == ()


@pytest.mark.parametrize(("version", "recorded"), [("7", True), ("8", False)])
def test_record_slots_takes_a_job_started_while_the_last_run_lay_ahead(
    version: str, recorded: bool
) -> None:
    """Its slot is before lastScheduleTime.

    The result depends on whether the CronJob was written since.
    """
    cronjob = a_cronjob(last="14:00", failedJobsHistoryLimit=0)
    known = NO_FUTURE_TIMES.after((at("14:00"),), at("09:30"))
    plan = plan_start(update_status(cronjob, None, ()), frozenset(), at("10:00"), known=known)
    assert plan.start is not None
    started = read_job(plan.start.document)
    job = replace(started, status=a_job("x", "Failed").status)
    metadata = replace(cronjob.metadata, resource_version=version)
    cronjob = replace(cronjob, metadata=metadata)
    assert plan_history(cronjob, (job,), at("10:30")) == (() if recorded else (job,))
    current = record_slots(update_status(cronjob, None, (job,)), (job,), at("10:30"))
    assert current.status.last_schedule_time == at("10:00" if recorded else "14:00")


def test_job_document_names_the_cronjob_version_only_when_the_last_run_lies_ahead() -> None:
    ordinary = plan_at("10:00", a_cronjob(last="09:00")).start
    assert ordinary is not None
    assert STARTED_FROM_ANNOTATION not in read_job(ordinary.document).metadata.annotations


@pytest.mark.parametrize(
    ("last", "started", "expected"),
    [
        (None, "10:00", "10:00"),
        ("11:00", "10:00", "11:00"),
        ("14:00", "10:00", "10:00"),  # run before the clock was set back
        ("10:00", "13:00", "13:00"),  # both before: this one must not be run once more
    ],
)
def test_a_slot_whose_status_could_not_be_written_is_recorded(
    last: str | None, started: str, expected: str
) -> None:
    listed = update_status(a_cronjob(last=last), None, ())
    current = record_slots(listed, (), at("12:00"), at(started))
    assert current.status.last_schedule_time == at(expected)


def test_active_jobs_that_the_cache_lacks_are_looked_up_and_dropped_if_missing() -> None:
    current = update_status(a_cronjob(active=("a", "b")), None, ())
    assert [reference.name for reference in current.unseen] == ["a", "b"]
    plan = plan_start(current, frozenset({"uid-b"}), at("09:40"))
    assert [event.message for event in plan.current.events] == ["Active job went missing: b"]
    end = settle(plan)
    assert end.status is not None
    assert [reference.name for reference in end.status.active] == ["a"]


def test_history_keeps_the_newest_of_each_outcome() -> None:
    jobs = (
        a_job("ok-3", "Complete", started="03:00"),
        a_job("ok-1", "Complete", started="01:00"),
        a_job("ok-2", "Complete", started="02:00"),
        a_job("bad-2", "Failed", started="02:00"),
        a_job("bad-1", "Failed", started="01:00"),
        a_job("running", started="00:30"),
    )
    limited = a_cronjob(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    assert [job.metadata.name for job in plan_history(limited, jobs, at("12:00"))] == [
        "ok-1",
        "ok-2",
        "bad-1",
        "bad-2",
    ]
    assert plan_history(a_cronjob(), jobs, at("12:00")) == ()


def test_history_orders_future_start_times_first() -> None:
    """It ran before the clock was set back."""
    jobs = (
        a_job("after-1", "Complete", started="01:00"),
        a_job("after-2", "Complete", started="02:00"),
        a_job("before-1", "Complete", started="08:00"),
        a_job("before-2", "Complete", started="09:00"),
    )
    limited = a_cronjob(successfulJobsHistoryLimit=1)
    assert [job.metadata.name for job in plan_history(limited, jobs, at("03:00"))] == [
        "before-1",
        "before-2",
        "after-1",
    ]


def test_a_job_that_is_being_deleted_is_not_deleted_again_but_still_counts() -> None:
    going = a_job("ok-1", "Complete", started="01:00")
    metadata = msgspec.structs.replace(going.metadata, deletion_timestamp=at("11:00"))
    jobs = (
        msgspec.structs.replace(going, metadata=metadata),
        a_job("ok-2", "Complete", started="02:00"),
        a_job("ok-3", "Complete", started="03:00"),
    )
    limited = a_cronjob(successfulJobsHistoryLimit=1)
    assert [job.metadata.name for job in plan_history(limited, jobs, at("12:00"))] == ["ok-2"]


def test_a_success_deleted_in_the_same_sync_still_counts() -> None:
    cronjob = a_cronjob(active=("a",), successfulJobsHistoryLimit=0)
    jobs = (a_job("a", "Complete", completed="10:00"),)
    current = update_status(cronjob, None, jobs, (Deleted("a", "uid-a"),))
    assert current.status.last_successful_time == at("10:00")
    assert current.status.active == ()
    assert reasons(current.events) == ["SuccessfulDelete"]


def test_failed_history_deletion_is_reported_and_changes_nothing() -> None:
    current = update_status(a_cronjob(), None, (), (Deleted("a", "uid-a", "no"),))
    assert current.events == (Event("Warning", "FailedDelete", "Deleted job: no"),)
    assert not current.changed


def test_the_job_of_a_slot() -> None:
    cronjob = a_cronjob(
        timeZone="Europe/Rome",
        jobTemplate={
            "metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}, "finalizers": ["f/f"]},
            "spec": {"parallelism": 2, "template": {}},
        },
    )
    document = msgspec.json.decode(job_document(cronjob, at("10:00")))
    assert document == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"tick-{int(at('10:00').timestamp()) // 60}",
            "labels": {"a": "b"},
            "annotations": {
                "x": "y",
                "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T11:00:00+01:00",
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": "tick",
                    "uid": "cj",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"parallelism": 2, "template": {}},
    }


def test_status_patch_has_revision_and_clears_empty_fields() -> None:
    cronjob = a_cronjob(active=("a",), last="09:00")
    current = update_status(cronjob, None, (a_job("a", "Failed"),))
    assert msgspec.json.decode(status_patch(cronjob, current.status)) == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "active": None,
            "lastScheduleTime": "2026-01-01T09:00:00Z",
            "lastSuccessfulTime": None,
        },
    }


@pytest.mark.parametrize(
    ("new", "seconds", "reason"),
    [
        (a_cronjob(suspend=True), 0.0, None),
        (a_cronjob("*/30 * * * *"), 60.1, None),
        (a_cronjob("0 * * * *", timeZone="Asia/Kathmandu"), 960.1, None),
        (a_cronjob("nonsense"), None, "UnParseableCronJobSchedule"),
        # Its sync reports that it has no time at all.
        (a_cronjob("0 0 31 2 *"), 0.0, None),
    ],
)
def test_an_edited_schedule_waits_for_its_next_slot(
    new: CronJob, seconds: float | None, reason: str | None
) -> None:
    delay, event = reschedule(a_cronjob(), new, at("09:59"))
    assert delay == (pytest.approx(seconds) if seconds is not None else None)
    assert (event.reason if event else None) == reason
