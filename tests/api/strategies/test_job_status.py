"""Statuses of Jobs: exemptions and freedoms that upstream's recorded cases do not show."""

from typing import Any

import pytest

from tests.api.strategies.build import a_job, created, strategy, update_status

JOB = strategy("jobs.batch")

START = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T12:05:00Z"


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status}


def write(old: dict[str, Any], new: dict[str, Any], **spec: Any) -> list[str]:
    job = created(JOB, a_job(**spec))
    return update_status(JOB, {**job, "status": old}, new)


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"completionMode": "Indexed", "completions": 3, "parallelism": 3}, []),
        (
            {"completionMode": "Indexed", "completions": 3, "parallelism": 2},
            ["status.succeeded: Invalid value: 1: cannot decrease the succeeded counter"],
        ),
        (
            {"completions": 3, "parallelism": 3},
            ["status.succeeded: Invalid value: 1: cannot decrease the succeeded counter"],
        ),
    ],
)
def test_scaling_down_an_elastic_job_may_forget_successes(
    spec: dict[str, Any], errors: list[str]
) -> None:
    assert write({"succeeded": 2}, {"succeeded": 1}, **spec) == errors


@pytest.mark.parametrize(
    ("old", "new", "suspend", "accepted"),
    [
        ({"startTime": START}, {"startTime": LATER}, False, False),
        ({"startTime": START}, {}, False, False),
        ({"startTime": START}, {"startTime": LATER}, True, True),
        ({"startTime": START}, {}, True, True),
        ({}, {"startTime": START}, False, True),
        (
            {"startTime": START, "conditions": [condition("Suspended")]},
            {"startTime": LATER, "conditions": [condition("Suspended", "False")]},
            False,
            True,
        ),
        (
            {"startTime": START, "conditions": [condition("Suspended")]},
            {"startTime": LATER, "conditions": [condition("Suspended")]},
            False,
            False,
        ),
    ],
)
def test_45_only_suspending_and_resuming_move_the_start(
    old: dict[str, Any], new: dict[str, Any], suspend: bool, accepted: bool
) -> None:
    errors = write(old, new, suspend=suspend)
    if accepted:
        assert errors == []
    else:
        (error,) = errors
        assert error.endswith("field is immutable for unsuspended job once set")


def test_a_completion_time_may_go_while_the_job_is_not_complete() -> None:
    assert write({"completionTime": START}, {}) == []


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [condition("CustomConditionType"), condition("CustomConditionType")]},
        {"conditions": [condition("Odd", "Perhaps")]},
        {"active": 99},
        {"conditions": [condition("SuccessCriteriaMet")]},
        {"uncountedTerminatedPods": {}},
    ],
)
def test_much_is_nobodys_business(status: dict[str, Any]) -> None:
    assert write({}, status) == []


def test_uids_may_leave_a_list_uncounted_and_index_texts_may_shrink() -> None:
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 5}
    old = {"uncountedTerminatedPods": {"failed": ["a"]}, "completedIndexes": "0-2"}
    assert write(old, {"completedIndexes": "0"}, **spec) == []


def test_overlaps_are_found_even_in_texts_with_other_errors() -> None:
    spec = {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1}
    errors = write({}, {"completedIndexes": "1,x", "failedIndexes": "0,1"}, **spec)
    assert [error.split(": ", 2)[2].split(": ", 1)[1] for error in errors] == [
        'error parsing completedIndexes: cannot convert string to integer for index: "x"',
        "failedIndexes and completedIndexes overlap at index: 1",
    ]


def test_a_terminal_status_of_a_failing_job_is_accepted_at_once() -> None:
    status = {
        "startTime": START,
        "failed": 1,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [condition("FailureTarget"), condition("Failed")],
    }
    assert write({"startTime": START}, status) == []


def test_errors_at_conditions_do_not_show_them() -> None:
    (error,) = write({"conditions": [condition("FailureTarget")]}, {})
    assert error == (
        "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition"
    )
