"""Summaries of Jobs, Pods and CronJobs that need more data than a browser can hold.

A summary is an explanation in words, with a bounded number of Pods or fire times. A Job may have
10^5 Pods. Active ones come from the informer's cache. Of the ended ones a bounded number is read,
found by their names, which begin with the Job's. A Job's summary is cached for a while, longer the
more Pods were read for it, and shared by all requests: many open pages cost as much as one, and a
busy Job little.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.client.base import Client, Selection
from onejob.clock import Clock
from onejob.dashboard.fires import fires_of
from onejob.dashboard.job_lists import (
    documents_of,
    job_documents,
    pod_prefix,
    pods_with_prefix,
)
from onejob.dashboard.job_pods import (
    PodView,
    failures_of,
    newest,
    pod_indexes,
    read_pod_view,
    row_of,
)
from onejob.diagnosis.cronjobs import explain_cronjob, next_run
from onejob.diagnosis.ended import Ended
from onejob.diagnosis.explanation import Explanation
from onejob.diagnosis.jobs import explain_job
from onejob.diagnosis.pod_waits import read_node
from onejob.diagnosis.pods import explain_pod
from onejob.informers.cache import Cache
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, EVENTS, NODES, PODS, Key, Meta, View
from onejob.objects.pod import Pod
from onejob.planning.cronjob.manual_jobs import job_of_cronjob, manual_prefix
from onejob.planning.history import PodRecord, merged
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION
from onejob.planning.job.pod_template import generate_name_with_index
from onejob.planning.job.rerun import rerun
from onejob.planning.names import PROGRESS_MARKS
from onejob.planning.pod.placement import NodeView
from onejob.planning.progress import JobProgress, PodProgress, sum_up
from onejob.store.base import Store
from onejob.wire.errors import NotFound

Document: TypeAlias = dict[str, Any]

#: Upper bound on ended Pods that are read; the rest of a larger Job is skipped.
MAX_ENDED_PODS: Final = 1500
#: Upper bound on active Pods that are read.
_MAX_ACTIVE_PODS: Final = 1000
#: Rows per phase in the response.
_MAX_ROWS: Final = 300
#: Parts of a Job's document without which its containers report no progress.
_PROGRESS_MARKS: Final = tuple(mark.encode() for mark in PROGRESS_MARKS)
#: Pods per phase considered for the explanation.
_MAX_EXPLAINED_PODS: Final = 100
_CONFIG_MAPS: Final = "configmaps"
_MAX_CACHED_SUMMARIES: Final = 64
#: Seconds for which a summary is valid: at least this, and one more per `_PODS_PER_SECOND` Pods
#: read. So summaries take a few per cent of a processor at most.
_FRESH_SECONDS: Final = 1.0
_PODS_PER_SECOND: Final = 400


@dataclass(frozen=True, slots=True)
class _Kept:
    """Summary kept for reuse."""

    uid: str
    finished: bool
    until: float
    summary: Document

    def serves(self, job: Job, now: float) -> bool:
        """Return whether the cached summary is still valid.

        A Job's end invalidates it, because pages then request it for the last time.
        """
        return now < self.until and (self.uid, self.finished) == (job.metadata.uid, job.finished)


class _Named(View, frozen=True):
    metadata: Meta = Meta()


_read_name = msgspec.json.Decoder(_Named).decode


class Summaries:
    """Summaries of objects, reused for a moment."""

    def __init__(
        self,
        client: Client,
        store: Store,
        pods: Cache[Pod],
        clock: Clock,
        local_zone: str,
        *,
        most_looked_at: int = MAX_ENDED_PODS,
        deleted_pods: Callable[[str, str], Sequence[PodRecord]] = lambda namespace, uid: (),
        progress: Callable[[str, str], Awaitable[Sequence[PodProgress]]] | None = None,
        ended: Ended | None = None,
    ) -> None:
        """`pods` contains the Pods that have not ended; `ended` is the end of the run whose kept
        state this is.

        `deleted_pods` returns the records of a Job's deleted Pods, by namespace and UID, `progress`
        what its containers report.
        """
        self._deleted_pods = deleted_pods
        self._progress = progress
        self._run_end = ended
        self._most_looked_at = most_looked_at
        self._client = client
        self._store = store
        self._pods = pods
        self._clock = clock
        self.local_zone = local_zone
        #: Cached summaries by Job, the oldest first.
        self._kept: dict[Key, _Kept] = {}
        #: Summaries being computed, by Job.
        self._making: dict[Key, asyncio.Task[_Kept]] = {}
        #: Number of summaries computed, for tests.
        self.made = 0

    async def job(self, key: Key) -> Document:
        """Return the summary of a Job. Raises NotFound."""
        document = await self._client.get(key)
        job = read_job(document)
        kept = self._kept.get(key)
        if kept is not None and kept.serves(job, self._clock.monotonic()):
            return kept.summary
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key, document))
            making.add_done_callback(lambda task: self._making.pop(key, None))
        # The first requester may disconnect; the others still wait for the task.
        return (await asyncio.shield(making)).summary

    async def _make(self, key: Key, document: bytes) -> "_Kept":
        """Make and keep the summary of a Job; older ones make room."""
        job = read_job(document)
        summary = await self._summarise(key, msgspec.json.decode(document), document)
        pods = summary["activePods"] + summary["endedPodsLookedAt"]
        until = self._clock.monotonic() + _FRESH_SECONDS + pods / _PODS_PER_SECOND
        self._kept.pop(key, None)
        while len(self._kept) >= _MAX_CACHED_SUMMARIES:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = _Kept(job.metadata.uid, job.finished, until, summary)
        return self._kept[key]

    async def uid(self, key: Key) -> str:
        """Return the UID of an object. Raises NotFound."""
        return _read_name(await self._client.get(key)).metadata.uid

    async def pod(self, key: Key) -> Document:
        """Return the explanation of a Pod. Raises NotFound."""
        pod: Document = msgspec.json.decode(await self._client.get(key))
        now = self._clock.now()
        return _explanation_document(
            explain_pod(pod, now, node=await self._node([pod]), ended=self._run_end), now
        )

    async def cronjob(self, key: Key) -> Document:
        """Return the explanation and the fire times of a CronJob. Raises NotFound."""
        cronjob: Document = msgspec.json.decode(await self._client.get(key))
        uid, now = cronjob["metadata"]["uid"], self._clock.now()
        # Its own Jobs contain the UID; Jobs created later for its slots contain the name.
        marks = (uid.encode(), key.name.encode())
        found = await job_documents(
            self._client, key.namespace, lambda one: any(mark in one for mark in marks)
        )
        jobs: list[Document] = [msgspec.json.decode(document) for document in found]
        own = [
            job
            for job in jobs
            if any(owner["uid"] == uid for owner in job["metadata"].get("ownerReferences", ()))
        ]
        about = f"involvedObject.kind=CronJob,involvedObject.name={key.name}"
        events = await self._client.list(Selection(EVENTS, key.namespace, fields=about))
        seen = [msgspec.json.decode(event) for event in events.documents]
        explanation = explain_cronjob(cronjob, own, now, local_zone=self.local_zone, events=seen)
        return {
            **_explanation_document(explanation, now),
            **fires_of(cronjob, jobs, seen, now, local_zone=self.local_zone),
        }

    async def next_runs(self, namespace: str) -> Document:
        """Return the next run of each CronJob, by `NAMESPACE/NAME`; those without are left out."""
        now, found = self._clock.now(), {}
        for document in await documents_of(self._client, Selection(CRONJOBS, namespace)):
            cronjob: Document = msgspec.json.decode(document)
            following = next_run(cronjob, now, self.local_zone)
            if following is not None:
                metadata = cronjob["metadata"]
                found[f"{metadata['namespace']}/{metadata['name']}"] = following
        return {"next": found}

    # --- objects for the page to create ---------------------------------------------------

    async def rerun(
        self,
        key: Key,
        *,
        failed_only: bool,
        from_index: int | None,
        require_get: Callable[[Key], None],
    ) -> list[Document]:
        """Return the documents to create in order to run a Job again.

        `from_index` is the first index to run, or None. `require_get` raises if the user may not
        read an object that the Job refers to. Raises NotFound and BadInput.
        """
        job: Document = msgspec.json.decode(await self._client.get(key))
        jobs = await job_documents(self._client, key.namespace, lambda document: True)
        taken = {_read_name(document).metadata.name for document in jobs}
        parameters = await self._parameters(key, job, require_get)
        # A megabyte of parameters takes seconds, which would block the event loop.
        return await asyncio.to_thread(
            rerun, job, parameters, taken=taken, failed_only=failed_only, from_index=from_index
        )

    async def rerun_workflow(self, key: Key, from_task: str, failed_only: bool) -> Document:
        """Return the document to create in order to run a workflow again.

        Raises NotFound and BadInput.
        """
        # Imported here: most servers have no workflows.
        from onejob.planning.workflow.rerun import rerun_names, rerun_workflow

        workflow: Document = msgspec.json.decode(await self._client.get(key))
        for name in rerun_names(workflow):
            try:
                await self._client.get(Key(key.resource, key.namespace, name))
            except NotFound:
                break
        return rerun_workflow(workflow, name=name, from_task=from_task, failed_only=failed_only)

    async def _parameters(
        self, key: Key, job: Document, require_get: Callable[[Key], None]
    ) -> Document | None:
        """Return the ConfigMap with the parameters of a Job's rows; None if the Job names none or
        it does not exist.

        Raises the error of `require_get` if the user may not read it.
        """
        name = job["metadata"].get("annotations", {}).get(PARAMS_ANNOTATION)
        if name is None:
            return None
        named = Key(_CONFIG_MAPS, key.namespace, name)
        # The name is chosen by users who may change the Job, so access must be checked.
        require_get(named)
        try:
            document = await self._client.get(named)
        except NotFound:
            return None
        config_map: Document = msgspec.json.decode(document)
        return config_map

    async def manual_job(self, key: Key) -> Document:
        """Return the document of a manual Job of a CronJob. Raises NotFound."""
        cronjob: Document = msgspec.json.decode(await self._client.get(key))
        return job_of_cronjob(cronjob, {"generateName": manual_prefix(key.name)})

    # --- a Job and its Pods ---------------------------------------------------------------

    async def _summarise(self, key: Key, job: Document, document: bytes) -> Document:
        self.made += 1
        uid = job["metadata"]["uid"]
        documents = await self._active(uid)
        ended, all_seen = await self._ended(key, uid)
        active = [read_pod_view(pod) for pod in documents.values()]
        ended_views = list(ended.values())
        failed = newest(ended_views, "Failed", _MAX_ROWS)
        succeeded = newest(ended_views, "Succeeded", _MAX_ROWS)
        considered = await self._documents(
            key.namespace, [*failed[:_MAX_EXPLAINED_PODS], *succeeded[:_MAX_EXPLAINED_PODS]]
        )
        pods = [
            *(msgspec.json.decode(pod) for pod in list(documents.values())[:_MAX_EXPLAINED_PODS]),
            *considered,
        ]
        now = self._clock.now()
        view = read_job(document)
        events = [] if view.finished else await self._events_about(key.namespace, uid)
        explanation = explain_job(
            job, pods, now, events=events, node=await self._node(pods), ended=self._run_end
        )
        return {
            **_explanation_document(explanation, now),
            "pods": [row_of(pod) for pod in (*active[:_MAX_ROWS], *failed, *succeeded)],
            "activePods": len(active),
            "endedPodsLookedAt": len(ended),
            "allPodsLookedAt": all_seen,
            "failures": failures_of(ended_views),
            "podIndexes": pod_indexes([*active, *ended_views]),
            "parallelism": view.spec.parallelism,
            "deletedPods": merged((), self._deleted_pods(key.namespace, uid), _MAX_ROWS),
            "progress": await self._progress_of(key.namespace, uid, document),
        }

    async def _progress_of(self, namespace: str, uid: str, document: bytes) -> JobProgress | None:
        """Return the sum of what a Job's containers report; None if they report nothing."""
        if self._progress is None or not any(mark in document for mark in _PROGRESS_MARKS):
            return None
        reported = await self._progress(namespace, uid)
        return sum_up(reported, self._clock.now()) if reported else None

    async def _events_about(self, namespace: str, uid: str) -> list[Document]:
        found = await self._client.list(
            Selection(EVENTS, namespace, fields=f"involvedObject.uid={uid}")
        )
        return [msgspec.json.decode(event) for event in found.documents]

    async def _active(self, uid: str) -> dict[str, bytes]:
        """Return documents of active Pods by name; Pods deleted since are left out."""
        views = [pod for pod in self._pods.find("controller", uid) if not pod.terminal]
        return await self._read([pod.key for pod in views[:_MAX_ACTIVE_PODS]])

    async def _documents(self, namespace: str, pods: Iterable[PodView]) -> list[Document]:
        """Return the documents of the Pods that still exist."""
        keys = [Key(PODS, namespace, pod.metadata.name) for pod in pods]
        return [msgspec.json.decode(found) for found in (await self._read(keys)).values()]

    async def _read(self, keys: Sequence[Key]) -> dict[str, bytes]:
        """Return the documents of these keys by name; objects that do not exist are omitted."""
        found, turns = {}, Turns()
        for key in keys:
            try:
                found[key.name] = await self._client.get(key)
            except NotFound:
                continue
            await turns.spend(len(found[key.name]) + PER_DOCUMENT_COST_BYTES)
        return found

    async def index(self, key: Key, index: int) -> Document:
        """Return the Pods of one index, the newest first, however many others the Job has.

        Raises NotFound.
        """
        job = read_job(await self._client.get(key))
        prefix = generate_name_with_index(key.name, index)
        found, _ = await self._with_prefix(key.namespace, job.metadata.uid, prefix)
        pods = [row_of(pod) for pod in found if pod.index == index]
        return {"pods": sorted(pods, key=lambda row: str(row.created_at), reverse=True)}

    async def _ended(self, job: Key, uid: str) -> tuple[dict[str, PodView], bool]:
        """Return ended Pods by name, and whether these are all."""
        found, all_seen = await self._with_prefix(job.namespace, uid, pod_prefix(job.name))
        return {pod.metadata.name: pod for pod in found if not pod.active}, all_seen

    async def _with_prefix(
        self, namespace: str, uid: str, prefix: str
    ) -> tuple[list[PodView], bool]:
        """Return Pods of the Job with that UID, and whether these are all."""
        documents, all_seen = await pods_with_prefix(
            self._store, namespace, prefix, self._most_looked_at
        )
        found: list[PodView] = []
        turns = Turns()
        for document in documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            pod = read_pod_view(document)
            owner = pod.metadata.controller_ref
            if owner is not None and owner.uid == uid:
                found.append(pod)
        return found, all_seen

    async def _node(self, pods: Sequence[Document]) -> NodeView | None:
        """Return the only node, or None if there are several or if all Pods are scheduled."""
        if all(pod["spec"].get("nodeName") for pod in pods):
            return None
        nodes = (await self._client.list(Selection(NODES))).documents
        return read_node(msgspec.json.decode(nodes[0])) if len(nodes) == 1 else None


def _explanation_document(explanation: Explanation, now: datetime) -> Document:
    """Return an explanation as a document."""
    return {
        "now": now,
        "state": explanation.state,
        "cause": explanation.cause,
        "evidence": explanation.evidence,
        "next": explanation.next,
        "notes": explanation.notes,
        "shownFailure": explanation.shown_failure,
        "blocked": explanation.blocked,
    }
