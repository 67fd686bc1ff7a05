"""Endpoints of a Job's records: history of its Pods, their outputs and their progress.

They belong to the Job that exists now: records of an earlier one of the same name, whose owner may
have been someone else, are not served.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from onejob.api.decoding.query import first
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response, json_response
from onejob.api.http.routing import ResourcePath
from onejob.api.http.streams import begun, resumed
from onejob.api.service import Service
from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.objects.job import Job, read_job
from onejob.objects.meta import PODS
from onejob.objects.pod import read_pod
from onejob.planning.history import MAX_RECORDS, merged, pod_record
from onejob.planning.progress import PodProgress, sum_up
from onejob.wire.errors import BadRequest, NotFound
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import ListOptions

_POD: Final = BY_RESOURCE[PODS]
_TAR: Final = b"application/x-tar"
#: Time to wait for the first piece of an archive before the response is started.
_PATIENCE_SECONDS: Final = 30.0


class OutputSource(Protocol):
    """Files that Pods have written, on the machine that ran them."""

    def outputs(self, uid: str, index: int | None, part: str, *, one: bool) -> AsyncIterator[bytes]:
        """Iterate over a tar archive of a Job's outputs; empty if there are none.

        There is one folder per index, or per Pod; with `one`, only the newest Pod's files
        themselves.
        """

    async def progress(self, uid: str) -> Sequence[PodProgress]:
        """Return the newest progress of each of a Job's Pods."""


class JobRecords:
    def __init__(self, service: Service, outputs: OutputSource | None) -> None:
        self._service = service
        self._outputs = outputs

    async def answer(self, request: UserRequest, target: ResourcePath) -> Response:
        document = await self._service.get(target.kind, target.namespace, target.name)
        job = read_job(document)
        match target.subresource:
            case "history":
                return json_response(await self._history(job, request))
            case "progress":
                return json_response(await self._progress(job))
            case _:
                return await self._archive(job, request)

    async def _history(self, job: Job, request: UserRequest) -> dict[str, Any]:
        limit = _number(request, "limit")
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
        return {
            "apiVersion": "onejob.dev/v1",
            "kind": "JobHistory",
            "metadata": {"name": job.metadata.name, "namespace": namespace, "uid": uid},
            "pods": msgspec.to_builtins(records),
        }

    async def _progress(self, job: Job) -> dict[str, Any]:
        pods = () if self._outputs is None else await self._outputs.progress(job.metadata.uid)
        summary = sum_up(pods, self._service.clock.now())
        return {
            "apiVersion": "onejob.dev/v1",
            "kind": "JobProgress",
            "metadata": {"name": job.metadata.name, "namespace": job.metadata.namespace},
            **msgspec.to_builtins(summary),
        }

    async def _archive(self, job: Job, request: UserRequest) -> Response:
        part, index = first(request.query, "path"), _number(request, "index")
        if ".." in part.split("/") or "\0" in part:
            raise BadRequest(f"path {part[:100]!r} must be inside the output directory")
        if index is not None and not job.indexed:
            raise BadRequest(f"job {job.metadata.name} has no indexes")
        if self._outputs is not None:
            one = not job.indexed and job.spec.completions in (None, 1)
            pieces = self._outputs.outputs(job.metadata.uid, index, part, one=one)
            start = await begun(pieces, _PATIENCE_SECONDS)
            if not (start.done() and start.result() is None):
                return Response(200, resumed(start, pieces), _TAR)
        where = f" at {part[:200]}" if part else ""
        which = "" if index is None else f" of index {index}"
        raise NotFound(
            f"job {job.metadata.name} has no outputs{which}{where}; its containers write them to "
            "$ONEJOB_OUTPUT"
        )


def _number(request: UserRequest, name: str) -> int | None:
    text = first(request.query, name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest(f"{name}={text[:20]}: expected a number")
    return int(text)
