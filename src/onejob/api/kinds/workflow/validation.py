"""Validation of Workflows: the graph, and each template by the rules of Jobs."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from onejob.api.kinds.job.defaults import default_job_spec
from onejob.api.kinds.job.validation import (
    validate_index_names,
    validate_job_spec_but_selector,
    validate_managed_by,
    validate_memory_annotations,
    validate_template_annotations,
)
from onejob.api.kinds.metadata import validate_metadata_fields
from onejob.api.kinds.sameness import same_meaning
from onejob.objects.workflow import WorkflowSpec
from onejob.planning.workflow.checks import check_workflow
from onejob.wire.field_errors import FieldError, invalid, not_supported, required

_IMMUTABLE: Final = "field is immutable"
_IMMUTABLE_FIELDS: Final = ("tasks", "finally", "given", "managedBy")
_NON_NEGATIVE: Final = ("activeDeadlineSeconds", "ttlSecondsAfterFinished")
#: A Job's name is the value of a label of its Pods.
_MAX_JOB_NAME: Final = 63

_read_spec = msgspec.json.Decoder(WorkflowSpec).decode


def validate_workflow_spec(spec: Mapping[str, Any], path: str, name: str) -> list[FieldError]:
    """Validate a spec. `name` is that of the workflow, which the names of its Jobs begin with."""
    errors = validate_scalars(spec, path)
    if "managedBy" in spec:
        errors += validate_managed_by(spec["managedBy"], f"{path}.managedBy")
    graph_errors = check_workflow(_read_spec(msgspec.json.encode(spec)), path)
    errors += graph_errors
    if any(error.type in ("FieldValueTooMany", "FieldValueRequired") for error in graph_errors):
        return errors
    for field in ("tasks", "finally"):
        for number, task in enumerate(spec.get(field, ())):
            errors += _validate_task(task, f"{path}.{field}[{number}]", name)
    return errors


def validate_workflow_update(
    spec: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors = validate_scalars(spec, path)
    for field in _IMMUTABLE_FIELDS:
        if not same_meaning(spec.get(field), old.get(field)):
            errors.append(invalid(f"{path}.{field}", "", _IMMUTABLE))
    return errors


def validate_scalars(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = [
        invalid(f"{path}.{field}", spec[field], "must be greater than or equal to 0")
        for field in _NON_NEGATIVE
        if spec.get(field, 0) < 0
    ]
    if spec.get("parallelism", 1) < 1:
        text = "must be greater than or equal to 1; use suspend to start nothing"
        errors.append(invalid(f"{path}.parallelism", spec["parallelism"], text))
    return errors


def _validate_task(task: Mapping[str, Any], place: str, workflow: str) -> list[FieldError]:
    template = deepcopy(task.get("template") or {})
    path = f"{place}.template"
    errors = validate_metadata_fields(template.get("metadata") or {}, f"{path}.metadata")
    if not template.get("spec"):
        return [*errors, required(f"{path}.spec")]
    spec = template["spec"]
    default_job_spec(template)
    errors += validate_job_spec_but_selector(spec, f"{path}.spec")
    errors += validate_template_annotations(spec, None, f"{path}.spec")
    errors += validate_memory_annotations(template, None, f"{path}.")
    if "selector" in spec:
        text = "`selector` will be auto-generated"
        errors.append(invalid(f"{path}.spec.selector", spec["selector"], text))
    if spec.get("manualSelector"):
        errors.append(not_supported(f"{path}.spec.manualSelector", True, ["nil", "false"]))
    if task.get("results") and spec["completionMode"] != "Indexed" and spec.get("completions") != 1:
        text = "must be 1, or completionMode Indexed: results are those of one Pod"
        errors.append(invalid(f"{path}.spec.completions", spec.get("completions"), text))
    return errors + _validate_job_name(f"{workflow}-{task['name']}", spec, place)


def _validate_job_name(job: str, spec: Mapping[str, Any], place: str) -> list[FieldError]:
    at = f"{place}.name"
    if len(job) > _MAX_JOB_NAME:
        text = f"its Job is named {job}, which has more than {_MAX_JOB_NAME} characters"
        return [invalid(at, job, text)]
    return [
        invalid(at, job, error.detail)
        for error in validate_index_names({"metadata": {"name": job}, "spec": spec})
    ]
