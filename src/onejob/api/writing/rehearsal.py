"""A large write, computed on another thread against a few objects as they were, then staged.

`Writes` decides a write in one go, so that nothing comes between reading and writing. For a large
document that takes too long for the event loop. So it is decided on a `Rehearsal` of the store,
which only notes what was read and what is to be staged. Back on the loop, the decision counts if
all that was read is still so; otherwise it is made again.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.api.sections import at_revision, sectioned
from onejob.api.writing.known_creations import KnownCreations
from onejob.api.writing.recent_documents import RecentDocuments
from onejob.api.writing.writes import Writes
from onejob.api.yielding import Worker
from onejob.objects.meta import Key
from onejob.store.base import StagingStore, Stored
from onejob.wire.errors import ApiError, Conflict
from onejob.wire.requests import Outcome

#: As often as upstream tries a patch again.
_TRIES = 5


class _Staged(Struct, frozen=True):
    key: Key
    expected: int
    value: bytes | None
    cold: bool
    quiet: bool


class Rehearsal:
    """What `Writes` needs of a store, over objects that were read before. All others are taken
    to be absent, and that is noted like any other reading."""

    def __init__(
        self, known: dict[Key, Stored | None], revision: int, staged_revision: int
    ) -> None:
        self.known = known
        self.revision = revision
        self.staged_revision = staged_revision
        self.staged: _Staged | None = None
        #: Those were found when the objects were read.
        self.damaged: dict[Key, int] = {}

    def newest(self, key: Key) -> Stored | None:
        return self.known.setdefault(key, None)

    def newest_is_damaged(self, key: Key) -> bool:
        return False

    def discard(self, key: Key) -> int:
        raise AssertionError("deletions are not rehearsed")

    def stage(
        self,
        key: Key,
        expected: int,
        encode: Callable[[int], bytes] | None,
        *,
        cold: bool = False,
        quiet: bool = False,
    ) -> Stored | None:
        assert self.staged is None, "one write at a time is rehearsed"
        self.staged_revision += 1
        value = None if encode is None else encode(self.staged_revision)
        self.staged = _Staged(key, expected, value, cold, quiet)
        return None if value is None else Stored(key, self.staged_revision, value)


async def rehearsed(
    writes: Writes,
    worker: Worker,
    keys: Iterable[Key],
    decide: Callable[[Writes], Outcome],
) -> Outcome:
    """The outcome of `decide`, staged. It may be called several times, on another thread; `keys`
    are those it is known to read."""
    store = writes.store
    reading = set(keys)
    for _ in range(_TRIES):
        known = {key: store.newest(key) for key in reading}
        rehearsal = Rehearsal(dict(known), store.revision, store.staged_revision)
        # Documents that the loop's thread reads are not for this one.
        alone = replace(
            writes,
            store=rehearsal,
            recent=RecentDocuments(),
            known_creations=KnownCreations(),
            asks_quotas=False,
        )
        error: ApiError | None = None
        outcome = None
        try:
            outcome = await worker.run(decide, alone)
        except ApiError as refusal:
            error = refusal
        if all(_same(store, key, seen) for key, seen in rehearsal.known.items()):
            if error is not None:
                raise error
            assert outcome is not None
            return _staged(writes, rehearsal, outcome)
        reading |= rehearsal.known.keys()
    raise Conflict(
        "the object was changed again and again while this large request was worked on; please "
        "try again"
    )


def _same(store: StagingStore, key: Key, seen: Stored | None) -> bool:
    newest = store.newest(key)
    if newest is None or seen is None:
        return newest is seen
    return newest.revision == seen.revision


def _staged(writes: Writes, rehearsal: Rehearsal, outcome: Outcome) -> Outcome:
    staged = rehearsal.staged
    if staged is None:
        return outcome
    store = writes.store
    if staged.value is not None and writes.admission.quotas.has_quota(staged.key.namespace):
        # Only here is it known what others have used meanwhile.
        written = sectioned(staged.value)
        writes.admission.require_quota(staged.key, written, created=staged.expected == 0)
    assumed, value = rehearsal.staged_revision, staged.value
    if value is None:
        store.stage(staged.key, staged.expected, None)
        revision = store.staged_revision
        document = at_revision(outcome.document, assumed, revision)
        return msgspec.structs.replace(outcome, document=document, revision=revision)

    def encode(revision: int) -> bytes:
        return value if revision == assumed else at_revision(value, assumed, revision)

    stored = store.stage(staged.key, staged.expected, encode, cold=staged.cold, quiet=staged.quiet)
    assert stored is not None, "only a deletion leaves nothing behind"
    return msgspec.structs.replace(outcome, document=stored.value, revision=stored.revision)
