"""Runner of upstream's cases of podFailurePolicy."""

from collections.abc import Iterator

import msgspec

from onejob.objects.job import PodFailurePolicy
from onejob.planning.job.failure_policy import match_failure_policy
from tests.conformance.planner_cases import as_pod, spoil_expected
from tests.conformance.verdict import Case, Verdict, compare


def run_case(case: Case) -> Verdict:
    document = case["podFailurePolicy"]
    policy = None if document is None else msgspec.convert(document, PodFailurePolicy)
    ruling = match_failure_policy(policy, as_pod(case["pod"]))
    return compare(
        case["function"],
        case["expected"],
        {
            "action": ruling.action,
            "countFailed": ruling.counts,
            "jobFailureMessage": ruling.message,
        },
    )


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return spoil_expected(case)
