"""Runner of job_strategy.json: fields set by the server, and warnings."""

import copy
from collections.abc import Iterator
from typing import Any

from onejob.api.kinds import strategy_for
from onejob.api.kinds.job.warnings import job_spec_warnings
from onejob.wire.kinds import BY_RESOURCE
from tests.conformance.loader import gates_of, with_value
from tests.conformance.verdict import Case, Failed, Verdict, compare


def run_case(case: Case) -> Verdict:
    if case["function"] == "WarningsForJobSpec":
        warnings = job_spec_warnings(_without_nulls(case["spec"]), "spec")
        return compare("warnings", _with_path(case["warnings"]), warnings)
    owner, function = case["function"].split(".")
    resource = "cronjobs.batch" if owner.startswith("cron") else "jobs.batch"
    strategy = strategy_for(BY_RESOURCE[resource], gates_of(case))
    new, old = copy.deepcopy(case["in"]), copy.deepcopy(case.get("old", {}))
    match function, "Status" in owner:
        case "PrepareForCreate", False:
            strategy.prepare_create(new)
        case "PrepareForUpdate", False:
            strategy.prepare_update(new, old)
        case "PrepareForUpdate", True:
            strategy.prepare_status_update(new, old)
        case "WarningsOnCreate", False:
            return compare("warnings", case["warnings"], strategy.warnings_on_create(new))
        case "WarningsOnUpdate", False:
            return compare("warnings", case["warnings"], strategy.warnings_on_update(new, old))
        case other:
            return Failed(f"unknown function {other}")
    if old != case.get("old", {}):
        return Failed("the stored object was changed")
    return compare("prepared document", case["out"], new)


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    if "warnings" in case:
        yield "warnings", with_value(case, ("warnings",), [*case["warnings"], "corrupted"])
        for i in range(len(case["warnings"])):
            yield "warnings[]", with_value(case, ("warnings", i), "corrupted")
        return
    yield "out.metadata.generation", with_value(case, ("out", "metadata", "generation"), 99)
    yield "out.status", with_value(case, ("out", "status"), {"active": 99})
    for field in case["out"]["spec"]:
        yield f"out.spec.{field}", with_value(case, ("out", "spec", field), "corrupted")


def _with_path(warnings: list[str]) -> list[str]:
    """Prefix warnings with `spec`.

    Upstream calls this function without a path, printed as `<nil>`.
    """
    return [
        f"spec{text.removeprefix('<nil>')}" if text.startswith("<nil>") else f"spec.{text}"
        for text in warnings
    ]


def _without_nulls(value: Any) -> Any:
    """Remove nulls, as decoding does before a strategy sees a document."""
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
