"""Validation of Job updates: immutable and conditionally mutable fields."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.api.kinds.job.validation import (
    JobOptions,
    validate_index_names,
    validate_job_spec,
    validate_memory_annotations,
    validate_template_annotations,
)
from onejob.api.kinds.metadata import validate_metadata_update
from onejob.api.kinds.sameness import newly_invalid, same_meaning
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, invalid
from onejob.wire.labels import validate_label_selector

_IMMUTABLE: Final = "field is immutable"

#: Parts of the template that control placement and labelling of Pods.
_SCHEDULING_SPEC: Final = ("nodeSelector", "tolerations", "schedulingGates")
_SCHEDULING_METADATA: Final = ("labels", "annotations")


def update_options(old: Document, *, scheduling_gate: bool, resources_gate: bool) -> JobOptions:
    """Return the options that follow from the state of the stored Job."""
    open_for_change = _open_for_change(old)
    selector = old["spec"].get("selector")
    return JobOptions(
        mutable_scheduling=open_for_change if scheduling_gate else _is_suspended_before_start(old),
        mutable_resources=resources_gate and open_for_change,
        tolerate_bad_selector_values=bool(
            selector and validate_label_selector(selector, "spec.selector")
        ),
    )


def validate_job_update(new: Document, old: Document, options: JobOptions) -> list[FieldError]:
    spec, old_spec = new["spec"], old["spec"]
    errors = validate_metadata_update(new, old)
    errors += newly_invalid(
        validate_job_spec(spec, "spec", options),
        lambda: validate_job_spec(old_spec, "spec", options),
        "spec.template.spec",
    )
    errors += validate_template_annotations(spec, old_spec, "spec")
    errors += validate_memory_annotations(new, old)
    errors += _validate_completions(spec, old_spec)
    errors += _immutable_error(spec, old_spec, "selector")
    errors += _validate_template_change(spec, old_spec, options)
    for field in (
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        errors += _immutable_error(spec, old_spec, field)
    return errors + validate_index_names(new)


def _is_suspended_before_start(job: Document) -> bool:
    """Return whether the Job is suspended and has no startTime: it has not started yet, or
    suspension has cleared the time."""
    return bool(job["spec"].get("suspend")) and "startTime" not in job.get("status", {})


def _open_for_change(job: Document) -> bool:
    """Return whether the Job is suspended and has no running Pods.

    The suspension must be confirmed by the controller, or the Job must never have started.
    """
    status = job.get("status", {})
    if not job["spec"].get("suspend") or status.get("active"):
        return False
    return "startTime" not in status or any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions", ())
    )


def _immutable_error(
    spec: Mapping[str, Any], old_spec: Mapping[str, Any], field: str
) -> list[FieldError]:
    """Return an error if the field has changed, else an empty list."""
    new, old = spec.get(field), old_spec.get(field)
    # An empty policy or selector differs from an absent one.
    if (new is None) is (old is None) and same_meaning(new, old):
        return []
    return [invalid(f"spec.{field}", new, _IMMUTABLE)]


def _validate_completions(spec: Mapping[str, Any], old_spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("completionMode") != "Indexed":
        return _immutable_error(spec, old_spec, "completions")
    completions = spec.get("completions")
    # Removing completions from an Indexed Job is reported by another rule.
    if completions is None or completions == old_spec.get("completions"):
        return []
    if completions == spec.get("parallelism"):
        return []
    return [
        invalid(
            "spec.completions", completions, "can only be modified in tandem with spec.parallelism"
        )
    ]


def _validate_template_change(
    spec: Mapping[str, Any], old_spec: Mapping[str, Any], options: JobOptions
) -> list[FieldError]:
    new, old = spec.get("template", {}), old_spec.get("template", {})
    if same_meaning(new, old):
        return []
    left_new, left_old = new, old
    if options.mutable_scheduling:
        left_new, left_old = _without_scheduling(left_new), _without_scheduling(left_old)
    if options.mutable_resources:
        left_new, left_old = _without_resources(left_new, left_old)
    if same_meaning(left_new, left_old):
        return []
    if options.mutable_resources:
        return [invalid("spec.template.spec", new.get("spec"), _IMMUTABLE)]
    return [invalid("spec.template", new, _IMMUTABLE)]


def _without_scheduling(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template without the fields that may change while the Job is suspended."""
    metadata, spec = dict(template.get("metadata", {})), dict(template.get("spec", {}))
    for field in _SCHEDULING_METADATA:
        metadata.pop(field, None)
    for field in _SCHEDULING_SPEC:
        spec.pop(field, None)
    if "affinity" in spec:
        affinity = spec["affinity"]
        spec["affinity"] = {kind: affinity[kind] for kind in affinity if kind != "nodeAffinity"}
    return {**template, "metadata": metadata, "spec": spec}


def _without_resources(
    new: Mapping[str, Any], old: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both templates without resources, for containers with the same names in the same
    order."""
    new_spec, old_spec = dict(new.get("spec", {})), dict(old.get("spec", {}))
    for field in ("containers", "initContainers"):
        mine, theirs = new_spec.get(field, ()), old_spec.get(field, ())
        if [c.get("name") for c in mine] == [c.get("name") for c in theirs]:
            new_spec[field] = [{**container, "resources": {}} for container in mine]
            old_spec[field] = [{**container, "resources": {}} for container in theirs]
    return {**new, "spec": new_spec}, {**old, "spec": old_spec}
