"""Runner of job_validate_status.json: validation of Job statuses.

Upstream's options name the rules that apply to a pair of old and new, so these are compared as
well.
"""

import re
from collections.abc import Iterator

from onejob.api.kinds import strategy_for
from onejob.api.kinds.job.status_validation import (
    CHANGE_RULES,
    STATE_RULES,
    StatusRule,
    Write,
    applicable_rules,
    validate_job_status_update,
)
from onejob.wire.kinds import BY_RESOURCE
from tests.conformance.comparing_errors import compare_errors, error_corruptions
from tests.conformance.loader import gates_of, with_value
from tests.conformance.verdict import Case, Failed, Passed, Verdict, compare


def run_case(case: Case) -> Verdict:
    new, old = case["new"], case["old"]
    recorded = {_words(name) for name in case["opts"]}
    match case["function"]:
        case "ValidateJobUpdateStatus":
            rules = tuple(rule for rule in _all_rules() if rule.refuses in recorded)
            if len(rules) != len(recorded):
                return Failed(f"rules unknown to onejob among {sorted(recorded)}")
            return compare_errors(case, validate_job_status_update(Write(old, new), rules))
        case "jobStatusStrategy.ValidateUpdate":
            gates = gates_of(case)
            strategy = strategy_for(BY_RESOURCE["jobs.batch"], gates)
            verdict = compare_errors(case, strategy.validate_status_update(new, old))
            if not isinstance(verdict, Passed) or not gates.enabled("JobManagedBy"):
                return verdict
            applied = {rule.refuses for rule in applicable_rules(Write(old, new))}
            return compare("applicable rules", sorted(recorded), sorted(applied))
        case other:
            return Failed(f"unknown function {other}")


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    yield from error_corruptions(case)
    if case["function"] == "jobStatusStrategy.ValidateUpdate" and case["opts"]:
        fewer = dict(list(case["opts"].items())[1:])
        yield "opts", with_value(case, ("opts",), fewer)


def _all_rules() -> tuple[StatusRule, ...]:
    return (*STATE_RULES, *CHANGE_RULES)


def _words(option: str) -> str:
    """Convert RejectFinishedJobWithActivePods to "finished job with active pods"."""
    return " ".join(re.findall("[A-Z][a-z]*", option.removeprefix("Reject"))).lower()
