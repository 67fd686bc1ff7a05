"""spec.failedPodsLimit: number of failed Pods to keep after they are accounted for."""

from heapq import nsmallest

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.counting import JobPods
from onejob.planning.job.oom import oom_factor, retries_after
from onejob.planning.job.operator_settings import Settings, tracks_with_finalizers
from onejob.planning.job.plan import PodRef
from onejob.planning.job.pod_facts import completion_index, finish_time
from onejob.planning.metadata_values import annotated_number
from onejob.planning.names import FAILED_PODS_LIMIT_ANNOTATION
from onejob.planning.pod.restart_policy import restart_policy_of


def failed_pods_limit(job: Job, settings: Settings) -> int | None:
    """Return the limit; None keeps all failed Pods.

    Always None with restartPolicy OnFailure, where a failed Pod is not one attempt of many.
    """
    limit = job.spec.failed_pods_limit
    if limit is None:
        limit = annotated_number(job.metadata, FAILED_PODS_LIMIT_ANNOTATION)
    if limit is None:
        limit = settings.default_failed_pods_limit
    # Called for every Pod change, so the template is parsed last.
    return None if limit is None or restart_policy_of(job) == "OnFailure" else limit


def keeps_accounted_pods(job: Job, settings: Settings) -> bool:
    """Return whether a sync may still use ended Pods without finalizer.

    It does so to prune them, because they are counted by existence, or because they carry the OOM
    count for the next Pod.
    """
    return (
        failed_pods_limit(job, settings) is not None
        or not tracks_with_finalizers(job, settings)
        or oom_factor(job) is not None
    )


def prune_failed_pods(job: Job, census: JobPods, settings: Settings) -> tuple[PodRef, ...]:
    """Return the failed Pods to delete, oldest first.

    Pods that hold the finalizer stay: they are not yet accounted for, or carry an index's failure
    count.
    """
    limit = failed_pods_limit(job, settings)
    if limit is None or not (job.finished or tracks_with_finalizers(job, settings)):
        # A Job counted by existence would lose the failures it deletes.
        return ()
    failed = [
        pod
        for pod in census.accounted.values()
        if pod.status.phase == "Failed" and not pod.metadata.deleting
    ]
    if oom_factor(job) is not None and not job.finished:
        failed = _not_needed_for_memory(job, census, failed)
    excess = nsmallest(
        len(failed) - limit, failed, key=lambda pod: (finish_time(pod), pod.metadata.name)
    )
    return tuple(PodRef(pod.metadata.name, pod.metadata.uid) for pod in excess)


def _not_needed_for_memory(job: Job, census: JobPods, failed: list[Pod]) -> list[Pod]:
    """Return `failed` without Pods that alone carry the OOM count of the Job or of their index."""
    most: dict[int | None, Pod] = {}
    for pod in (*failed, *census.active.values(), *census.ended.values(), *census.ending.values()):
        index = completion_index(pod) if job.indexed else None
        # Of equal counts keep the last one, which is not about to be pruned.
        if index not in most or retries_after(pod) >= retries_after(most[index]):
            most[index] = pod
    kept = {pod.metadata.uid for pod in most.values() if retries_after(pod)}
    return [pod for pod in failed if pod.metadata.uid not in kept]
