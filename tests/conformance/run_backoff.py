"""Runner of upstream's cases about the delay before failed Pods are replaced."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from onejob.planning.job.backoff import NO_FAILURES, BackoffPolicy, BackoffRecord
from onejob.planning.job.per_index import remaining_for_index
from onejob.planning.job.pod_facts import finish_time
from tests.conformance.planner_cases import as_pod, spoil_expected
from tests.conformance.verdict import Case, Verdict, compare


def run_case(case: Case) -> Verdict:
    args = case["args"]
    actual: Any
    match case["function"]:
        case "newBackoffRecord":
            record = _record(args["storedRecord"]).after(
                [_time(text) for text in args["newSucceededFinishTimes"]],
                [_time(text) for text in args["newFailedFinishTimes"]],
            )
            actual = {
                "failuresAfterLastSuccess": record.failures_since_success,
                "lastFailureTime": _text(record.last_failure_at),
            }
        case "getFinishedTime":
            actual = _text(finish_time(as_pod(args["pod"])))
        case "getRemainingTime":
            record = _record(args["backoffRecord"])
            remaining = _policy(args).remaining(
                record.failures_since_success, record.last_failure_at, _time(args["now"])
            )
            actual = {"remainingSeconds": remaining.total_seconds()}
        case "getRemainingTimePerIndex":
            pod = args["lastFailedPod"]
            remaining = remaining_for_index(
                None if pod is None else as_pod(pod), _policy(args), _time(args["now"])
            )
            actual = {"remainingSeconds": remaining.total_seconds()}
        case function:
            raise AssertionError(f"no such function: {function}")
    return compare(case["function"], case["expected"], actual)


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return spoil_expected(case)


def _policy(args: dict[str, Any]) -> BackoffPolicy:
    return BackoffPolicy(
        timedelta(seconds=args["defaultBackoffSeconds"]),
        timedelta(seconds=args["maxBackoffSeconds"]),
    )


def _record(document: dict[str, Any] | None) -> BackoffRecord:
    if document is None:
        return NO_FAILURES
    at = document["lastFailureTime"]
    return BackoffRecord(document["failuresAfterLastSuccess"], None if at is None else _time(at))


def _time(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def _text(moment: datetime | None) -> Any:
    return msgspec.to_builtins(moment)
