"""Past and future times of a CronJob."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onejob.dashboard.fires import fires_of
from onejob.planning.cronjob.documents import SCHEDULED_AT_ANNOTATION
from onejob.wire.timestamps import rfc3339

NOW = datetime(2030, 6, 15, 12, 0, 30, tzinfo=UTC)


def a_cronjob(schedule: str, *, last: str = "", **spec: Any) -> dict[str, Any]:
    status = {"lastScheduleTime": last} if last else {}
    return {
        "metadata": {"name": "c", "creationTimestamp": "2030-06-15T10:00:00Z"},
        "spec": {"schedule": schedule, **spec},
        "status": status,
    }


def a_job(at: datetime, condition: str = "") -> dict[str, Any]:
    stamp = rfc3339(at)
    conditions = [{"type": condition, "status": "True", "lastTransitionTime": stamp}]
    return {
        "metadata": {
            "name": f"c-{int(at.timestamp()) // 60}",
            "annotations": {SCHEDULED_AT_ANNOTATION: stamp},
        },
        "spec": {},
        "status": {"conditions": conditions if condition else []},
    }


def found(cronjob: dict[str, Any], *jobs: dict[str, Any], events: Any = ()) -> dict[str, Any]:
    return fires_of(cronjob, jobs, events, NOW, local_zone="UTC")


def test_past_slots_are_listed_newest_first() -> None:
    jobs = a_job(NOW.replace(hour=11, second=0), "Failed"), a_job(NOW.replace(second=0))
    past = found(a_cronjob("0 * * * *"), *jobs)["past"]
    assert [(fire["job"], fire["state"]) for fire in past] == [
        (jobs[1]["metadata"]["name"], "Running"),
        (jobs[0]["metadata"]["name"], "Failed"),
    ]


def test_events_explain_slots_without_job() -> None:
    event = {
        "reason": "JobAlreadyActive",
        "message": "the one before still runs",
        "lastTimestamp": "2030-06-15T11:00:01Z",
    }
    (fire,) = found(a_cronjob("0 11 * * *"), events=[event])["past"]
    assert (fire["state"], fire["why"]) == ("Skipped", "the one before still runs")


def test_next_times_use_cronjob_time_zone() -> None:
    times = found(a_cronjob("30 2 * * *", timeZone="Europe/Berlin"))
    assert times["zone"] == "Europe/Berlin"
    assert times["coming"][0] == datetime(2030, 6, 16, 0, 30, tzinfo=UTC)
    assert times["coming"][1] - times["coming"][0] == timedelta(days=1)


def test_a_frequent_schedule_is_not_walked_from_its_beginning() -> None:
    cronjob = a_cronjob("* * * * *")
    cronjob["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    past = found(cronjob)["past"]
    assert len(past) == 60
    assert past[0]["at"] == NOW.replace(second=0)


@pytest.mark.parametrize(
    ("schedule", "days", "more"),
    [("* * * * *", 0.4, True), ("30 * * * *", 27.9, False), ("0 0 1 * *", 880, False)],
)
def test_next_times_are_limited_to_four_weeks_or_thirty(
    schedule: str, days: float, more: bool
) -> None:
    """A calendar would show no times on days that were not computed."""
    times = found(a_cronjob(schedule))
    assert times["coming"][-1] - NOW > timedelta(days=days)
    assert len(times["coming"]) <= 24 * 28
    assert times["moreComing"] is more


def test_truncated_history_is_indicated() -> None:
    cronjob = a_cronjob("* * * * *")
    cronjob["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    assert found(cronjob)["morePast"]
    assert not found(a_cronjob("0 11 * * *"))["morePast"]


@pytest.mark.parametrize("spec", [{"schedule": "nonsense"}, {"timeZone": "Mars/Base"}])
def test_a_schedule_that_cannot_be_read_has_no_times(spec: dict[str, Any]) -> None:
    cronjob = a_cronjob("0 * * * *")
    cronjob["spec"].update(spec)
    times = found(cronjob)
    assert (times["past"], times["coming"]) == ([], [])


def test_a_suspended_one_has_no_next_times() -> None:
    assert found(a_cronjob("0 * * * *", suspend=True))["coming"] == []
