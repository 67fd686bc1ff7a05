"""Runner of upstream's cases of successPolicy."""

from collections.abc import Iterator

import msgspec

from onejob.objects.job import SuccessPolicy
from onejob.planning.job.indexes import IndexSet
from onejob.planning.job.success_policy import matching_success_rule, success_message
from tests.conformance.planner_cases import spoil_expected
from tests.conformance.verdict import Case, Verdict, compare


def run_case(case: Case) -> Verdict:
    document = case["successPolicy"]
    policy = None if document is None else msgspec.convert(document, SuccessPolicy)
    completed = IndexSet((first, last) for first, last in case["succeededIntervals"])
    rule = matching_success_rule(policy, case["completions"], completed)
    return compare(
        case["function"],
        case["expected"],
        {"met": rule is not None, "message": "" if rule is None else success_message(rule)},
    )


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return spoil_expected(case)
