"""Runner of job_validate_update.json: validation of changes to a Job."""

from collections.abc import Iterator

from onejob.api.kinds import strategy_for
from onejob.api.kinds.job.update import validate_job_update
from onejob.api.kinds.job.validation import JobOptions
from onejob.wire.kinds import BY_RESOURCE
from tests.conformance.comparing_errors import compare_errors, error_corruptions
from tests.conformance.loader import gates_of
from tests.conformance.verdict import Case, Failed, Verdict


def run_case(case: Case) -> Verdict:
    new, old, opts = case["new"], case["old"], case["opts"]
    match case["function"]:
        case "ValidateJobUpdate":
            options = JobOptions(
                mutable_scheduling=opts.get("AllowMutableSchedulingDirectives", False),
                mutable_resources=opts.get("AllowMutablePodResources", False),
                tolerate_bad_selector_values=opts.get("AllowInvalidLabelValueInSelector", False),
            )
            return compare_errors(case, validate_job_update(new, old, options))
        case "jobStrategy.ValidateUpdate":
            strategy = strategy_for(BY_RESOURCE["jobs.batch"], gates_of(case))
            return compare_errors(case, strategy.validate_update(new, old))
        case other:
            return Failed(f"unknown function {other}")


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return error_corruptions(case)
