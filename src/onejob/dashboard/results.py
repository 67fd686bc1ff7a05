"""Results of a Job for the dashboard: parameters, outcome, usage and result of each index.

They are cached for a while, longer the more Pods were read for them, and shared by all requests.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.client.base import Client
from onejob.clock import Clock
from onejob.dashboard.job_lists import job_documents, pod_prefix, pods_with_prefix
from onejob.diagnosis.result_table import parameters, result_columns, result_values
from onejob.diagnosis.results import Result, collect, merged, renumbered, with_missing
from onejob.objects.meta import Key
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION, rows_of
from onejob.planning.job.rerun import origins_of, repeated_uid
from onejob.store.base import Store
from onejob.wire.errors import NotFound

Document: TypeAlias = dict[str, Any]

#: Upper bound on the Pods of a Job that are read.
_MAX_PODS: Final = 20_000
#: Jobs followed at most: hand-written annotations may form a cycle.
_MAX_LINEAGE_JOBS: Final = 50
_CONFIG_MAPS: Final = "configmaps"
_MAX_CACHED: Final = 8
#: Seconds for which results are valid: at least this, and one more per `_PODS_PER_SECOND` Pods.
_FRESH_SECONDS: Final = 1.0
_PODS_PER_SECOND: Final = 400


@dataclass(frozen=True, slots=True)
class JobResults:
    """Results of a Job and, for a partial rerun, of the Jobs that it repeats."""

    results: Sequence[Result]
    #: Whether all Pods were read.
    complete: bool
    #: Whether a Job that this one repeats in part was deleted.
    earlier_deleted: bool

    @property
    def document(self) -> Document:
        names = parameters(self.results)
        columns = result_columns(self.results, names)
        return {
            "parameters": names,
            "columns": columns or ["result"],
            "rows": [
                {
                    "index": one.index,
                    "pod": one.pod,
                    "params": [one.params.get(name, "") for name in names],
                    "state": one.state,
                    "exitCode": one.exit_code,
                    "seconds": one.seconds,
                    "cpuSeconds": one.cpu_seconds,
                    "peakMemoryBytes": one.peak_bytes,
                    "attempts": one.attempts,
                    "values": result_values(one, columns),
                }
                for one in self.results
            ],
            "complete": self.complete,
            "earlierDeleted": self.earlier_deleted,
        }


@dataclass(frozen=True, slots=True)
class _Kept:
    """Results kept for reuse."""

    uid: str
    until: float
    results: JobResults
    #: ConfigMaps whose parameters they contain.
    config_maps: Sequence[Key]


class Results:
    """Results of Jobs, reused for a moment."""

    def __init__(self, client: Client, store: Store, clock: Clock) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        #: By Job, the oldest first.
        self._kept: dict[Key, _Kept] = {}
        self._reading = asyncio.Lock()

    async def of(self, key: Key, require_get: Callable[[Key], None]) -> JobResults:
        """Return the results of a Job.

        `require_get` raises if the user may not read an object that the Job refers to. Raises
        NotFound.
        """
        job: Document = msgspec.json.decode(await self._client.get(key))
        uid = job["metadata"]["uid"]
        async with self._reading:
            kept = self._kept.get(key)
            if kept is None or kept.uid != uid or self._clock.monotonic() >= kept.until:
                jobs, all_found = await self._lineage(job)
                config_maps = [found for one in jobs if (found := _params_key(one)) is not None]
                # Users who may change a Job choose the name, so access must be checked.
                for config_map in config_maps:
                    require_get(config_map)
                results, read = await self._of_lineage(jobs, earlier_deleted=not all_found)
                until = self._clock.monotonic() + _FRESH_SECONDS + read / _PODS_PER_SECOND
                kept = _Kept(uid, until, results, config_maps)
                self._kept.pop(key, None)
                while len(self._kept) >= _MAX_CACHED:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = kept
        # The results may have been read for another user.
        for config_map in kept.config_maps:
            require_get(config_map)
        return kept.results

    async def _lineage(self, job: Document) -> tuple[list[Document], bool]:
        """Return the Jobs that this one repeats in part, the oldest first, and whether all exist.

        The last one is the Job itself.
        """
        jobs = [job]
        uid = repeated_uid(job)
        while uid and len(jobs) < _MAX_LINEAGE_JOBS:
            earlier = await self._job_with_uid(job["metadata"]["namespace"], uid)
            if earlier is None:
                return jobs, False
            jobs.insert(0, earlier)
            uid = repeated_uid(earlier)
        return jobs, True

    async def _of_lineage(
        self, jobs: Sequence[Document], *, earlier_deleted: bool
    ) -> tuple[JobResults, int]:
        """Return the results of the newest attempt of each index, and the number of Pods read."""
        parts, complete, read = [], True, 0
        for job in jobs:
            found, all_of_them, more = await self._of_job(job, _params_key(job))
            parts.append(found)
            complete, read = complete and all_of_them, read + more
        return JobResults(merged(parts), complete, earlier_deleted), read

    async def _of_job(
        self, job: Document, config_map: Key | None
    ) -> tuple[list[Result], bool, int]:
        """Return the results of a Job's own Pods, whether these are all, and their number."""
        metadata, spec = job["metadata"], job["spec"]
        rows = await self._rows(config_map)
        documents, complete = await pods_with_prefix(
            self._store, metadata["namespace"], pod_prefix(metadata["name"]), _MAX_PODS
        )
        uid, turns, pods = metadata["uid"], Turns(), list[Document]()
        for document in documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            pod: Document = msgspec.json.decode(document)
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ())):
                pods.append(pod)
        # Thousands of Pods take a second, which would block the event loop.
        results = await asyncio.to_thread(collect, pods, rows)
        if complete and (rows or spec.get("completionMode") == "Indexed"):
            results = with_missing(results, rows, spec.get("completions"))
        origins = origins_of(job)
        if origins is not None:
            results = renumbered(results, list(origins))
        return results, complete, len(documents)

    async def _rows(self, config_map: Key | None) -> list[dict[str, str]]:
        """Return the parameter rows; [] if there are none, or no longer."""
        if config_map is None:
            return []
        try:
            return rows_of(msgspec.json.decode(await self._client.get(config_map)))
        except (NotFound, ValueError):
            return []

    async def _job_with_uid(self, namespace: str, uid: str) -> Document | None:
        mark = uid.encode()
        for document in await job_documents(self._client, namespace, lambda one: mark in one):
            job: Document = msgspec.json.decode(document)
            if job["metadata"]["uid"] == uid:
                return job
        return None


def _params_key(job: Document) -> Key | None:
    """Return the key of the ConfigMap with the Job's parameters."""
    metadata = job["metadata"]
    name = metadata.get("annotations", {}).get(PARAMS_ANNOTATION)
    return None if name is None else Key(_CONFIG_MAPS, metadata["namespace"], name)
