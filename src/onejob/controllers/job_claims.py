"""Pod adoption and release, by the Pods' labels and the Job's selector."""

from collections.abc import Iterable

from onejob.client.base import Client, Patch, Written
from onejob.controllers.job_state import JobState
from onejob.informers.cache import Cache
from onejob.informers.workqueue import Retry
from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod
from onejob.planning.job.claiming import (
    Claims,
    adoption_patch,
    may_adopt,
    plan_claims,
    release_patch,
)
from onejob.planning.job.operator_settings import Settings, tracks_with_finalizers
from onejob.wire.errors import ApiError, Invalid, NotFound


async def claim_pods(
    client: Client, pods: Cache[Pod], job: Job, state: JobState, settings: Settings
) -> bool:
    """Adopt matching Pods without a controller; release owned Pods that no longer match.

    Return whether anything was written: then the caches must catch up before planning.
    """
    unclaimed, state.unclaimed = state.unclaimed, set()
    own = (state.census.get(uid) for uid in unclaimed)
    candidates = [pod for pod in own if pod is not None]
    claims = plan_claims(job, [*candidates, *_uncontrolled_pods(pods, job)])
    if not claims.releases and not claims.adoptions:
        return False
    try:
        await _release(client, job, claims, state)
        await _adopt_pods(client, job, claims, state, settings)
    except Exception:
        state.unclaimed |= unclaimed
        raise
    return True


def _uncontrolled_pods(pods: Cache[Pod], job: Job) -> Iterable[Pod]:
    """Return Pods without a controller that the selector may match, found through an index."""
    namespace = job.metadata.namespace
    if job.spec.selector is not None:
        for label, value in job.spec.selector.match_labels.items():
            return pods.find("uncontrolled", (namespace, label, value))
    return pods.find("uncontrolled", namespace)


async def _release(client: Client, job: Job, claims: Claims, state: JobState) -> None:
    """Release Pods that no longer match, and drop them from `state`.

    Raises the first error but NotFound and Invalid.
    """
    results = await client.write_many(
        [Patch(pod.key, release_patch(job, pod)) for pod in claims.releases]
    )
    for pod, result in zip(claims.releases, results, strict=True):
        if isinstance(result, Written):
            state.pod_revision = max(state.pod_revision, result.revision)
        elif not isinstance(result, NotFound | Invalid):
            raise result
        state.drop(pod.metadata.uid)


async def _adopt_pods(
    client: Client, job: Job, claims: Claims, state: JobState, settings: Settings
) -> None:
    """Adopt Pods, after a live read of the Job, and note their revisions in `state`.

    Raises Retry if the Job is gone, else the first error but NotFound, after all writes.
    """
    if not claims.adoptions:
        return
    if not may_adopt(job, await _read_live(client, job)):
        raise Retry(f"{job.key} was deleted or replaced and adopts no Pods")
    tracked = tracks_with_finalizers(job, settings)
    results = await client.write_many(
        [
            Patch(pod.key, adoption_patch(job, pod, settings, tracked=tracked))
            for pod in claims.adoptions
        ]
    )
    refusals: list[ApiError] = []
    for result in results:
        if isinstance(result, Written):
            state.pod_revision = max(state.pod_revision, result.revision)
        elif not isinstance(result, NotFound):
            refusals.append(result)
    if refusals:
        raise refusals[0]


async def _read_live(client: Client, job: Job) -> Job | None:
    """Return the Job's current state from the API server; None if it does not exist."""
    try:
        return read_job(await client.get(job.key))
    except NotFound:
        return None
