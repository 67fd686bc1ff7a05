"""Validation of Job statuses: exemptions that upstream's recorded cases do not show."""

from typing import Any

import pytest

from tests.api.kinds.build import a_job, created, strategy, update_status

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
@pytest.mark.edge_case(45)
def test_only_suspending_and_resuming_move_the_start(
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


DONE = [condition("SuccessCriteriaMet"), condition("Complete")]
LOST = [condition("FailureTarget"), condition("Failed")]
PER_INDEX = {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1}


@pytest.mark.parametrize(
    ("old", "new", "spec", "error"),
    [
        ({}, {"active": -1}, {}, "active: Invalid value: -1: must be greater than or equal to 0"),
        (
            {},
            {"terminating": -1},
            {},
            "terminating: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {},
            {"uncountedTerminatedPods": {"failed": [""]}},
            {},
            'uncountedTerminatedPods.failed[0]: Invalid value: "": must not be empty',
        ),
        (
            {},
            {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}},
            {},
            'uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
        ),
        (
            {"failed": 2},
            {"failed": 1},
            {},
            "failed: Invalid value: 1: cannot decrease the failed counter",
        ),
        (
            {},
            {"conditions": [*DONE, condition("FailureTarget")], "startTime": START,
             "completionTime": LATER},
            {},
            "conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            {},
            {"conditions": [*DONE, *LOST], "startTime": START, "completionTime": LATER},
            {},
            "conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
        ),
        (
            {},
            {"completionTime": START},
            {},
            f'completionTime: Invalid value: "{START}": '
            "cannot set completionTime when there is no Complete=True condition",
        ),
        (
            {},
            {"conditions": DONE, "startTime": START},
            {},
            "completionTime: Required value: completionTime is required for Complete jobs",
        ),
        (
            {"conditions": DONE, "startTime": START, "completionTime": START},
            {"conditions": DONE, "startTime": START, "completionTime": LATER},
            {},
            f'completionTime: Invalid value: "{LATER}": field is immutable',
        ),
        (
            {},
            {"conditions": DONE, "startTime": LATER, "completionTime": START},
            {},
            f'completionTime: Invalid value: "{START}": must be equal to or after `startTime`',
        ),
        (
            {},
            {"conditions": [condition("Failed")], "startTime": START},
            {},
            "conditions: Invalid value: "
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            {},
            {"conditions": [condition("Complete")], "startTime": START, "completionTime": START},
            {},
            "conditions: Invalid value: "
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            {},
            {"conditions": LOST, "startTime": START, "active": 1},
            {},
            "active: Invalid value: 1: active>0 is invalid for finished job",
        ),
        (
            {},
            {"conditions": LOST, "startTime": START, "terminating": 1},
            {},
            "terminating: Invalid value: 1: terminating>0 is invalid for finished job",
        ),
        (
            {},
            {"conditions": LOST, "startTime": START,
             "uncountedTerminatedPods": {"failed": ["a"]}},
            {},
            'uncountedTerminatedPods: Invalid value: {"failed":["a"]}: '
            "must be empty for finished job",
        ),
        (
            {"conditions": LOST, "startTime": START},
            {"conditions": LOST, "startTime": START,
             "uncountedTerminatedPods": {"failed": ["a"]}},
            {},
            'uncountedTerminatedPods: Invalid value: {"failed":["a"]}: '
            "must be empty for finished job",
        ),
        (
            {},
            {"completedIndexes": "0"},
            {},
            'completedIndexes: Invalid value: "0": '
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        ),
        (
            {},
            {"failedIndexes": ""},
            {},
            'failedIndexes: Invalid value: "": '
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ),
        (
            {},
            {"failedIndexes": "0,2", "completedIndexes": "2-4"},
            PER_INDEX,
            'failedIndexes: Invalid value: "0,2": '
            "failedIndexes and completedIndexes overlap at index: 2",
        ),
        (
            {"conditions": [condition("SuccessCriteriaMet")]},
            {},
            {},
            "conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
        ),
        (
            {},
            {"conditions": [condition("SuccessCriteriaMet"), condition("FailureTarget")]},
            {},
            "conditions: Invalid value: "
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(
    old: dict[str, Any], new: dict[str, Any], spec: dict[str, Any], error: str
) -> None:
    assert f"status.{error}" in write(old, new, **spec)


def test_errors_come_in_the_order_of_kubernetes() -> None:
    disabled = write({"conditions": LOST, "startTime": START}, {"startTime": START})
    assert [error.rpartition("terminal ")[2] for error in disabled] == [
        "Failed=True condition",
        "FailureTarget=True condition",
    ]
    errors = write({}, {"conditions": LOST, "active": 1, "ready": 2, "terminating": 1})
    assert [error.partition(":")[0] for error in errors] == [
        "status.active",
        "status.startTime",
        "status.terminating",
        "status.ready",
    ]


def test_success_criteria_outrank_failures_and_come_before_the_end() -> None:
    lost = {"conditions": [*LOST, condition("SuccessCriteriaMet")], "startTime": START}
    assert write({}, lost) == [
        "status.conditions: Invalid value: "
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        "status.conditions: Invalid value: "
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    ]
    complete = {"conditions": [condition("Complete")], "completionTime": START, "startTime": START}
    late = {**complete, "conditions": DONE}
    assert write(complete, late) == [
        "status.conditions: Invalid value: "
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
    ]
    policy = {"rules": [{"succeededCount": 1}]}
    errors = write({}, complete, completionMode="Indexed", completions=2, successPolicy=policy)
    assert errors[-1] == (
        "status.conditions: Invalid value: "
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
    )
