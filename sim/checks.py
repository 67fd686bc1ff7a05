"""What must hold at every moment of every history, and at its end."""

from collections.abc import Sequence

from onejob.client.base import Client, Selection
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.pod_facts import completion_index
from sim.cluster import ScriptedNode


class History:
    """Follows what is stored, without faults, and notes every broken promise."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._pods: dict[Key, Pod] = {}
        #: The UIDs of all Pods there ever were.
        self._ever: set[str] = set()
        self._job: Job | None = None

    async def follow(self, client: Client) -> None:
        # One watch after the other would see two histories: Pods and Jobs are compared by
        # revision, so each event is checked against what was stored when it was written.
        listing = await client.list(Selection(PODS))
        async for batch in client.watch(Selection(PODS), after=listing.revision):
            for event in batch:
                if event.type == "BOOKMARK":
                    continue
                pod = read_pod(event.document)
                self._ever.add(pod.metadata.uid)
                if event.type == "DELETED":
                    self._pods.pop(event.key, None)
                else:
                    self._pods[event.key] = pod
            self._check_pods()
            await self._check_job(client)

    def check_end(self, job: Job, node: ScriptedNode, pods: Sequence[Pod]) -> None:
        status = job.status
        counted = status.uncounted_terminated_pods
        if counted is not None and (counted.succeeded or counted.failed):
            self.problems.append(f"a finished Job has uncounted Pods: {counted}")
        if len(node.started) != len(set(node.started)):
            self.problems.append("a Pod was started twice")
        if status.succeeded > node.succeeded:
            self.problems.append(f"{status.succeeded} counted, {node.succeeded} succeeded")
        if status.succeeded + status.failed > len(self._ever):
            self.problems.append(f"{status} counts more than {len(self._ever)} Pods")
        if job.condition_is_true("Complete") and status.succeeded < (job.spec.completions or 0):
            self.problems.append(f"Complete with {status.succeeded} of {job.spec.completions}")
        held = [pod.metadata.name for pod in pods if pod.metadata.finalizers]
        if held:
            self.problems.append(f"finalizers are left on {held}")
        running = [pod.metadata.name for pod in pods if not pod.terminal]
        if running:
            self.problems.append(f"a finished Job has Pods that run: {running}")

    def _check_pods(self) -> None:
        active: dict[int, list[str]] = {}
        for pod in self._pods.values():
            index = completion_index(pod)
            if pod.active and index is not None:
                active.setdefault(index, []).append(pod.metadata.name)
        for index, names in active.items():
            if len(names) > 1:
                self.problems.append(f"index {index} has several active Pods: {names}")

    async def _check_job(self, client: Client) -> None:
        for document in (await client.list(Selection(JOBS))).documents:
            job = read_job(document)
            before, self._job = self._job, job
            if before is None or before.metadata.uid != job.metadata.uid:
                continue
            if before.status.failed > job.status.failed:
                self.problems.append("the failed counter fell")
            if before.status.succeeded > job.status.succeeded:
                self.problems.append("the succeeded counter fell")
            if before.finished and not job.finished:
                self.problems.append("a finished Job is not finished any more")
