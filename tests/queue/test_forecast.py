"""Forecast of `onejob queue`, on values alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from onejob.cli.queue.showing import job_rows, limit_rows
from onejob.diagnosis.queues import reason, start_text
from onejob.objects.job import Job, read_job
from onejob.planning.queue.forecast import forecast, scopes
from onejob.planning.queue.limits import Limits
from onejob.planning.queue.membership import Priorities

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NO_CLASSES = Priorities.of(())


def stamp(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_job(name: str, *, queued: int = 0, queue: str = "", priority: str = "", **status: Any) -> Job:
    annotations = {"onejob.dev/queued": str(queued)} if queued else {}
    labels = {"onejob.dev/queue": queue} if queue else {}
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": labels,
            "annotations": annotations,
            "creationTimestamp": stamp(-60),
        },
        "spec": {
            "suspend": bool(queued),
            "template": {"spec": {"priorityClassName": priority} if priority else {}},
        },
        "status": status,
    }
    return read_job(msgspec.json.encode(document))


def finished(name: str, seconds: int, **options: Any) -> Job:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": stamp(-100)}
    return a_job(name, startTime=stamp(-100 - seconds), conditions=[done], **options)


def test_waiting_jobs_are_listed_in_order_with_start_time() -> None:
    jobs = [
        finished("old", 30),
        a_job("late", queued=9),
        a_job("urgent", queued=10, priority="system-node-critical"),
        a_job("early", queued=8),
        a_job("runs", startTime=stamp(-10)),
    ]
    entries = forecast(jobs, Limits({"*": 1}), NO_CLASSES, NOW)
    assert [entry.job.metadata.name for entry in entries] == ["runs", "urgent", "early", "late"]
    assert [entry.place for entry in entries] == [0, 1, 2, 3]
    assert [start_text(entry, NOW) for entry in entries] == [
        "started",
        "in ~20s",
        "in ~50s",
        "in ~1m20s",
    ]
    assert reason(entries[1]) == "all Jobs: limit reached"
    (scope,) = scopes(entries, Limits({"*": 1}))
    assert limit_rows([scope]) == [("all Jobs", "1", "1", "3")]


def test_forecast_needs_a_finished_job() -> None:
    jobs = [a_job("waits", queued=3), a_job("runs", startTime=stamp(-10))]
    entries = forecast(jobs, Limits({"*": 1}), NO_CLASSES, NOW)
    assert start_text(entries[1], NOW) == "unknown"
    rows = job_rows(entries, NOW)
    assert rows[1] == (
        "1", "default", "waits", "", "0", "1m00s", "unknown", "all Jobs: limit reached",
    )  # fmt: skip


def test_one_that_runs_longer_than_most_may_end_at_any_moment() -> None:
    jobs = [finished("old", 3), a_job("waits", queued=3), a_job("runs", startTime=stamp(-10))]
    entries = forecast(jobs, Limits({"*": 1}), NO_CLASSES, NOW)
    assert start_text(entries[1], NOW) == "any moment"


def test_each_queue_has_its_own_estimate() -> None:
    jobs = [
        finished("short", 10, queue="cpu"),
        finished("long", 1000, queue="gpu"),
        a_job("g", queue="gpu", startTime=stamp(0)),
        a_job("c", queue="cpu", startTime=stamp(0)),
        a_job("g-waits", queue="gpu", queued=1),
        a_job("c-waits", queue="cpu", queued=2),
        a_job("no-limit", startTime=stamp(0)),
    ]
    entries = forecast(jobs, Limits({"gpu": 1, "cpu": 1}), NO_CLASSES, NOW)
    starts = {entry.job.metadata.name: start_text(entry, NOW) for entry in entries}
    assert starts == {
        "g": "started", "c": "started", "g-waits": "in ~16m40s", "c-waits": "in ~10s",
    }  # fmt: skip


def test_one_that_waits_for_a_limit_that_is_gone_is_about_to_start() -> None:
    (entry,) = forecast([a_job("x", queued=1)], Limits(), NO_CLASSES, NOW)
    assert (start_text(entry, NOW), reason(entry)) == ("now", "is about to start")
