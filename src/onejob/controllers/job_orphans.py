"""Frees Pods that hold the tracking finalizer though no Job will ever count them."""

import logging

from onejob.api.errors import NotFound
from onejob.client.base import Client, Patch
from onejob.informers.loop import work
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import WorkQueue
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.planning.claiming import REMOVE_TRACKING_PATCH
from onejob.planning.pod_facts import is_tracked
from onejob.planning.routing import may_free
from onejob.planning.settings import Settings

log = logging.getLogger(__name__)


class OrphanPods:
    def __init__(self, client: Client, informers: SharedInformers, settings: Settings) -> None:
        self._client = client
        self._jobs = informers.jobs
        self._pods = informers.pods
        self._settings = settings
        self._queue: WorkQueue[Key] = WorkQueue()

    async def run(self, workers: int) -> None:
        await work(self._queue, self._free, workers=workers, name="job_orphan_pod")

    @property
    def idle(self) -> bool:
        return self._queue.idle

    def add(self, pod: Key) -> None:
        self._queue.add(pod)

    def add_pods_of(self, job: Job) -> None:
        """All Pods of a Job that has finished or is gone."""
        for pod in self._pods.cache.find("controller", job.metadata.uid):
            if is_tracked(pod):
                self._queue.add(pod.key)

    async def _free(self, key: Key) -> float | None:
        pod = self._pods.cache.get(key)
        if pod is None or not may_free(pod, self._jobs.cache.get, self._settings):
            return None
        try:
            await self._client.write(Patch(key, REMOVE_TRACKING_PATCH))
        except NotFound:
            log.debug("%s is gone already", key)
        return None
