"""Tracing of ended Jobs and containers. Only created if tracing is enabled."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from onejob.informers.cache import Delta
from onejob.informers.shared import SharedInformers
from onejob.objects.job import Job
from onejob.objects.pod import ContainerStatus, Pod
from onejob.tracing import Tracer

#: Number of recorded ends to remember; a new watch may deliver an object once more.
_REMEMBERED: Final = 10_000


class CompletionTracer:
    """Recorder of spans of ended Jobs and containers."""

    def __init__(self, tracer: Tracer, informers: SharedInformers) -> None:
        """Create after the informers have listed: earlier ends are not recorded."""
        self._tracer = tracer
        self._recorded: OrderedDict[tuple[str, ...], None] = OrderedDict()
        informers.jobs.on_change(self._jobs_changed)
        informers.pods.on_change(self._pods_changed)

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            job = delta.new
            if job is not None and job.finished and not (delta.old and delta.old.finished):
                self._job_ended(job)

    def _job_ended(self, job: Job) -> None:
        condition, start = job.finished_condition, job.status.start_time
        assert condition is not None, "it is finished"
        metadata = job.metadata
        end = condition.last_transition_time
        if start is None or end is None or not self._is_new(metadata.uid):
            return
        self._tracer.record(
            "job",
            metadata.uid,
            start,
            end,
            {
                "k8s.namespace.name": metadata.namespace,
                "k8s.job.name": metadata.name,
                "k8s.job.uid": metadata.uid,
                "onejob.job.succeeded": job.status.succeeded,
                "onejob.job.failed": job.status.failed,
            },
            whole=True,
            failure=condition.reason if condition.type == "Failed" else "",
        )

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            pod = delta.new
            if pod is not None:
                status = pod.status
                for one in (*status.init_container_statuses, *status.container_statuses):
                    self._trace_container(pod, one)

    def _trace_container(self, pod: Pod, container: ContainerStatus) -> None:
        ended, metadata = container.state.terminated, pod.metadata
        if ended is None or ended.started_at is None or ended.finished_at is None:
            return
        attempt = str(container.restart_count)
        if not self._is_new(metadata.uid, container.name, attempt):
            return
        owner = metadata.controller_ref
        job = owner if owner is not None and owner.kind == "Job" else None
        attributes: dict[str, str | int] = {
            "k8s.namespace.name": metadata.namespace,
            "k8s.pod.name": metadata.name,
            "k8s.pod.uid": metadata.uid,
            "k8s.container.name": container.name,
            "k8s.container.restart_count": container.restart_count,
            "onejob.container.exit_code": ended.exit_code,
        }
        if job is not None:
            attributes["k8s.job.name"] = job.name
        self._tracer.record(
            "container",
            metadata.uid if job is None else job.uid,
            ended.started_at,
            ended.finished_at,
            attributes,
            failure=f"{ended.reason}: exit code {ended.exit_code}" if ended.exit_code else "",
        )

    def _is_new(self, *what: str) -> bool:
        """Return whether this end has not been recorded yet, and note it.

        Only the last ends are remembered.
        """
        if what in self._recorded:
            return False
        self._recorded[what] = None
        if len(self._recorded) > _REMEMBERED:
            self._recorded.popitem(last=False)
        return True
