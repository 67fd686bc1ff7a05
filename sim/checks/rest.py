"""Check of the final state, once the world is at rest."""

from collections.abc import Iterable, Sequence

import msgspec

from onejob.control_plane import ControlPlane
from onejob.objects.cronjob import read_cronjob
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, JOBS, NAMESPACES, PODS, WORKFLOWS, Meta, View
from onejob.objects.pod import read_pod
from onejob.objects.workflow import read_workflow
from sim.checks.policies import time_to_live
from sim.checks.ran import Machinery


class _Any(View, frozen=True):
    kind: str = ""
    metadata: Meta = Meta()


_read = msgspec.json.Decoder(_Any).decode


def left_over(plane: ControlPlane, machine: Machinery, now: float) -> Sequence[str]:
    """Return descriptions of objects that are in progress, terminating, or without their owner."""
    return [
        *_objects(plane),
        *_jobs(plane),
        *_pods(plane),
        *_cronjobs(plane),
        *_workflows(plane),
        *(f"{ref} still runs" for ref, ran in machine.ran.items() if ran.state(now) != "ended"),
        *machine.left_over(),
    ]


def _documents(plane: ControlPlane, resource: str) -> Iterable[bytes]:
    return (item.value for item in plane.store.list(resource).items)


def _objects(plane: ControlPlane) -> Iterable[str]:
    everything = [
        _read(document)
        for resource in (NAMESPACES, CRONJOBS, WORKFLOWS, JOBS, PODS)
        for document in _documents(plane, resource)
    ]
    uids = {found.metadata.uid for found in everything}
    namespaces = {found.metadata.name for found in everything if found.kind == "Namespace"}
    for found in everything:
        metadata = found.metadata
        name = f"{found.kind} {metadata.namespace}/{metadata.name}"
        if metadata.deleting:
            yield f"{name} is deleted and still there, held by {metadata.finalizers}"
        if metadata.namespace and metadata.namespace not in namespaces:
            yield f"{name} is in a namespace that is gone"
        if metadata.owner_references and not any(
            owner.uid in uids for owner in metadata.owner_references
        ):
            yield f"{name} has no owner any more"


def _jobs(plane: ControlPlane) -> Iterable[str]:
    for job in map(read_job, _documents(plane, JOBS)):
        name = f"Job {job.metadata.namespace}/{job.metadata.name}"
        if not job.finished:
            yield f"{name} did not finish after the faults: {job.status}"
        elif time_to_live(job) is not None:
            yield f"{name} is finished and its time to live is over"


def _pods(plane: ControlPlane) -> Iterable[str]:
    for pod in map(read_pod, _documents(plane, PODS)):
        name = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        if not pod.terminal:
            yield f"{name} has not ended: {pod.phase}"
        elif pod.spec.ttl_seconds_after_finished is not None:
            yield f"{name} has ended and its time to live is over"
        if pod.metadata.finalizers:
            yield f"{name} holds {pod.metadata.finalizers}"


def _cronjobs(plane: ControlPlane) -> Iterable[str]:
    jobs = [read_job(document) for document in _documents(plane, JOBS)]
    for cronjob in map(read_cronjob, _documents(plane, CRONJOBS)):
        name = f"CronJob {cronjob.metadata.namespace}/{cronjob.metadata.name}"
        own = [job for job in jobs if _owner(job) == cronjob.metadata.uid]
        failed = sum(job.condition_is_true("Failed") for job in own)
        if len(own) - failed > (cronjob.spec.successful_jobs_history_limit or 0):
            yield f"{name} keeps {len(own) - failed} successful Jobs"
        if failed > (cronjob.spec.failed_jobs_history_limit or 0):
            yield f"{name} keeps {failed} failed Jobs"
        if cronjob.status.active:
            yield f"{name} calls Jobs active that are over"


def _workflows(plane: ControlPlane) -> Iterable[str]:
    for workflow in map(read_workflow, _documents(plane, WORKFLOWS)):
        if not workflow.finished:
            name = f"Workflow {workflow.metadata.namespace}/{workflow.metadata.name}"
            yield f"{name} did not finish after the faults: {workflow.status}"


def _owner(job: Job) -> str:
    owner = job.metadata.controller_ref
    return "" if owner is None else owner.uid
