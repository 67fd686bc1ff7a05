"""spec.failedPodsLimit: how many failed Pods to keep once they are accounted for."""

from heapq import nsmallest

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.backoff import annotated_number
from onejob.planning.job.counting import Census
from onejob.planning.job.managing import tracks_with_finalizers
from onejob.planning.job.oom import oom_factor, retries_after
from onejob.planning.job.plan import PodRef
from onejob.planning.job.pod_facts import completion_index, finish_time
from onejob.planning.job.settings import Settings
from onejob.planning.names import FAILED_PODS_LIMIT_ANNOTATION
from onejob.planning.pod.restart_policy import restart_policy_of


def failed_pods_limit(job: Job, settings: Settings) -> int | None:
    """None: keep all. With OnFailure a Pod that fails is not one attempt of many, so none go."""
    limit = job.spec.failed_pods_limit
    if limit is None:
        limit = annotated_number(job.metadata, FAILED_PODS_LIMIT_ANNOTATION)
    if limit is None:
        limit = settings.default_failed_pods_limit
    # Asked of every Pod that changes, so the template is looked into last.
    return None if limit is None or restart_policy_of(job) == "OnFailure" else limit


def keeps_accounted_pods(job: Job, settings: Settings) -> bool:
    """Whether a sync may still act on Pods that have ended and hold no finalizer: to prune them,
    because they are counted by existence, or because they say how much memory the next need."""
    return (
        failed_pods_limit(job, settings) is not None
        or not tracks_with_finalizers(job, settings)
        or oom_factor(job) is not None
    )


def prune_failed_pods(job: Job, census: Census, settings: Settings) -> tuple[PodRef, ...]:
    """The failed Pods to delete, oldest first. Those that hold the finalizer are not yet
    accounted for, or carry an index's failure count, and stay."""
    limit = failed_pods_limit(job, settings)
    if limit is None or not (job.finished or tracks_with_finalizers(job, settings)):
        # A Job that counts the Pods that exist would forget those that it deletes.
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


def _not_needed_for_memory(job: Job, census: Census, failed: list[Pod]) -> list[Pod]:
    """Without those that alone say how much memory the next Pod, or that of their index, needs."""
    most: dict[int | None, Pod] = {}
    for pod in (*failed, *census.active.values(), *census.ended.values(), *census.ending.values()):
        index = completion_index(pod) if job.indexed else None
        # Of equal ones the last: it is not about to be pruned.
        if index not in most or retries_after(pod) >= retries_after(most[index]):
            most[index] = pod
    kept = {pod.metadata.uid for pod in most.values() if retries_after(pod)}
    return [pod for pod in failed if pod.metadata.uid not in kept]
