"""Storage of the history of Jobs, as documents of internal resources of the store.

An ended Pod is recorded when it is removed while its Job exists, in the same series of staged
writes and before the removal, so that no crash loses it. Pods that exist are their own records:
a Job whose Pods are not deleted costs nothing.

jobhistories.onejob.dev   chunks of records, `<uid of the Job>-<slot>`; the oldest is overwritten
jobends.onejob.dev        ends of removed Jobs that others wait for, by UID; and removed Jobs of a
                          workflow, `<uid of the workflow>.<name>`, that its status may lack
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.api.admission.admission import ObservableStore
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, WORKFLOWS, Key, OwnerReference, View
from onejob.objects.pod import read_pod
from onejob.planning.history import (
    MAX_RECORDS,
    JobEnd,
    PodRecord,
    RemovedJob,
    job_end,
    pod_record,
)
from onejob.store.base import DamagedDocument, RevisionMismatch, Stored

log = logging.getLogger(__name__)

HISTORIES: Final = "jobhistories.onejob.dev"
ENDS: Final = "jobends.onejob.dev"
#: Records per document: a removal rewrites one document of at most about 6 kB.
_PER_CHUNK: Final = 20
_SLOTS: Final = MAX_RECORDS // _PER_CHUNK
#: Documents of all Jobs together; beyond it, further Pods are not recorded.
_MAX_CHUNKS: Final = 5_000
#: Ends per namespace; beyond it, the oldest is dropped.
_MAX_ENDS: Final = 1_000
_CACHED_JOBS: Final = 256
#: Jobs whose records that were not written are counted; beyond it, the oldest count is dropped.
_COUNTED_JOBS: Final = 10_000


class _Chunk(msgspec.Struct):
    """The document that new records of a Job go to."""

    number: int
    records: list[PodRecord]
    #: 0 if the document does not exist yet.
    revision: int


class _Document(msgspec.Struct):
    number: int = 0
    pods: list[PodRecord] = []


class _BriefMeta(View, frozen=True):
    owner_references: tuple[OwnerReference, ...] = ()


class _BriefStatus(View, frozen=True):
    phase: str = ""


class _Brief(View, frozen=True):
    """The fields that decide whether a removed Pod is recorded: most are not."""

    metadata: _BriefMeta = _BriefMeta()
    status: _BriefStatus = _BriefStatus()


_read_brief = msgspec.json.Decoder(_Brief).decode


class _End(msgspec.Struct):
    end: JobEnd


class _Removed(msgspec.Struct):
    removed: RemovedJob


class _WorkflowMeta(View, frozen=True):
    uid: str = ""


class _Workflow(View, frozen=True):
    metadata: _WorkflowMeta = _WorkflowMeta()


_read_workflow = msgspec.json.Decoder(_Workflow).decode


class JobHistory:
    """History of the Jobs in one store.

    Concurrency: methods are synchronous and called on the event loop, like all staging.
    """

    def __init__(
        self,
        store: ObservableStore,
        awaits: Callable[[str, str, str], bool],
        lacks: Callable[[str, str, str], bool],
    ) -> None:
        """`awaits` returns whether a Job, by namespace, name and UID, is awaited by another one.

        `lacks` returns whether the stored status of a workflow may lack the start or the end of a
        Job.
        """
        self._store = store
        self._awaits = awaits
        self._lacks = lacks
        #: Newest chunks by UID of the Job.
        self._newest: OrderedDict[str, _Chunk] = OrderedDict()
        #: Number of Pods of each Job, by UID, that were not recorded since this process started.
        self._unrecorded: OrderedDict[str, int] = OrderedDict()

    # --- recording ------------------------------------------------------------------------

    def removing(self, stored: Stored) -> None:
        """Record an object whose removal is about to be staged."""
        match stored.key.resource:
            case "pods":
                self._record_pod(stored)
            case "jobs.batch":
                self._job_removed(stored)
            case "workflows.onejob.dev":
                self._workflow_removed(stored)
            case "namespaces":
                self._drop_namespace(stored.key.name)
            case _:
                return

    def _record_pod(self, stored: Stored) -> None:
        brief = _read_brief(stored.value)
        owner = next((one for one in brief.metadata.owner_references if one.controller), None)
        if owner is None or owner.kind != "Job":
            return
        if brief.status.phase not in ("Succeeded", "Failed"):
            return
        namespace = stored.key.namespace
        if owner.uid not in self._newest and not self._exists(namespace, owner.name, owner.uid):
            return
        record = pod_record(read_pod(stored.value), deleted=True)
        try:
            self._append(namespace, owner.uid, record)
        except (RevisionMismatch, DamagedDocument):
            # A commit was rolled back, with the chunk that is cached here.
            self._newest.pop(owner.uid, None)
            try:
                self._append(namespace, owner.uid, record)
            except (RevisionMismatch, DamagedDocument) as error:
                log.warning("history of job %s/%s: %s", namespace, owner.name, error)

    def _exists(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether the Job exists and stays."""
        job = self._job(Key(JOBS, namespace, name))
        return job is not None and job.metadata.uid == uid and not job.metadata.deleting

    def _job(self, key: Key) -> Job | None:
        try:
            stored = self._store.newest(key)
        except DamagedDocument:
            return None
        return None if stored is None else read_job(stored.value)

    def _append(self, namespace: str, uid: str, record: PodRecord) -> None:
        chunk = self._newest.get(uid) or self._load(namespace, uid)
        if any(one.uid == record.uid for one in chunk.records):
            return
        if len(chunk.records) >= _PER_CHUNK:
            number = chunk.number + 1
            before = self._store.newest(_chunk_key(namespace, uid, number))
            chunk = _Chunk(number, [], 0 if before is None else before.revision)
        if not chunk.revision and self._store.count(HISTORIES) >= _MAX_CHUNKS:
            self._count_unrecorded(uid)
            return
        records = [*chunk.records, record]
        key = _chunk_key(namespace, uid, chunk.number)
        staged = self._stage(
            key, chunk.revision, "JobHistory", {"number": chunk.number, "pods": records}, cold=True
        )
        self._newest[uid] = _Chunk(chunk.number, records, staged.revision)
        self._newest.move_to_end(uid)
        if len(self._newest) > _CACHED_JOBS:
            self._newest.popitem(last=False)

    def _count_unrecorded(self, uid: str) -> None:
        if not self._unrecorded:
            log.warning(
                "the history is full (%d documents): deleted Pods are not recorded until Jobs with"
                " deleted Pods are removed",
                _MAX_CHUNKS,
            )
        self._unrecorded[uid] = self._unrecorded.get(uid, 0) + 1
        if len(self._unrecorded) > _COUNTED_JOBS:
            self._unrecorded.popitem(last=False)

    def _load(self, namespace: str, uid: str) -> _Chunk:
        newest = _Chunk(0, [], 0)
        for stored, document in self._chunks(namespace, uid):
            if document.number >= newest.number:
                newest = _Chunk(document.number, document.pods, stored.revision)
        return newest

    def _job_removed(self, stored: Stored) -> None:
        job = read_job(stored.value)
        namespace, uid = stored.key.namespace, job.metadata.uid
        self._newest.pop(uid, None)
        self._unrecorded.pop(uid, None)
        for slot in range(_SLOTS):
            key = _chunk_key(namespace, uid, slot)
            if not self._drop(key):
                break
        end = job_end(job)
        owner = job.metadata.controller_ref
        if owner is not None and owner.kind == "Workflow":
            self._record_removed_job(namespace, owner, job, end)
        if end is not None and self._awaits(namespace, job.metadata.name, uid):
            if self._store.count(ENDS, namespace) >= _MAX_ENDS:
                self._drop_oldest_end(namespace)
            key = Key(ENDS, namespace, uid)
            if self._store.newest(key) is None:
                self._stage(key, 0, "JobEnd", {"end": end}, cold=False)

    def _record_removed_job(
        self, namespace: str, owner: OwnerReference, job: Job, end: JobEnd | None
    ) -> None:
        if not self._lacks(namespace, owner.name, owner.uid):
            return
        try:
            workflow = self._store.newest(Key(WORKFLOWS, namespace, owner.name))
        except DamagedDocument:
            return
        if workflow is None or _read_workflow(workflow.value).metadata.uid != owner.uid:
            return
        key = _removed_key(namespace, owner.uid, job.metadata.name)
        if self._store.newest(key) is None:
            if self._store.count(ENDS, namespace) >= _MAX_ENDS:
                self._drop_oldest_end(namespace)
            removed = RemovedJob(uid=job.metadata.uid, end=end)
            self._stage(key, 0, "RemovedJob", {"removed": removed}, cold=False)

    def _workflow_removed(self, stored: Stored) -> None:
        namespace, prefix = stored.key.namespace, f"{_read_workflow(stored.value).metadata.uid}."
        names = [name for name, _ in self._store.newest_in(ENDS, namespace)]
        for name in names:
            if name.startswith(prefix):
                self._drop(Key(ENDS, namespace, name))

    def _drop_namespace(self, namespace: str) -> None:
        for resource in (HISTORIES, ENDS):
            for name in [name for name, _ in self._store.newest_in(resource, namespace)]:
                self._drop(Key(resource, namespace, name))

    def _drop_oldest_end(self, namespace: str) -> None:
        found = [
            stored
            for name, _ in list(self._store.newest_in(ENDS, namespace))
            if (stored := self._store.newest(Key(ENDS, namespace, name))) is not None
        ]
        if found:
            self._drop(min(found, key=lambda stored: stored.revision).key)

    def _drop(self, key: Key) -> bool:
        """Stage the removal of a document; return whether it existed."""
        try:
            stored = self._store.newest(key)
        except DamagedDocument:
            self._store.discard(key)
            return True
        if stored is None:
            return False
        self._store.stage(key, stored.revision, None)
        return True

    def _stage(
        self, key: Key, expected: int, kind: str, contents: Mapping[str, Any], *, cold: bool
    ) -> Stored:
        def encode(revision: int) -> bytes:
            # Every document of the store has a kind and metadata, which are checked on each start.
            metadata = {
                "name": key.name,
                "namespace": key.namespace,
                "uid": key.name,
                "resourceVersion": str(revision),
            }
            document = {"apiVersion": "onejob.dev/v1", "kind": kind, "metadata": metadata}
            return msgspec.json.encode({**document, **contents})

        staged = self._store.stage(key, expected, encode, cold=cold)
        assert staged is not None, "only a deletion leaves nothing behind"
        return staged

    # --- reading --------------------------------------------------------------------------

    def deleted_pods(self, namespace: str, uid: str) -> Sequence[PodRecord]:
        """Return the records of a Job's deleted Pods, unordered. Damaged ones are left out."""
        return [record for _, document in self._chunks(namespace, uid) for record in document.pods]

    def dropped(self, namespace: str, uid: str) -> int:
        """Return how many deleted Pods of a Job have no record.

        Overwritten records are all counted; those that were never written, because the history was
        full, only since this process started.
        """
        numbers = [document.number for _, document in self._chunks(namespace, uid)]
        overwritten = max(max(numbers, default=0) - _SLOTS + 1, 0) * _PER_CHUNK
        return overwritten + self._unrecorded.get(uid, 0)

    def end_of(self, namespace: str, uid: str) -> JobEnd | None:
        """Return the recorded end of a removed Job."""
        try:
            stored = self._store.newest(Key(ENDS, namespace, uid))
        except DamagedDocument:
            return None
        return None if stored is None else msgspec.json.decode(stored.value, type=_End).end

    def removed_job(self, namespace: str, workflow_uid: str, name: str) -> RemovedJob | None:
        """Return the record of a removed Job of a workflow."""
        try:
            stored = self._store.newest(_removed_key(namespace, workflow_uid, name))
        except DamagedDocument:
            return None
        return None if stored is None else msgspec.json.decode(stored.value, type=_Removed).removed

    def _chunks(self, namespace: str, uid: str) -> Iterator[tuple[Stored, _Document]]:
        for slot in range(_SLOTS):
            try:
                stored = self._store.newest(_chunk_key(namespace, uid, slot))
            except DamagedDocument:
                continue
            if stored is None:
                return
            yield stored, msgspec.json.decode(stored.value, type=_Document)


def _removed_key(namespace: str, workflow_uid: str, name: str) -> Key:
    return Key(ENDS, namespace, f"{workflow_uid}.{name}")


def _chunk_key(namespace: str, uid: str, number: int) -> Key:
    return Key(HISTORIES, namespace, f"{uid}-{number % _SLOTS}")
