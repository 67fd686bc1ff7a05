"""Records of a Job: history of its Pods, their outputs and their progress.

They belong to the Job that exists now: records of an earlier one of the same name, whose owner may
have been someone else, are not served.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from onejob.api.service import Service
from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS
from onejob.objects.pod import read_pod
from onejob.planning.history import MAX_RECORDS, merged, pod_record
from onejob.planning.progress import PodProgress, sum_up
from onejob.wire.errors import BadRequest, NotFound
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import ListOptions

_POD: Final = BY_RESOURCE[PODS]
_JOB: Final = BY_RESOURCE[JOBS]


class OutputSource(Protocol):
    """Files that Pods have written, on the machine that ran them."""

    def outputs(
        self, namespace: str, uid: str, index: int | None, part: str, *, one: bool
    ) -> AsyncIterator[bytes]:
        """Iterate over a tar archive of a Job's outputs; empty if there are none.

        There is one folder per index, or per Pod; with `one`, only the newest Pod's files
        themselves.
        """

    async def progress(self, namespace: str, uid: str) -> Sequence[PodProgress]:
        """Return the newest progress of each of a Job's Pods."""


class JobRecords:
    def __init__(self, service: Service, outputs: OutputSource | None) -> None:
        self._service = service
        self._outputs = outputs

    async def job(self, namespace: str, name: str) -> Job:
        """Return the Job. Raises NotFound."""
        return read_job(await self._service.get(_JOB, namespace, name))

    async def history(self, job: Job, limit: int | None) -> dict[str, Any]:
        """Return the newest ended Pods of a Job, deleted ones included.

        `dropped` is the number of deleted Pods without a record.
        """
        limit = MAX_RECORDS if limit is None else min(max(limit, 1), MAX_RECORDS)
        namespace, uid = job.metadata.namespace, job.metadata.uid
        found = await self._service.list(_POD, namespace, ListOptions())
        live = []
        turns = Turns()
        for document in found.documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            pod = read_pod(document)
            owner = pod.metadata.controller_ref
            if pod.terminal and owner is not None and owner.uid == uid:
                live.append(pod_record(pod, deleted=False))
        records = merged(live, self._service.history.deleted_pods(namespace, uid), limit)
        dropped = self._service.history.dropped(namespace, uid)
        content = {"pods": msgspec.to_builtins(records), "dropped": dropped}
        return {**_head("JobHistory", job), **content}

    async def progress(self, job: Job) -> dict[str, Any]:
        """Return what the containers of a Job report."""
        pods = () if self._outputs is None else await self._outputs.progress(*_place(job))
        summary = sum_up(pods, self._service.clock.now())
        return {**_head("JobProgress", job), **msgspec.to_builtins(summary)}

    def archive(self, job: Job, part: str, index: int | None) -> AsyncIterator[bytes]:
        """Iterate over a tar archive of a Job's outputs; empty if there are none.

        Raises BadRequest.
        """
        if ".." in part.split("/") or "\0" in part:
            raise BadRequest(f"path {part[:100]!r} must be inside the output directory")
        if index is not None and not job.indexed:
            raise BadRequest(f"job {job.metadata.name} has no indexes")
        if self._outputs is None:
            return _nothing()
        one = not job.indexed and job.spec.completions in (None, 1)
        return self._outputs.outputs(*_place(job), index, part, one=one)


def _place(job: Job) -> tuple[str, str]:
    return job.metadata.namespace, job.metadata.uid


def no_outputs(job: Job, part: str, index: int | None) -> NotFound:
    """Return the error for outputs that do not exist."""
    where = f" at {part[:200]}" if part else ""
    which = "" if index is None else f" of index {index}"
    return NotFound(
        f"job {job.metadata.name} has no outputs{which}{where}; its containers write them to "
        "$ONEJOB_OUTPUT"
    )


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def _head(kind: str, job: Job) -> dict[str, Any]:
    metadata = job.metadata
    named = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    return {"apiVersion": "onejob.dev/v1", "kind": kind, "metadata": named}
