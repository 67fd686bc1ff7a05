"""The reports on a Job's progress, of which there are several for every batch of its Pods.

Does what the general path in `writes` does for a merge patch of the status, but leaves the rest of
the Job, its template above all, as the bytes it is. Out of the ordinary is left to the general
path; the tests compare the two.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onejob.api.strategy import Document
from onejob.api.writing.patching import merge_patch
from onejob.api.writing.pieces import Pieces, cut
from onejob.api.writing.writes import Writes, is_cold
from onejob.objects.meta import JOBS, Key
from onejob.store.base import Stored
from onejob.wire.requests import Outcome, WriteOptions

_REMEMBERED_JOBS: Final = 256
#: Fields of the status that clients may have been shown: see `job_original_status`.
_NEVER_STORED: Final = (b'"creationTime"', b'"lastHeartbeatTime"')


class _PatchedMetadata(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    resource_version: str


class _StatusPatch(msgspec.Struct, forbid_unknown_fields=True):
    metadata: _PatchedMetadata
    status: dict[str, Any]


_read_patch = msgspec.json.Decoder(_StatusPatch).decode
_read_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class _KnownJob:
    """A Job at one revision, apart but for what a report leaves as it is."""

    revision: int
    pieces: Pieces
    spec: Document
    status: Document


class QuickJobs:
    def __init__(self, writes: Writes) -> None:
        self._store = writes.store
        self._strategy = writes.strategies[JOBS]
        self._jobs: OrderedDict[Key, _KnownJob] = OrderedDict()

    def patch_status(self, key: Key, body: bytes, options: WriteOptions) -> Outcome | None:
        """Change the status of a Job at the revision that the patch names."""
        if not options.trusted or options.dry_run:
            return None
        if any(field in body for field in _NEVER_STORED):
            return None
        try:
            patch = _read_patch(body)
        except msgspec.DecodeError:
            return None
        stored = self._store.newest(key)
        if stored is None or patch.metadata.resource_version != str(stored.revision):
            return None
        known = self._know(stored)
        if known is None:
            return None
        old = {"spec": known.spec, "status": known.status}
        new = {"spec": known.spec, "status": merge_patch(known.status, patch.status)}
        # The general path says what is wrong, and what a write is that changes nothing.
        if new == old or self._strategy.validate_status_update(new, old):
            return None
        pieces = replace(known.pieces, status=msgspec.json.encode(new["status"]))
        cold = is_cold(JOBS, new)
        staged = self._store.stage(key, stored.revision, pieces.document, cold=cold)
        assert staged is not None, "only a deletion leaves nothing behind"
        if not cold:
            self._remember(key, _KnownJob(staged.revision, pieces, known.spec, new["status"]))
        return Outcome(200, staged.value, staged.revision)

    def _know(self, stored: Stored) -> _KnownJob | None:
        """None for a Job that is over, or being deleted: those are for the general path."""
        known = self._jobs.pop(stored.key, None)
        if known is not None and known.revision == stored.revision:
            return known
        found = cut(stored.value, stored.revision)
        if found is None or b'"deletionTimestamp":' in found.metadata:
            return None
        spec, status = _read_object(found.pieces.spec), _read_object(found.pieces.status)
        if is_cold(JOBS, {"status": status}):
            return None
        return _KnownJob(stored.revision, found.pieces, spec, status)

    def _remember(self, key: Key, job: _KnownJob) -> None:
        self._jobs[key] = job
        if len(self._jobs) > _REMEMBERED_JOBS:
            self._jobs.popitem(last=False)
