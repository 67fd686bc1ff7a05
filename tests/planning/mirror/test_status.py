"""Status of mirrored Jobs: valid for the API server here, whatever a remote server reports.

This includes missed intermediate states.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from onejob.api.kinds.job.status_validation import (
    Write,
    applicable_rules,
    validate_job_status_update,
)
from onejob.planning.mirror.status import (
    failed_status,
    mirrored_status,
    ready_condition,
    with_condition,
)

Document = dict[str, Any]
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TIMES = st.integers(0, 50).map(lambda n: f"2030-01-01T10:00:{n:02}Z")
COUNTS = st.integers(0, 4)
#: Conditions that clients wrote without required fields.
SPARSE: list[Document] = [{}, {"status": "True"}, {"type": "Suspended"}]
TERMINAL = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")


@st.composite
def statuses(draw: st.DrawFn) -> Document:
    """Return a random status, including ones that no server would write."""
    status: Document = {}
    for field in ("active", "ready", "terminating", "succeeded", "failed"):
        if draw(st.booleans()):
            status[field] = draw(COUNTS)
    for field in ("startTime", "completionTime"):
        if draw(st.booleans()):
            status[field] = draw(TIMES)
    if draw(st.booleans()):
        status["completedIndexes"] = draw(st.sampled_from(["0", "0-2", "1,3"]))
    if draw(st.booleans()):
        status["uncountedTerminatedPods"] = {"succeeded": ["a"]}
    kinds = draw(st.lists(st.sampled_from((*TERMINAL, "Suspended")), unique=True))
    status["conditions"] = [
        {
            "type": kind,
            "status": draw(st.sampled_from(["True", "False"])) if kind == "Suspended" else "True",
            "lastTransitionTime": draw(TIMES),
        }
        for kind in kinds
    ]
    status["conditions"] += draw(st.lists(st.sampled_from(SPARSE), max_size=2))
    return status


@st.composite
def specs(draw: st.DrawFn) -> Document:
    spec: Document = {"suspend": draw(st.booleans()), "completions": 4, "parallelism": 2}
    if draw(st.booleans()):
        spec["completionMode"] = "Indexed"
    return spec


def problems(spec: Document, old: Document, new: Document) -> list[str]:
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    before = {"metadata": metadata, "spec": spec, "status": old}
    after = {"metadata": metadata, "spec": spec, "status": new}
    write = Write(before, after)
    errors = validate_job_status_update(write, applicable_rules(write))
    return [str(error) for error in errors]


@given(spec=specs(), seen=st.lists(statuses(), min_size=1, max_size=5), flips=st.data())
@settings(max_examples=400, deadline=None)
def test_every_status_that_follows_is_valid(
    spec: Document, seen: list[Document], flips: st.DataObject
) -> None:
    status: Document = {}
    for remote in seen:
        spec = {**spec, "suspend": flips.draw(st.booleans())}
        after = mirrored_status(spec, status, remote, NOW)
        assert not problems(spec, status, after), (status, after)
        status = after
        if any(one.get("type") in ("Complete", "Failed") for one in status["conditions"]):
            return
    ended = failed_status(spec, status, "MirrorCopyDeleted", "gone", NOW)
    assert not problems(spec, status, ended), (status, ended)


def test_a_plain_run_looks_like_a_job_that_ran_here() -> None:
    spec: Document = {"completions": 2, "parallelism": 2}
    suspended = {
        "type": "Suspended",
        "status": "True",
        "lastTransitionTime": "2030-01-01T09:00:00Z",
    }
    first = mirrored_status(spec, {}, {"conditions": [suspended]}, NOW)
    assert first["conditions"] == [], "that copies begin suspended is not the Job's business"
    remote: Document = {
        "startTime": "2030-01-01T10:00:00Z",
        "active": 2,
        "ready": 2,
        "terminating": 0,
        "conditions": [{**suspended, "status": "False"}],
        "uncountedTerminatedPods": {"succeeded": ["u"]},
    }
    second = mirrored_status(spec, first, remote, NOW)
    assert second == {
        "startTime": "2030-01-01T10:00:00Z",
        "active": 2,
        "ready": 2,
        "terminating": 0,
        "conditions": [],
    }


def test_the_end_is_held_back_until_all_pods_have_ended() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2030-01-01T10:00:05Z"}
    remote: Document = {
        "startTime": "2030-01-01T10:00:00Z",
        "completionTime": "2030-01-01T10:00:05Z",
        "succeeded": 1,
        "terminating": 1,
        "conditions": [done],
    }
    before = mirrored_status({}, {}, remote, NOW)
    assert [one["type"] for one in before["conditions"]] == ["SuccessCriteriaMet"]
    assert "completionTime" not in before
    after = mirrored_status({}, before, {**remote, "terminating": 0}, NOW)
    assert {one["type"] for one in after["conditions"]} == {"SuccessCriteriaMet", "Complete"}
    assert after["completionTime"] == "2030-01-01T10:00:05Z"


def test_counters_are_kept_when_new_copy_starts() -> None:
    old = {"startTime": "2030-01-01T10:00:00Z", "succeeded": 3, "failed": 1}
    fresh = {"startTime": "2030-01-01T11:00:00Z", "active": 2}
    status = mirrored_status({"completions": 5}, old, fresh, NOW)
    assert (status["succeeded"], status["failed"], status["active"]) == (3, 1, 2)
    assert status["startTime"] == "2030-01-01T10:00:00Z"


def test_our_condition_keeps_the_time_since_when_it_is_so() -> None:
    first = with_condition({}, ready=False, reason="A", message="1", now=NOW)
    later = NOW + timedelta(seconds=9)
    second = with_condition(first, ready=False, reason="B", message="2", now=later)
    third = with_condition(second, ready=True, reason="C", message="3", now=later)
    times = [(ready_condition(one) or {})["lastTransitionTime"] for one in (first, second, third)]
    assert times == ["2030-01-01T12:00:00Z", "2030-01-01T12:00:00Z", "2030-01-01T12:00:09Z"]
