"""What a Job sync does to the world, one function per kind of effect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from onejob.client.ahead import Ahead
from onejob.client.base import Create, Delete, Patch, Result, Written
from onejob.controllers.job_memory import Memory
from onejob.objects.meta import PODS, Key
from onejob.planning.job.claiming import REMOVE_TRACKING_PATCH, remove_tracking_if_unchanged
from onejob.planning.job.plan import (
    Event,
    Plan,
    PodDeletion,
    PodOutcomes,
    PodRef,
    PodSeed,
    RemovalOutcomes,
)
from onejob.planning.job.pod_template import PodStamp
from onejob.planning.job.telling import (
    pod_create_failed,
    pod_created,
    pod_delete_failed,
    pod_deleted,
)
from onejob.wire.errors import ApiError, Conflict, Forbidden, NotFound

Tell = Callable[[Event], None]


@dataclass(slots=True)
class _Tally:
    deleted: set[str] = field(default_factory=set)
    created: int = 0
    create_failures: int = 0
    error: str | None = None

    def fail(self, error: str) -> None:
        self.error = self.error or error

    def outcomes(self) -> PodOutcomes:
        return PodOutcomes(frozenset(self.deleted), self.created, self.create_failures, self.error)


async def change_pods(
    client: Ahead, plan: Plan, stamp: PodStamp, memory: Memory, tell: Tell
) -> PodOutcomes:
    """Delete and create the Pods that the plan names."""
    namespace = plan.job.metadata.namespace
    tally = _Tally()
    if plan.prunings:
        await _prune(client, namespace, plan.prunings, memory, tally)
    if plan.deletions:
        await _delete(client, namespace, plan.deletions, memory, tell, tally)
    if plan.creations:
        await _create(client, namespace, plan.creations, stamp, memory, tell, tally)
    return tally.outcomes()


async def remove_finalizers(
    client: Ahead, namespace: str, pods: Sequence[PodRef], memory: Memory
) -> RemovalOutcomes:
    patches = [Patch(Key(PODS, namespace, pod.name), REMOVE_TRACKING_PATCH) for pod in pods]
    return await _free(client, pods, patches, memory)


async def _free(
    client: Ahead,
    pods: Sequence[PodRef | PodDeletion],
    patches: Sequence[Patch],
    memory: Memory,
) -> RemovalOutcomes:
    results = await client.write_many(patches)
    removed: set[str] = set()
    error: str | None = None
    for pod, result in zip(pods, results, strict=True):
        if _succeeded(pod.uid, result, memory):
            removed.add(pod.uid)
        else:
            error = error or str(result)
    return RemovalOutcomes(frozenset(removed), error)


async def _prune(
    client: Ahead, namespace: str, pods: Sequence[PodRef], memory: Memory, tally: _Tally
) -> None:
    results = await client.write_many(
        [Delete(Key(PODS, namespace, pod.name), uid=pod.uid) for pod in pods]
    )
    for pod, result in zip(pods, results, strict=True):
        if not _succeeded(pod.uid, result, memory):
            tally.fail(str(result))
        elif isinstance(result, NotFound):
            # The caches do not keep such Pods, so nobody will say that it went.
            memory.drop(pod.uid)


async def _delete(
    client: Ahead,
    namespace: str,
    deletions: Sequence[PodDeletion],
    memory: Memory,
    tell: Tell,
    tally: _Tally,
) -> None:
    wanted = list(deletions)
    to_free = [pod for pod in wanted if pod.free_first]
    if to_free:
        # Of a Pod that has ended unseen the work is done: it must stay, and be counted.
        patches = [
            Patch(
                Key(PODS, namespace, pod.name), remove_tracking_if_unchanged(pod.resource_version)
            )
            for pod in to_free
        ]
        freed = await _free(client, to_free, patches, memory)
        if freed.error is not None:
            tally.fail(freed.error)
            wanted = [pod for pod in wanted if not pod.free_first or pod.uid in freed.removed]
    results = await client.write_many([_deletion(namespace, pod) for pod in wanted])
    for pod, result in zip(wanted, results, strict=True):
        if _succeeded(pod.uid, result, memory):
            tally.deleted.add(pod.uid)
            if isinstance(result, Written):
                tell(pod_deleted(pod.name))
        else:
            tally.fail(str(result))
            # That a Pod changed in between is nothing to bother anybody with.
            if not isinstance(result, Conflict):
                tell(pod_delete_failed(str(result)))


def _deletion(namespace: str, pod: PodDeletion) -> Delete:
    # A Pod stopped by its Job's verdict is about to be counted by how it was seen, which must
    # not be older than its end. One that was freed is counted by nobody.
    version = "" if pod.free_first else pod.resource_version
    key = Key(PODS, namespace, pod.name)
    return Delete(key, "Background", uid=pod.uid, resource_version=version)


async def _create(
    client: Ahead,
    namespace: str,
    seeds: Sequence[PodSeed],
    stamp: PodStamp,
    memory: Memory,
    tell: Tell,
    tally: _Tally,
) -> None:
    """In growing batches, so that a quota or a bad template is met by few attempts. A Job whose
    last batch went well starts with one of that size."""
    position, size = 0, memory.trusted_batch
    while position < len(seeds):
        batch = seeds[position : position + size]
        results = await client.write_many(
            [Create(PODS, namespace, stamp.document(seed)) for seed in batch]
        )
        failures = [result for result in results if isinstance(result, ApiError)]
        for result in results:
            if isinstance(result, Written):
                memory.pod_revision = max(memory.pod_revision, result.revision)
                tally.created += 1
                tell(pod_created(_name(result.document)))
                continue
            _note_refusal(result, memory)
            if not _namespace_is_ending(result):
                tally.create_failures += 1
                tally.fail(str(result))
                tell(pod_create_failed(str(result)))
        if failures:
            memory.trusted_batch = 1
            return
        memory.trusted_batch = max(memory.trusted_batch, len(batch))
        position, size = position + len(batch), size * 2


def _succeeded(uid: str, result: Result, memory: Memory) -> bool:
    """A Pod that is not there needs no change any more."""
    if isinstance(result, Written):
        memory.pod_revision = max(memory.pod_revision, result.revision)
        return True
    if isinstance(result, NotFound):
        # No revision tells when the cache will know.
        memory.drop_unseen(uid)
        return True
    _note_refusal(result, memory)
    return False


def _note_refusal(error: ApiError, memory: Memory) -> None:
    """A server that says no has not written; one that fails may have."""
    if error.code >= 500:
        memory.uncertain = True


def _namespace_is_ending(error: ApiError) -> bool:
    causes = error.details.get("causes", ())
    return isinstance(error, Forbidden) and any(
        cause.get("reason") == "NamespaceTerminating" for cause in causes
    )


class _NamedMeta(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _NamedMeta


_read_name = msgspec.json.Decoder(_Named).decode


def _name(document: bytes) -> str:
    return _read_name(document).metadata.name
