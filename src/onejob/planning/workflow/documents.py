"""Documents written for a workflow: Jobs of tasks, patches of Jobs, and the status patch."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onejob.objects.job import Job
from onejob.objects.workflow import API_VERSION, Task, Workflow, WorkflowStatus
from onejob.planning.names import (
    FAILURE_TTL_ANNOTATION,
    SUCCESS_TTL_ANNOTATION,
    WORKFLOW_START_FINALIZER,
)
from onejob.planning.workflow.results import add_result_variable, may_refer, substitute

#: Labels of a task's Job.
WORKFLOW_LABEL: Final = "onejob.dev/workflow"
TASK_LABEL: Final = "onejob.dev/task"
#: Annotation of a Job that was suspended because its workflow is.
SUSPENDED_ANNOTATION: Final = "onejob.dev/suspended-by-workflow"

_TTL_FIELD: Final = "ttlSecondsAfterFinished"
_TTL_ANNOTATIONS: Final = (SUCCESS_TTL_ANNOTATION, FAILURE_TTL_ANNOTATION)

Results = Mapping[str, Mapping[str, str]]


def job_name(workflow: Workflow, task: Task) -> str:
    """Return the name of the task's Job: the same after a crash, so it is created only once."""
    return f"{workflow.metadata.name}-{task.name}"


def job_document(
    workflow: Workflow, task: Task, results: Results, *, with_finalizer: bool = False
) -> bytes:
    """Return the Job to create, with `results` of earlier tasks.

    Its TTL is left out until its end is recorded: see `ttl_patch`.
    """
    template = task.template
    spec: Any = template.spec
    raw = bytes(template.spec)
    if task.results or may_refer(raw) or b'"ttlSecondsAfterFinished"' in raw:
        spec = msgspec.json.decode(raw)
        spec.pop(_TTL_FIELD, None)
        substitute(spec, results)
        if task.results:
            add_result_variable(spec)
    metadata: dict[str, Any] = {
        "name": job_name(workflow, task),
        "labels": {
            **template.metadata.labels,
            WORKFLOW_LABEL: workflow.metadata.name,
            TASK_LABEL: task.name,
        },
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "Workflow",
                "name": workflow.metadata.name,
                "uid": workflow.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if with_finalizer:
        metadata["finalizers"] = [WORKFLOW_START_FINALIZER]
    annotations = {
        name: text
        for name, text in template.metadata.annotations.items()
        if name not in _TTL_ANNOTATIONS
    }
    if annotations:
        metadata["annotations"] = annotations
    return msgspec.json.encode(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    )


def has_ttl(task: Task) -> bool:
    annotations = task.template.metadata.annotations
    return b'"ttlSecondsAfterFinished"' in bytes(task.template.spec) or any(
        name in annotations for name in _TTL_ANNOTATIONS
    )


def ttl_patch(task: Task, job: Job) -> bytes | None:
    """Return the patch that gives a finished Job the TTL of its template; None if it has none.

    Before its end and results are recorded, the Job must not be deleted.
    """
    wanted: dict[str, Any] = {}
    raw = bytes(task.template.spec)
    if b'"ttlSecondsAfterFinished"' in raw and job.spec.ttl_seconds_after_finished is None:
        ttl = msgspec.json.decode(raw).get(_TTL_FIELD)
        if ttl is not None:
            wanted["spec"] = {_TTL_FIELD: ttl}
    annotations = {
        name: task.template.metadata.annotations[name]
        for name in _TTL_ANNOTATIONS
        if name in task.template.metadata.annotations and name not in job.metadata.annotations
    }
    if annotations:
        wanted["metadata"] = {"annotations": annotations}
    return _patch(job, wanted) if wanted else None


def suspend_patch(job: Job) -> bytes:
    annotations = {SUSPENDED_ANNOTATION: ""}
    return _patch(job, {"metadata": {"annotations": annotations}, "spec": {"suspend": True}})


def resume_patch(job: Job) -> bytes:
    annotations = {SUSPENDED_ANNOTATION: None}
    return _patch(job, {"metadata": {"annotations": annotations}, "spec": {"suspend": False}})


def release_patch(uid: str) -> bytes:
    """Return the strategic merge patch that removes the start finalizer."""
    removed = {"$deleteFromPrimitiveList/finalizers": [WORKFLOW_START_FINALIZER]}
    return msgspec.json.encode({"metadata": {"uid": uid, **removed}})


def stop_patch(job: Job) -> bytes:
    """Return the patch that ends a Job in order: its Pods are deleted, then it fails."""
    return _patch(job, {"spec": {"activeDeadlineSeconds": 0}})


def status_patch(workflow: Workflow, status: WorkflowStatus) -> bytes:
    """Return a merge patch for `/status` that fails with Conflict if the workflow has changed."""
    old = workflow.status
    changed: dict[str, Any] = {}
    for name, field in zip(status.__struct_fields__, status.__struct_encode_fields__, strict=True):
        value = getattr(status, name)
        if value != getattr(old, name):
            # A default is written as null: fields with it are not stored.
            changed[field] = value if value else None
    body = {
        "metadata": {"resourceVersion": workflow.metadata.resource_version},
        "status": changed,
    }
    return msgspec.json.encode(body)


def _patch(job: Job, body: dict[str, Any]) -> bytes:
    metadata = {**body.get("metadata", {}), "resourceVersion": job.metadata.resource_version}
    return msgspec.json.encode({**body, "metadata": metadata})
