"""Runner of job_validate_create.json: validation of new Jobs."""

from collections.abc import Iterator

from onejob.api.kinds import strategy_for
from onejob.api.kinds.job.validation import JobOptions, validate_job
from onejob.wire.kinds import BY_RESOURCE
from tests.conformance.comparing_errors import compare_errors, error_corruptions
from tests.conformance.loader import gates_of
from tests.conformance.verdict import Case, Failed, Verdict


def run_case(case: Case) -> Verdict:
    match case["function"]:
        case "ValidateJobCreate":
            options = JobOptions(prefixed_labels=case["opts"].get("RequirePrefixedLabels", False))
            return compare_errors(case, validate_job(case["job"], options))
        case "jobStrategy.Validate":
            strategy = strategy_for(BY_RESOURCE["jobs.batch"], gates_of(case))
            return compare_errors(case, strategy.validate_create(case["job"]))
        case other:
            return Failed(f"unknown function {other}")


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return error_corruptions(case)
