"""Orphan Pods: remove the tracking finalizer from Pods that no Job will ever count."""

import logging
from collections import OrderedDict

from onejob.client.base import Client, Patch
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, Key
from onejob.objects.pod import Pod
from onejob.planning.job.claiming import release_finalizer_patch
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.job.routing import may_release_finalizer
from onejob.wire.errors import NotFound

log = logging.getLogger(__name__)

#: Number of deleted Jobs to remember.
_REMEMBERED = 4096


class OrphanPods:
    """Queue of Pods whose tracking finalizer may have to be removed."""

    def __init__(self, client: Client, informers: SharedInformers, settings: Settings) -> None:
        self._client = client
        self._jobs = informers.jobs
        self._pods = informers.pods
        self._settings = settings
        self.queue: WorkQueue[Key] = WorkQueue()
        #: UIDs of Jobs known to be deleted, which need not be looked up on the server.
        self._gone: OrderedDict[str, None] = OrderedDict()

    async def run(self, workers: int) -> None:
        """Process the queue until cancelled."""
        await work(self.queue, self._release_pod, workers=workers, name="job_orphan_pod")

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self.queue.idle

    def add(self, pod: Key) -> None:
        """Queue a Pod."""
        self.queue.add(pod)

    def job_gone(self, job: Job) -> None:
        self._gone[job.metadata.uid] = None
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        self.add_pods_of(job)

    def add_pods_of(self, job: Job) -> None:
        """Queue all tracked Pods of a Job that has finished or was deleted."""
        for pod in self._pods.cache.find("controller", job.metadata.uid):
            if is_tracked(pod):
                self.queue.add(pod.key)

    async def _release_pod(self, key: Key) -> float | None:
        """Remove the finalizer of a Pod whose Job is gone; return None, since no further look is
        needed."""
        pod = self._pods.cache.get(key)
        if pod is None or not may_release_finalizer(pod, self._jobs.cache.get, self._settings):
            return None
        if self._job_is_unknown(pod):
            # The caches are updated independently: the Job may be new rather than deleted.
            live = await self._live_job(pod)
            if not may_release_finalizer(pod, lambda job: live, self._settings):
                return None
        try:
            await self._client.write(Patch(key, release_finalizer_patch(pod)))
        except NotFound:
            log.debug("%s is already deleted", key)
        return None

    def _job_is_unknown(self, pod: Pod) -> bool:
        """Return whether the cache lacks the Pod's Job, which is not known to be gone."""
        owner = pod.metadata.controller_ref
        if owner is None or owner.uid in self._gone:
            return False
        job = self._jobs.cache.get(Key(JOBS, pod.metadata.namespace, owner.name))
        return job is None or job.metadata.uid != owner.uid

    async def _live_job(self, pod: Pod) -> Job | None:
        """Return the Job of the Pod's owner name from the API server; None if it does not exist."""
        owner = pod.metadata.controller_ref
        assert owner is not None, "only an owner that is named can be unknown"
        try:
            return read_job(await self._client.get(Key(JOBS, pod.metadata.namespace, owner.name)))
        except NotFound:
            return None
