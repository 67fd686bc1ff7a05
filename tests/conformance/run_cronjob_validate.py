"""Runner of cronjob_validate.json: validation of CronJobs."""

from collections.abc import Iterator

from onejob.api.kinds import strategy_for
from onejob.api.kinds.cronjob import (
    validate_cronjob,
    validate_cronjob_spec,
    validate_schedule,
    validate_time_zone,
)
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import BY_RESOURCE
from tests.conformance.comparing_errors import compare_errors, error_corruptions
from tests.conformance.loader import gates_of, with_value
from tests.conformance.verdict import Case, Verdict


def run_case(case: Case) -> Verdict:
    return compare_errors(case, _errors(case))


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    yield from error_corruptions(case)
    if "timeZones" in case:
        yield "timeZones", with_value(case, ("timeZones", 0), "Nowhere/Atlantis")


def _errors(case: Case) -> list[FieldError]:
    strategy = strategy_for(BY_RESOURCE["cronjobs.batch"], gates_of(case))
    match case["function"]:
        case "ValidateCronJobCreate":
            return validate_cronjob(case["cronJob"])
        case "cronJobStrategy.Validate":
            return strategy.validate_create(case["cronJob"])
        case "ValidateCronJobUpdate" | "cronJobStrategy.ValidateUpdate":
            return strategy.validate_update(case["new"], case["old"])
        case "cronJobStatusStrategy.ValidateUpdate":
            return strategy.validate_status_update(case["new"], case["old"])
        case "validateCronJobSpec":
            return validate_cronjob_spec(case["newSpec"], case["oldSpec"], case["fieldPath"])
        case "validateScheduleFormat":
            return validate_schedule(
                case["schedule"],
                case["timeZone"],
                case["fieldPath"],
                tolerate_zone=case["allowTZInSchedule"],
            )
        case "validateTimeZone":
            return [e for zone in case["timeZones"] for e in validate_time_zone(zone, "timeZone")]
        case other:
            raise ValueError(f"unknown function {other}")
