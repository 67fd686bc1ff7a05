"""Start finalizers: Jobs of tasks that cannot disappear before their UIDs are recorded.

On another cluster, the creation of a Job and the status that records it are two writes. A Job that
is deleted between them, around a crash, would look as if it had never been created, and its task
would start again. Such Jobs are therefore created with a finalizer, which is removed when the
status is on disk. Nothing is removed on a guess: a Job without a finalizer costs no request.
"""

from collections.abc import Iterator, Mapping

from onejob.client.base import Client, Patch
from onejob.informers.cache import Delta
from onejob.informers.workqueue import Retry
from onejob.objects.job import Job
from onejob.objects.meta import WORKFLOWS, Key
from onejob.objects.workflow import Workflow
from onejob.planning.names import WORKFLOW_START_FINALIZER
from onejob.planning.workflow.documents import WORKFLOW_LABEL, release_patch
from onejob.wire.errors import ApiError, NotFound


class HeldJobs:
    """Jobs that have the finalizer, by workflow."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: UIDs by key of the Job.
        self._held: dict[Key, dict[Key, str]] = {}

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the workflows that have such Jobs."""
        return iter(self._held)

    def see(self, delta: Delta[Job]) -> None:
        if delta.new is not None and _is_held(delta.new):
            self.add(_workflow_of(delta.new), {delta.key: delta.new.metadata.uid})
        elif delta.old is not None and _is_held(delta.old):
            self._discard(_workflow_of(delta.old), delta.key)

    def add(self, workflow: Key, jobs: Mapping[Key, str]) -> None:
        self._held.setdefault(workflow, {}).update(jobs)

    async def release(self, key: Key, workflow: Workflow | None) -> None:
        """Remove the finalizer from the Jobs whose UIDs are in the status, which is on disk.

        If the workflow starts no more tasks, from all of them. Raises Retry.
        """
        held = self._held.get(key)
        if not held:
            return
        if workflow is None and await self._exists(key):
            # The cache is behind.
            raise Retry(f"the cache lacks {key}")
        recorded = None
        if workflow is not None and not workflow.finished and not workflow.metadata.deleting:
            recorded = {task.job_uid for task in workflow.status.tasks}
        for job, uid in list(held.items()):
            if recorded is None or uid in recorded:
                await self._release(job, uid)
                self._discard(key, job)

    async def _exists(self, key: Key) -> bool:
        try:
            await self._client.get(key)
        except NotFound:
            return False
        return True

    async def _release(self, job: Key, uid: str) -> None:
        try:
            await self._client.write(Patch(job, release_patch(uid)))
        except NotFound:
            return
        except ApiError as error:
            raise Retry(str(error)) from error

    def _discard(self, workflow: Key, job: Key) -> None:
        held = self._held.get(workflow)
        if held is not None:
            held.pop(job, None)
            if not held:
                del self._held[workflow]


def _is_held(job: Job) -> bool:
    return WORKFLOW_START_FINALIZER in job.metadata.finalizers


def _workflow_of(job: Job) -> Key:
    """Return the workflow that created a Job. An orphaned Job has no owner, but keeps its label."""
    name = job.metadata.labels.get(WORKFLOW_LABEL, "")
    return Key(WORKFLOWS, job.metadata.namespace, name)
