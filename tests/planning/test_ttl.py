"""TTL of finished Jobs and Pods."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod, read_pod
from onejob.planning.ttl import NEVER, Expires, UnknownEnd, expiry_of, job_expiry, time_left

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_job(
    *,
    ttl: int | None = 60,
    condition: str = "Complete",
    status: str = "True",
    finished: str | None = "2026-01-01T12:00:00Z",
    **metadata: Any,
) -> Job:
    written: dict[str, Any] = {"type": condition, "status": status}
    if finished:
        written["lastTransitionTime"] = finished
    document = {
        "metadata": {"name": "j", "namespace": "n", **metadata},
        "spec": {"ttlSecondsAfterFinished": ttl} if ttl is not None else {},
        "status": {"conditions": [written]},
    }
    return read_job(msgspec.json.encode(document))


def a_pod(*, phase: str = "Succeeded", ttl: int | None = 60, **status: Any) -> Pod:
    document = {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {"ttlSecondsAfterFinished": ttl} if ttl is not None else {},
        "status": {"phase": phase, **status},
    }
    return read_pod(msgspec.json.encode(document))


def ended(*times: str) -> list[dict[str, Any]]:
    return [
        {"name": f"c{i}", "state": {"terminated": {"exitCode": 0, "finishedAt": time}}}
        for i, time in enumerate(times)
    ]


@pytest.mark.parametrize(
    "job",
    [
        a_job(ttl=None),
        a_job(condition="Suspended"),
        a_job(condition="FailureTarget"),
        a_job(status="False"),
        a_job(deletionTimestamp="2026-01-01T12:00:00Z"),
    ],
)
def test_a_job_without_ttl_unfinished_or_already_going_never_expires(job: Job) -> None:
    assert expiry_of(job) == NEVER
    assert time_left(job, NOON) is None


@pytest.mark.parametrize(
    ("job", "seconds_left"),
    [
        (a_job(ttl=0), 0),
        (a_job(ttl=60), 60),
        (a_job(ttl=60, condition="Failed"), 60),
        (a_job(ttl=60, finished="2026-01-01T11:58:00Z"), -60),
        (a_job(ttl=60, finished="2026-01-01T13:00:00Z"), 3660),  # a clock is wrong: just wait
        (a_job(ttl=2**31 - 1), 2**31 - 1),
    ],
)
def test_a_finished_job_expires_its_ttl_after_the_end(job: Job, seconds_left: int) -> None:
    assert time_left(job, NOON) == timedelta(seconds=seconds_left)


def test_finished_job_without_finish_time_is_an_error() -> None:
    assert job_expiry(a_job(finished=None)) == UnknownEnd(
        "unable to find the time when the Job n/j finished"
    )


def test_an_end_in_the_future_is_recognised_as_skew() -> None:
    expiry = job_expiry(a_job(finished="2026-01-01T12:00:01Z"))
    assert isinstance(expiry, Expires)
    assert expiry.is_skewed(NOON)
    assert not expiry.is_skewed(NOON + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("pod", "finished_at"),
    [
        (
            a_pod(containerStatuses=ended("2026-01-01T11:30:00Z", "2026-01-01T11:20:00Z")),
            "2026-01-01T11:30:00Z",
        ),
        (
            a_pod(
                phase="Failed",
                containerStatuses=[*ended("2026-01-01T11:30:00Z"), {"name": "never", "state": {}}],
            ),
            "2026-01-01T11:30:00Z",
        ),
        (
            a_pod(
                phase="Failed",
                conditions=[
                    {
                        "type": "Ready",
                        "status": "False",
                        "lastTransitionTime": "2026-01-01T11:40:00Z",
                    }
                ],
            ),
            "2026-01-01T11:40:00Z",
        ),
        (a_pod(phase="Failed"), "2026-01-01T11:00:00Z"),
    ],
)
def test_a_pod_finishes_with_its_last_container(pod: Pod, finished_at: str) -> None:
    expiry = expiry_of(pod)
    assert isinstance(expiry, Expires)
    assert expiry.finished_at == datetime.fromisoformat(finished_at)
    assert expiry.at == expiry.finished_at + timedelta(seconds=60)


@pytest.mark.parametrize(
    "finished",
    [
        a_job(finished="9999-12-31T23:59:59Z"),
        a_job(ttl=2**31 - 1, finished="9950-01-01T00:00:00Z"),
        a_pod(containerStatuses=ended("9999-12-31T23:59:59Z")),
    ],
)
def test_expiry_beyond_calendar_never_happens(
    finished: Job | Pod,
) -> None:
    """Any user who may write a status may write any time into it."""
    assert expiry_of(finished) == NEVER


@pytest.mark.parametrize("pod", [a_pod(phase="Running"), a_pod(ttl=None)])
def test_a_running_pod_or_one_without_ttl_never_expires(pod: Pod) -> None:
    assert expiry_of(pod) == NEVER


def test_a_ttl_may_be_given_by_annotation_where_the_api_has_no_such_field() -> None:
    annotated = {"onejob.dev/ttl-seconds-after-finished": "60"}
    bare = a_pod(ttl=None)
    metadata = msgspec.structs.replace(bare.metadata, annotations=annotated)
    pod = msgspec.structs.replace(bare, metadata=metadata)
    assert expiry_of(pod) == expiry_of(a_pod(ttl=60))
    assert expiry_of(pod) != NEVER
