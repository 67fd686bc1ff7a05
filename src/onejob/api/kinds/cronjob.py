"""CronJob strategy: defaults, validation, updates."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import (
    BaseStrategy,
    keep_generation,
    keep_status,
    same_spec,
    untouched_spec,
)
from onejob.api.kinds.job.defaults import default_cronjob
from onejob.api.kinds.job.strategy import disabled_job_fields, drop_disabled
from onejob.api.kinds.job.validation import (
    validate_job_spec_but_selector,
    validate_memory_annotations,
    validate_template_annotations,
)
from onejob.api.kinds.job.warnings import job_name_warnings, job_spec_warnings
from onejob.api.kinds.metadata import validate_metadata, validate_metadata_update
from onejob.api.kinds.printing import CRONJOB_COLUMNS, cronjob_cells
from onejob.api.kinds.sameness import newly_invalid, same_meaning
from onejob.api.strategy import Document
from onejob.gates import FeatureGates
from onejob.planning.cronjob.schedule import ScheduleError, parse_schedule, valid_time_zone
from onejob.planning.names import CATCH_UP_ANNOTATION
from onejob.wire.field_errors import FieldError, invalid, not_supported, required
from onejob.wire.kinds import Kind
from onejob.wire.names import subdomain_errors

#: A Job's name appends eleven characters to the CronJob's, and must fit into a label (63).
_MAX_NAME_LENGTH: Final = 52

_CONCURRENCY: Final = ["Allow", "Forbid", "Replace"]

_LIMITS: Final = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")

_zone_part: Final = re.compile(r"[A-Za-z.\-_0-9+]{1,14}", re.ASCII).fullmatch


class CronJobStrategy(BaseStrategy):
    shares_sections = True

    def __init__(self, kind: Kind, gates: FeatureGates) -> None:
        super().__init__(kind)
        self._disabled = disabled_job_fields(gates)
        self._has_next_time = gates.enabled("CronJobsNextScheduleTime")

    def default(self, doc: Document, old: Document | None = None) -> None:
        if not same_spec(doc, old):
            default_cronjob(doc)

    def prepare_create(self, doc: Document) -> None:
        doc.pop("status", None)
        doc["metadata"]["generation"] = 1
        drop_disabled(_job_spec(doc), {}, self._disabled)

    def validate_create(self, doc: Document) -> list[FieldError]:
        return validate_cronjob(doc)

    def warnings_on_create(self, doc: Document) -> list[str]:
        return [
            *job_name_warnings(doc["metadata"].get("name", "")),
            *job_spec_warnings(_job_spec(doc), "spec.jobTemplate.spec"),
            *_annotation_warnings(doc),
        ]

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        if same_spec(new, old):
            keep_generation(new, old, changed=False)
            return
        drop_disabled(_job_spec(new), _job_spec(old), self._disabled)
        keep_generation(new, old, changed=not same_meaning(new["spec"], old["spec"]))

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = validate_metadata_update(new, old)
        if untouched_spec(new, old):
            return errors
        return errors + newly_invalid(
            validate_cronjob_spec(new["spec"], old["spec"], "spec"),
            lambda: validate_cronjob_spec(old["spec"], old["spec"], "spec"),
            "spec.jobTemplate.spec.template.spec",
        )

    def warnings_on_update(self, new: Document, old: Document) -> list[str]:
        warnings = _annotation_warnings(new)
        if new["metadata"].get("generation") != old["metadata"].get("generation"):
            warnings += job_spec_warnings(_job_spec(new), "spec.jobTemplate.spec")
        if "TZ" in new["spec"].get("schedule", ""):
            warnings.append(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ "
                "for more details"
            )
        return warnings

    def prepare_status_update(self, new: Document, old: Document) -> None:
        super().prepare_status_update(new, old)
        # As upstream drops the field of a disabled gate; a stored one stays until it is cleared.
        if not self._has_next_time and "nextScheduleTime" not in old.get("status", {}):
            new.get("status", {}).pop("nextScheduleTime", None)

    def columns(self) -> list[dict[str, Any]]:
        return CRONJOB_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return cronjob_cells(doc, now)


def validate_cronjob(doc: Document) -> list[FieldError]:
    errors = validate_metadata(doc["metadata"], subdomain_errors, namespaced=True)
    errors += validate_cronjob_spec(doc["spec"], None, "spec")
    name = doc["metadata"].get("name", "")
    if len(name) > _MAX_NAME_LENGTH:
        errors.append(
            invalid("metadata.name", name, f"must be no more than {_MAX_NAME_LENGTH} characters")
        )
    return errors


def validate_cronjob_spec(
    spec: Mapping[str, Any], old_spec: Mapping[str, Any] | None, path: str
) -> list[FieldError]:
    errors = validate_cron_fields(spec, old_spec, path)
    errors += _validate_job_template(
        spec.get("jobTemplate", {}).get("spec", {}), f"{path}.jobTemplate.spec"
    )
    errors += validate_template_annotations(
        spec.get("jobTemplate", {}).get("spec", {}),
        old_spec and old_spec.get("jobTemplate", {}).get("spec", {}),
        f"{path}.jobTemplate.spec",
    )
    errors += validate_memory_annotations(
        spec.get("jobTemplate", {}),
        old_spec and old_spec.get("jobTemplate"),
        f"{path}.jobTemplate.",
    )
    for limit in _LIMITS:
        errors += _non_negative(spec, limit, path)
    return errors


def validate_cron_fields(
    spec: Mapping[str, Any],
    old_spec: Mapping[str, Any] | None,
    path: str,
    limits: Sequence[str] = (),
) -> list[FieldError]:
    """Return the errors of all fields but the template.

    `limits` are the names of history limits to validate as well.
    """
    errors: list[FieldError] = []
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if not schedule:
        errors.append(required(f"{path}.schedule"))
    else:
        had_zone = old_spec is not None and "TZ" in old_spec.get("schedule", "")
        errors += validate_schedule(schedule, zone, f"{path}.schedule", tolerate_zone=had_zone)
    errors += _non_negative(spec, "startingDeadlineSeconds", path)
    if zone is not None and (old_spec is None or zone != old_spec.get("timeZone")):
        errors += validate_time_zone(zone, f"{path}.timeZone")
    policy = spec.get("concurrencyPolicy", "")
    if not policy:
        errors.append(required(f"{path}.concurrencyPolicy"))
    elif policy not in _CONCURRENCY:
        errors.append(not_supported(f"{path}.concurrencyPolicy", policy, _CONCURRENCY))
    for limit in limits:
        errors += _non_negative(spec, limit, path)
    return errors


def validate_schedule(
    schedule: str, time_zone: str | None, path: str, *, tolerate_zone: bool
) -> list[FieldError]:
    """Validate a schedule. `tolerate_zone`: the stored schedule already contains a time zone."""
    errors = []
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        errors.append(invalid(path, schedule, str(error)))
    if "TZ" in schedule:
        if not tolerate_zone:
            text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(invalid(path, schedule, text))
        elif time_zone is not None:
            text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            errors.append(invalid(path, schedule, text))
    return errors


def validate_time_zone(zone: str, path: str) -> list[FieldError]:
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    unknown = invalid(path, zone, f"unknown time zone {zone}")
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _zone_part(part):
            return [unknown]
    errors = []
    if zone.lower() == "local":
        errors.append(
            invalid(
                path,
                zone,
                "timeZone must be an explicit time zone as defined in "
                "https://www.iana.org/time-zones",
            )
        )
    if not valid_time_zone(zone):
        errors.append(unknown)
    return errors


def _validate_job_template(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = validate_job_spec_but_selector(spec, path)
    if "selector" in spec:
        errors.append(
            invalid(f"{path}.selector", spec["selector"], "`selector` will be auto-generated")
        )
    if spec.get("manualSelector"):
        errors.append(not_supported(f"{path}.manualSelector", True, ["nil", "false"]))
    return errors


def _non_negative(spec: Mapping[str, Any], field: str, path: str) -> list[FieldError]:
    value = spec.get(field, 0)
    if value >= 0:
        return []
    return [invalid(f"{path}.{field}", value, "must be greater than or equal to 0")]


def _annotation_warnings(doc: Document) -> list[str]:
    value = (doc["metadata"].get("annotations") or {}).get(CATCH_UP_ANNOTATION)
    if value is None:
        return []
    from onejob.planning.cronjob.catch_up import annotation_warning

    found = annotation_warning(value, doc["spec"].get("concurrencyPolicy", ""))
    return [found] if found else []


def _job_spec(doc: Document) -> dict[str, Any]:
    spec: dict[str, Any] = doc["spec"].get("jobTemplate", {}).get("spec", {})
    return spec
