"""Optimistic concurrency for large writes: compute in a thread, verify and stage on the event loop.

`Writes` processes a write synchronously, so that no other write comes between reading and staging.
For a large document that blocks the event loop for too long. The write is therefore computed
against a `Rehearsal` of the store, which only records the objects read and the write to stage. Back
on the event loop, the write is staged if all objects read are unchanged; otherwise it is computed
again.
"""

from collections.abc import Awaitable, Callable, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.api.documents import at_revision, decode
from onejob.api.writing.writes import Writes
from onejob.objects.meta import Key
from onejob.store.base import StagingStore, Stored
from onejob.wire.errors import ApiError, Conflict
from onejob.wire.requests import Outcome

#: Number of attempts; the same as upstream's for patches.
_TRIES = 5


class _Staged(Struct, frozen=True):
    key: Key
    expected: int
    value: bytes | None
    cold: bool
    quiet: bool


class Rehearsal:
    """Recording `StagingStore` over a snapshot of a few objects.

    Objects outside the snapshot are treated as absent, and that read is recorded in `known` like
    any other. At most one write can be staged, and what it tells about its document and changes is
    ignored; removals of damaged objects are not supported.
    """

    def __init__(
        self, known: dict[Key, Stored | None], revision: int, staged_revision: int
    ) -> None:
        self.known = known
        self.revision = revision
        self.staged_revision = staged_revision
        self.staged: _Staged | None = None
        #: Always empty: damage is detected when the snapshot is read.
        self.damaged: dict[Key, int] = {}

    def newest(self, key: Key) -> Stored | None:
        return self.known.setdefault(key, None)

    def newest_is_damaged(self, key: Key) -> bool:
        """Return False: reading detects damage."""
        return False

    def discard(self, key: Key) -> int:
        """Not supported: raises AssertionError."""
        raise AssertionError("deletions are not rehearsed")

    def stage(
        self,
        key: Key,
        expected: int,
        encode: Callable[[int], bytes] | None,
        *,
        cold: bool = False,
        quiet: bool = False,
        tail: tuple[int, int] | None = None,
        finalizers: tuple[str, ...] | None = None,
    ) -> Stored | None:
        assert self.staged is None, "one write at a time is rehearsed"
        self.staged_revision += 1
        value = None if encode is None else encode(self.staged_revision)
        self.staged = _Staged(key, expected, value, cold, quiet)
        return None if value is None else Stored(key, self.staged_revision, value)


class LiveRehearsal(Rehearsal):
    """Rehearsal on the event loop's thread: objects are read from the store when first needed."""

    def __init__(self, store: StagingStore) -> None:
        super().__init__({}, store.revision, store.staged_revision)
        self._store = store

    def newest(self, key: Key) -> Stored | None:
        if key not in self.known:
            self.known[key] = self._store.newest(key)
        return self.known[key]


async def rehearsed(
    writes: Writes,
    keys: Iterable[Key] | None,
    decide: Callable[[Writes], Awaitable[Outcome]],
) -> Outcome:
    """Run `decide` on a rehearsal, stage its write and return the outcome.

    `decide` may be called several times. `keys` are the objects that it is expected to read in a
    thread; None if it runs on the event loop's. Raises Conflict if an object changed during each of
    `_TRIES` attempts, and ApiError from `decide`.
    """
    store = writes.store
    reading = set(keys or ())
    for _ in range(_TRIES):
        if keys is None:
            rehearsal: Rehearsal = LiveRehearsal(store)
        else:
            known = {key: store.newest(key) for key in reading}
            rehearsal = Rehearsal(known, store.revision, store.staged_revision)
        alone = replace(writes, store=rehearsal, asks_quotas=False, on_removal=None)
        error: ApiError | None = None
        outcome = None
        try:
            outcome = await decide(alone)
        except ApiError as refusal:
            error = refusal
        if all(_is_unchanged(store, key, seen) for key, seen in rehearsal.known.items()):
            if error is not None:
                raise error
            assert outcome is not None
            return _stage_result(writes, rehearsal, outcome)
        reading |= rehearsal.known.keys()
    raise Conflict(
        "the object was changed again and again while this request was worked on; please try again"
    )


def _is_unchanged(store: StagingStore, key: Key, seen: Stored | None) -> bool:
    """Return whether the object is still at the version that was read."""
    newest = store.newest(key)
    if newest is None or seen is None:
        return newest is seen
    return newest.revision == seen.revision


def _stage_result(writes: Writes, rehearsal: Rehearsal, outcome: Outcome) -> Outcome:
    """Stage the rehearsed write in the store; return the outcome with its real revision."""
    staged = rehearsal.staged
    if staged is None:
        return outcome
    store = writes.store
    if staged.value is not None and writes.admission.quotas.has_quota(staged.key.namespace):
        # Checked here because only now the usage by concurrent writes is known.
        written = decode(staged.value)
        writes.admission.require_quota(staged.key, written, created=staged.expected == 0)
    assumed, value = rehearsal.staged_revision, staged.value
    if value is None:
        removed = rehearsal.known[staged.key]
        if writes.on_removal is not None and removed is not None:
            writes.on_removal(removed)
        store.stage(staged.key, staged.expected, None)
        revision = store.staged_revision
        document = at_revision(outcome.document, assumed, revision)
        return msgspec.structs.replace(outcome, document=document, revision=revision)

    def encode(revision: int) -> bytes:
        return value if revision == assumed else at_revision(value, assumed, revision)

    stored = store.stage(staged.key, staged.expected, encode, cold=staged.cold, quiet=staged.quiet)
    assert stored is not None, "only a deletion leaves nothing behind"
    return msgspec.structs.replace(outcome, document=stored.value, revision=stored.revision)
