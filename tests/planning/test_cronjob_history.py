"""Outcome of CronJob slots, and jitter of starts. Times are 2026-01-01."""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job, read_job
from onejob.planning.cronjob.history import CronJobEvent, fires, last_slots, slots_between
from onejob.planning.cronjob.planner import Created, plan_start, reschedule, settle
from onejob.planning.cronjob.schedule import parse_schedule
from onejob.planning.cronjob.slots import start_delay
from onejob.planning.cronjob.status import update_status
from tests.planning.cronjob_support import a_cronjob, at, stamp

HOURLY = parse_schedule("0 * * * *", "UTC")


def with_jitter(cronjob: CronJob, seconds: str, uid: str = "cj") -> CronJob:
    metadata = replace(
        cronjob.metadata, uid=uid, annotations={"onejob.dev/jitter-seconds": seconds}
    )
    return replace(cronjob, metadata=metadata)


def a_job_of(slot: str, condition: str = "", message: str = "") -> Job:
    when = at(slot)
    status = {"startTime": stamp(slot)}
    document = {
        "metadata": {
            "name": f"tick-{int(when.timestamp()) // 60}",
            "namespace": "default",
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": stamp(slot)},
        },
        "status": status,
    }
    if condition:
        end = {"type": condition, "status": "True", "message": message}
        document["status"] = {**status, "conditions": [{**end, "lastTransitionTime": stamp(slot)}]}
    return read_job(msgspec.json.encode(document))


# --- jitter


def test_the_delay_is_the_same_each_time_and_within_its_bound() -> None:
    delays = {
        uid: start_delay(with_jitter(a_cronjob(), "600", uid)).total_seconds()
        for uid in map(str, range(200))
    }
    assert all(0 <= delay <= 600 for delay in delays.values())
    assert len(set(delays.values())) > 100, "they are spread"
    again = start_delay(with_jitter(a_cronjob(), "600", "7")).total_seconds()
    assert delays["7"] == again
    assert start_delay(a_cronjob()) == timedelta()
    assert start_delay(with_jitter(a_cronjob(), "soon")) == timedelta()


def test_a_cronjob_with_jitter_starts_each_slot_once_and_that_much_later() -> None:
    cronjob = with_jitter(a_cronjob(startingDeadlineSeconds=60), "600")
    delay = start_delay(cronjob)
    assert delay > timedelta(seconds=60), "longer than the deadline: it is no lateness"
    early = plan_start(update_status(cronjob, None, ()), frozenset(), at("10:00"))
    assert early.start is None
    assert early.look_again_seconds == delay.total_seconds() + 0.1
    due = plan_start(update_status(cronjob, None, ()), frozenset(), at("10:00") + delay)
    assert due.start is not None
    assert due.start.slot == at("10:00"), "its name and annotation are those of the slot"
    job = read_job(due.start.document)
    settled = settle(due, (), Created(job))
    assert settled.status is not None
    assert settled.status.last_schedule_time == at("10:00")
    assert settled.look_again_seconds == 3600.1
    again = plan_start(
        update_status(replace(cronjob, status=settled.status), None, (job,)),
        frozenset(),
        at("10:01") + delay,
    )
    assert again.start is None


def test_a_changed_schedule_is_looked_at_when_its_delayed_slot_comes() -> None:
    old = with_jitter(a_cronjob("0 * * * *"), "600")
    new = with_jitter(a_cronjob("30 * * * *"), "600")
    seconds, _ = reschedule(old, new, at("10:05"))
    assert seconds == 25 * 60 + 0.1 + start_delay(new).total_seconds()


# --- history


def test_each_slot_has_its_job_or_the_reason_why_there_is_none() -> None:
    cronjob = a_cronjob(created="06:30", last="11:00", concurrencyPolicy="Forbid")
    events = [
        CronJobEvent("JobAlreadyActive", "Not starting job", at("09:00:00"), at("09:00:01")),
        CronJobEvent("SuccessfulCreate", "Created job x", at("08:00"), at("08:00")),
    ]
    jobs = [a_job_of("08:00", "Failed", "boom"), a_job_of("10:00", "Complete"), a_job_of("11:00")]
    found = fires(cronjob, jobs, events, HOURLY, at("12:30"), 20)
    assert [(fire.slot, fire.state) for fire in found] == [
        (at("12:00"), "Missed"),
        (at("11:00"), "Running"),
        (at("10:00"), "Complete"),
        (at("09:00"), "Skipped"),
        (at("08:00"), "Failed"),
        (at("07:00"), "Unknown"),
    ]
    assert [fire.why for fire in found[3:5]] == ["Not starting job", "boom"]
    assert fires(cronjob, jobs, events, HOURLY, at("12:30"), 2) == found[:2]


def test_history_explains_missed_deadline_and_suspension() -> None:
    late = a_cronjob(created="09:30", startingDeadlineSeconds=60)
    (fire,) = fires(late, (), (), HOURLY, at("10:30"), 5)
    assert (fire.state, fire.why) == ("Missed", "startingDeadlineSeconds (60) had passed")
    suspended = a_cronjob(created="09:30", suspend=True)
    (fire,) = fires(suspended, (), (), HOURLY, at("10:30"), 5)
    assert (fire.state, fire.why) == ("Unknown", "the CronJob is suspended now")


def test_no_slot_is_after_a_deadline_that_is_longer_than_the_calendar() -> None:
    cronjob = a_cronjob(startingDeadlineSeconds=2**63 - 1)
    (fire,) = fires(cronjob, [], [], HOURLY, at("11:30"), 1)
    assert (fire.state, fire.why) == ("Missed", "no Job has been started for it yet")


def test_a_cronjob_whose_first_slot_is_yet_to_come_has_no_history() -> None:
    assert fires(a_cronjob(created="09:30"), (), (), HOURLY, at("09:40"), 5) == []


def test_slots_of_a_rare_schedule_are_found_however_far_back() -> None:
    yearly = parse_schedule("0 0 1 1 *", "UTC")
    found = last_slots(yearly, at("2000-06-01T00:00Z"), at("2026-06-01T00:00Z"), 3)
    assert [slot.year for slot in found] == [2024, 2025, 2026]
    assert last_slots(yearly, at("2026-03-01T00:00Z"), at("2026-06-01T00:00Z"), 3) == []


def test_a_span_has_its_end_and_not_its_beginning() -> None:
    assert list(slots_between(HOURLY, at("10:00"), at("12:00"))) == [at("11:00"), at("12:00")]
