"""API writes of a workflow sync."""

import msgspec
from msgspec import Struct, field

from onejob.client.base import Client, Create, Delete, Op, Patch, Selection
from onejob.client.write_series import WriteSeries
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import read_pod
from onejob.objects.workflow import Task, Workflow, WorkflowStatus
from onejob.planning.workflow.documents import status_patch
from onejob.planning.workflow.plan import CreationFailed, Plan
from onejob.planning.workflow.results import ResultsRead, holds_results, read_results
from onejob.planning.workflow.states import JOB_INVALID
from onejob.wire.errors import AlreadyExists, ApiError, Invalid, NotFound

_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


class Creations(Struct):
    """Outcome of creating Jobs. `error` is of a creation to repeat, or of a change of a Job."""

    #: UIDs by task.
    created: dict[str, str] = field(default_factory=dict)
    failed: list[CreationFailed] = field(default_factory=list)
    error: str | None = None
    job_revision: int = 0

    def fail(self, error: str) -> None:
        self.error = self.error or error


async def change_jobs(series: WriteSeries, plan: Plan, outcome: Creations) -> None:
    """Patch and delete Jobs.

    A Job that has changed meanwhile is left to a repetition: the change may be none for which a
    sync is due, as that of its labels.
    """
    ops: list[Op] = [Patch(change.job.key, change.body, "merge") for change in plan.changes]
    ops += [Delete(job.key, "Background", uid=job.metadata.uid) for job in plan.deletions]
    if not ops:
        return
    for result in await series.write_many(ops):
        if not isinstance(result, ApiError):
            outcome.job_revision = max(outcome.job_revision, result.revision)
        elif not isinstance(result, NotFound):
            outcome.fail(str(result))


async def create_jobs(client: Client, series: WriteSeries, plan: Plan, outcome: Creations) -> None:
    """Create the Jobs of tasks. One that exists already and belongs to the workflow is adopted."""
    namespace = plan.workflow.metadata.namespace
    ops = [Create(JOBS, namespace, creation.document) for creation in plan.creations]
    results = await series.write_many(ops)
    existing = []
    for creation, result in zip(plan.creations, results, strict=True):
        match result:
            case AlreadyExists():
                existing.append(creation)
            case Invalid():
                outcome.failed.append(CreationFailed(creation.task, JOB_INVALID, str(result)))
            case ApiError():
                outcome.fail(str(result))
            case _:
                outcome.created[creation.task] = read_job(result.document).metadata.uid
                outcome.job_revision = max(outcome.job_revision, result.revision)
    if existing:
        # An existing Job may be staged only: it can be read once it is on disk.
        await series.durable()
    for creation in existing:
        try:
            job = read_job(await client.get(Key(JOBS, namespace, creation.name)))
        except NotFound:
            outcome.fail(f"job {creation.name} was deleted meanwhile")
            continue
        outcome.job_revision = max(outcome.job_revision, job.metadata.revision)
        owner = job.metadata.controller_ref
        if owner is not None and owner.uid == plan.workflow.metadata.uid:
            outcome.created[creation.task] = job.metadata.uid
        else:
            # The next sync finds it in the cache, and fails the task.
            outcome.fail(f"job {creation.name} exists already")


async def require_unchanged(series: WriteSeries, workflow: Workflow) -> None:
    """Stage a patch that changes nothing. Raises Conflict where the status write would."""
    body = {"metadata": {"resourceVersion": workflow.metadata.resource_version}}
    await series.write(Patch(workflow.key, msgspec.json.encode(body), "merge", "status"))


async def write_status(series: WriteSeries, workflow: Workflow, status: WorkflowStatus) -> int:
    """Write the status. Return its revision."""
    body = status_patch(workflow, status)
    return (await series.write(Patch(workflow.key, body, "merge", "status"))).revision


async def find_results(client: Client, job: Job, task: Task) -> ResultsRead:
    """Read the results of a completed Job from its Pods, which the caches may not contain."""
    selection = Selection(
        PODS, job.metadata.namespace, labels=f"{_CONTROLLER_UID}={job.metadata.uid}"
    )
    listing = await client.list(selection)
    for document in listing.documents:
        pod = read_pod(document)
        if holds_results(pod):
            return read_results(pod, task.results)
    return ResultsRead({}, "its Pod was deleted before its results were read")


async def has_running_pods(client: Client, namespace: str, job_uid: str) -> bool:
    """Return whether Pods of a Job have yet to end, according to the server."""
    selection = Selection(PODS, namespace, labels=f"{_CONTROLLER_UID}={job_uid}")
    pods = (read_pod(document) for document in (await client.list(selection)).documents)
    # An orphaned Pod keeps its labels.
    return any(
        not pod.terminal and (owner := pod.metadata.controller_ref) and owner.uid == job_uid
        for pod in pods
    )
