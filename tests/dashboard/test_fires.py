"""When a CronJob fired and will fire."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onejob.dashboard.fires import SCHEDULED_FOR, fires_of

NOW = datetime(2030, 6, 15, 12, 0, 30, tzinfo=UTC)


def a_cronjob(schedule: str, *, last: str = "", **spec: Any) -> dict[str, Any]:
    status = {"lastScheduleTime": last} if last else {}
    return {
        "metadata": {"name": "c", "creationTimestamp": "2030-06-15T10:00:00Z"},
        "spec": {"schedule": schedule, **spec},
        "status": status,
    }


def a_job(name: str, at: str, condition: str = "") -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "lastTransitionTime": at}]
    return {
        "metadata": {"name": name, "annotations": {SCHEDULED_FOR: at}},
        "spec": {},
        "status": {"conditions": conditions if condition else []},
    }


def test_past_times_with_what_came_of_them_the_newest_first() -> None:
    jobs = [
        a_job("c-1", "2030-06-15T11:00:00Z", "Failed"),
        a_job("c-2", "2030-06-15T12:00:00Z"),
    ]
    found = fires_of(a_cronjob("0 * * * *"), jobs, NOW, local_zone="UTC")
    assert [(fire.job, fire.outcome) for fire in found["past"]] == [
        ("c-2", "Running"),
        ("c-1", "Failed"),
    ]


def test_next_times_are_those_of_its_zone() -> None:
    cronjob = a_cronjob("30 2 * * *", timeZone="Europe/Berlin")
    found = fires_of(cronjob, [], NOW, local_zone="UTC")
    assert found["zone"] == "Europe/Berlin"
    assert found["coming"][0] == datetime(2030, 6, 16, 0, 30, tzinfo=UTC)
    assert found["coming"][1] - found["coming"][0] == timedelta(days=1)


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        ({"suspend": True}, "skipped: the CronJob is suspended"),
        ({"startingDeadlineSeconds": 10}, "missed: not started within 10 s"),
        ({"concurrencyPolicy": "Forbid"}, "skipped: the Job before still ran"),
        ({}, "missed: the server was not running"),
    ],
)
def test_times_without_a_job_say_why(spec: dict[str, Any], note: str) -> None:
    found = fires_of(a_cronjob("0 11 * * *", **spec), [], NOW, local_zone="UTC")
    (fire,) = found["past"]
    assert fire.outcome == "none"
    assert fire.note.startswith(note)


def test_a_job_that_was_cleaned_up_is_not_called_missed() -> None:
    cronjob = a_cronjob("0 * * * *", last="2030-06-15T12:00:00Z")
    newest, older = fires_of(cronjob, [], NOW, local_zone="UTC")["past"]
    assert newest.note == "its Job is no longer kept"
    assert older.note == "its Job is no longer kept, or it was missed"


def test_a_frequent_schedule_is_not_walked_from_its_beginning() -> None:
    cronjob = a_cronjob("* * * * *")
    cronjob["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    found = fires_of(cronjob, [], NOW, local_zone="UTC")
    assert len(found["past"]) == 60
    assert found["past"][0].at == NOW.replace(second=0)


@pytest.mark.parametrize("spec", [{"schedule": "nonsense"}, {"timeZone": "Mars/Base"}])
def test_a_schedule_that_cannot_be_read_has_no_times(spec: dict[str, Any]) -> None:
    cronjob = a_cronjob("0 * * * *")
    cronjob["spec"].update(spec)
    found = fires_of(cronjob, [], NOW, local_zone="UTC")
    assert (found["past"], found["coming"]) == ([], [])


def test_a_suspended_one_has_no_next_times() -> None:
    assert fires_of(a_cronjob("0 * * * *", suspend=True), [], NOW, local_zone="UTC")["coming"] == []
