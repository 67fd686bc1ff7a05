"""API writes of a Job sync, one function per kind of write."""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from onejob.client.base import Create, Delete, Patch, Result, Written
from onejob.client.write_series import WriteSeries
from onejob.controllers.job_state import JobState
from onejob.objects.meta import PODS, Key, key_at
from onejob.planning.job.claiming import REMOVE_TRACKING_PATCH, remove_tracking_patch
from onejob.planning.job.plan import (
    Event,
    Plan,
    PodDeletion,
    PodOutcomes,
    PodRef,
    PodSeed,
    RemovalOutcomes,
)
from onejob.planning.job.pod_template import PodFactory
from onejob.planning.job.reporting import (
    pod_create_failed,
    pod_created,
    pod_delete_failed,
    pod_deleted,
)
from onejob.wire.errors import ApiError, Conflict, Forbidden, NotFound

RecordEvents = Callable[[Sequence[Event]], None]


class _Tally(Struct):
    deleted: set[str] = field(default_factory=set)
    created: int = 0
    create_failures: int = 0
    error: str | None = None

    def fail(self, error: str) -> None:
        """Note an error; only the first is kept."""
        self.error = self.error or error

    def outcomes(self) -> PodOutcomes:
        """Return the results of the Pod changes."""
        return PodOutcomes(frozenset(self.deleted), self.created, self.create_failures, self.error)


async def change_pods(
    client: WriteSeries,
    plan: Plan,
    pod_factory: PodFactory,
    state: JobState,
    record_events: RecordEvents,
) -> PodOutcomes:
    """Delete and create Pods according to the plan; return the outcomes."""
    namespace = plan.job.metadata.namespace
    tally = _Tally()
    if plan.prunings:
        await _prune(client, namespace, plan.prunings, state, tally)
    if plan.deletions:
        await _delete(client, namespace, plan.deletions, state, record_events, tally)
    if plan.creations:
        await _create(client, namespace, plan.creations, pod_factory, state, record_events, tally)
    return tally.outcomes()


async def remove_finalizers(
    client: WriteSeries, namespace: str, pods: Sequence[PodRef], state: JobState
) -> RemovalOutcomes:
    patches = [Patch(key_at((PODS, namespace, pod.name)), REMOVE_TRACKING_PATCH) for pod in pods]
    return await _remove_finalizers(client, pods, patches, state)


async def _remove_finalizers(
    client: WriteSeries,
    pods: Sequence[PodRef | PodDeletion],
    patches: Sequence[Patch],
    state: JobState,
) -> RemovalOutcomes:
    results = await client.write_many(patches)
    removed: set[str] = set()
    error: str | None = None
    for pod, result in zip(pods, results, strict=True):
        if _succeeded(pod.uid, result, state):
            removed.add(pod.uid)
        else:
            error = error or str(result)
    return RemovalOutcomes(frozenset(removed), error)


async def _prune(
    client: WriteSeries, namespace: str, pods: Sequence[PodRef], state: JobState, tally: _Tally
) -> None:
    """Delete failed Pods beyond the limit; errors are noted in `tally`."""
    results = await client.write_many(
        [Delete(Key(PODS, namespace, pod.name), uid=pod.uid) for pod in pods]
    )
    for pod, result in zip(pods, results, strict=True):
        if not _succeeded(pod.uid, result, state):
            tally.fail(str(result))
        elif isinstance(result, NotFound):
            # The caches do not keep counted Pods, so no change will report the deletion.
            state.drop(pod.uid)


async def _delete(
    client: WriteSeries,
    namespace: str,
    deletions: Sequence[PodDeletion],
    state: JobState,
    record_events: RecordEvents,
    tally: _Tally,
) -> None:
    """Delete Pods, record the results in `tally`, and report them by Events."""
    wanted = list(deletions)
    to_free = [pod for pod in wanted if pod.remove_finalizer_first]
    if to_free:
        # A Pod that has ended since must stay and be counted: remove the finalizer only from the
        # version that was evaluated.
        patches = [
            Patch(Key(PODS, namespace, pod.name), remove_tracking_patch(pod.resource_version))
            for pod in to_free
        ]
        freed = await _remove_finalizers(client, to_free, patches, state)
        if freed.error is not None:
            tally.fail(freed.error)
            wanted = [
                pod for pod in wanted if not pod.remove_finalizer_first or pod.uid in freed.removed
            ]
    results = await client.write_many([_deletion(namespace, pod) for pod in wanted])
    events: list[Event] = []
    for pod, result in zip(wanted, results, strict=True):
        if _succeeded(pod.uid, result, state):
            tally.deleted.add(pod.uid)
            if isinstance(result, Written):
                events.append(pod_deleted(pod.name))
        else:
            tally.fail(str(result))
            # That the Pod changed in between is normal and not worth an Event.
            if not isinstance(result, Conflict):
                events.append(pod_delete_failed(str(result)))
    record_events(events)


def _deletion(namespace: str, pod: PodDeletion) -> Delete:
    """Return the deletion of a Pod, with the preconditions that its accounting needs."""
    # A Pod stopped because its Job ends is counted in the state observed here, so it must not have
    # ended since. A Pod whose finalizer was removed first is not counted at all.
    version = "" if pod.remove_finalizer_first else pod.resource_version
    key = Key(PODS, namespace, pod.name)
    return Delete(key, "Background", uid=pod.uid, resource_version=version)


async def _create(
    client: WriteSeries,
    namespace: str,
    seeds: Sequence[PodSeed],
    pod_factory: PodFactory,
    state: JobState,
    record_events: RecordEvents,
    tally: _Tally,
) -> None:
    """Create Pods in batches that double, also across syncs (slow start).

    A quota or a bad template then costs few attempts, and a healthy Job few round trips.
    """
    position, size = 0, state.create_batch_size
    while position < len(seeds):
        batch = seeds[position : position + size]
        pods = [pod_factory.creation(seed) for seed in batch]
        results = await client.write_many(
            [Create(PODS, namespace, pod.body, variation=pod.variation) for pod in pods]
        )
        refused = False
        events: list[Event] = []
        for result in results:
            if type(result) is Written:
                if result.revision > state.pod_revision:
                    state.pod_revision = result.revision
                tally.created += 1
                events.append(pod_created(result.created_name or result.name))
                continue
            refused = True
            _after_refusal(result, state)
            if not _namespace_is_ending(result):
                tally.create_failures += 1
                tally.fail(str(result))
                events.append(pod_create_failed(str(result)))
        record_events(events)
        if refused:
            state.create_batch_size = 1
            return
        position += len(batch)
        if len(batch) == size:
            size *= 2
            state.create_batch_size = size


def _succeeded(uid: str, result: Result, state: JobState) -> bool:
    """Return whether a write took effect.

    A Pod that does not exist needs no change and counts as success.
    """
    if type(result) is Written:
        if result.revision > state.pod_revision:
            state.pod_revision = result.revision
        return True
    if isinstance(result, NotFound):
        # There is no revision at which the cache is known to include the deletion.
        state.drop_before_cache(uid)
        return True
    _after_refusal(result, state)
    return False


def _after_refusal(error: ApiError, state: JobState) -> None:
    """Request a relist after a 5xx error.

    A server that refuses (4xx) has not written; one that fails may have.
    """
    if error.code >= 500:
        state.needs_relist = True


def _namespace_is_ending(error: ApiError) -> bool:
    """Return whether a creation failed because its namespace is being deleted."""
    causes = error.details.get("causes", ())
    return isinstance(error, Forbidden) and any(
        cause.get("reason") == "NamespaceTerminating" for cause in causes
    )
