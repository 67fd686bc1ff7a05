"""Background maintenance: compaction, checkpoints and vacuum.

It runs in slices small enough not to delay writers.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from onejob.clock import Clock
from onejob.store.base import StoreError, StoreFailed
from onejob.store.checksums import checksum
from onejob.store.database import Reader
from onejob.store.history import History
from onejob.store.writer import Committer, Writer

#: Revisions per compaction slice. A slice after a larger commit takes twice that commit's changes,
#: so that compaction keeps up with the writers.
SLICE_REVISIONS = 512
#: Batch size and interval at which rows of an older schema receive their checksums.
CHECKSUM_ROWS = 256
CHECKSUM_PAUSE_SECONDS = 0.05


class Maintenance:
    """Schedules maintenance on the committer.

    `on_compacting` is called before history up to a revision is removed, `on_failure` when the
    outcome of a write is unknown.
    """

    def __init__(
        self,
        writer: Writer,
        committer: Committer,
        history: History,
        clock: Clock,
        *,
        compacted: int,
        on_compacting: Callable[[int], None],
        on_failure: Callable[[StoreFailed], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._committer = committer
        self._history = history
        self._clock = clock
        self.compacted = compacted
        self._forget_upto = compacted
        self._on_compacting = on_compacting
        self._on_failure = on_failure
        #: Revisions, ascending, whose compaction removes sensitive values, which must be
        #: overwritten.
        self._erasing: deque[int] = deque()
        self._compacting = False
        self._vacuuming = False
        self._writers_busy = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._plan()

    def committing(self, changes: int) -> None:
        """Submit a slice of due compaction, right after the submission of a commit of `changes`."""
        self._writers_busy = True
        self._compact_a_slice(2 * changes)

    def committed(self, revision: int, dead: int, dead_bytes: int) -> None:
        """Record that a commit is durable and superseded `dead` older versions."""
        self._writers_busy = False
        self._history.record(revision, dead, dead_bytes, self._clock.monotonic())
        self._plan()
        if self._writer.checkpoint_due:
            self._committer.submit(self._writer.checkpoint, self._on_done)

    def erase_on_compaction(self, revision: int) -> None:
        """Have the sensitive value that `revision` superseded overwritten when it is compacted."""
        self._erasing.append(revision)

    def add_checksums(self, reader: Reader) -> None:
        """Start adding checksums to rows of an older schema, slice by slice.

        Rows are read here rather than on the writer's thread, which would wait for the GIL at every
        row.
        """
        self._loop.call_later(CHECKSUM_PAUSE_SECONDS, self._add_some_checksums, reader, 0)

    def _add_some_checksums(self, reader: Reader, after: int) -> None:
        if self._stopped:
            return
        rows = reader.without_checksum(after=after, most=CHECKSUM_ROWS)
        if not rows:
            return
        found = [(row[0], checksum(*row)) for row in rows]

        def done(error: StoreError | None) -> None:
            # If the disk is full, the next start retries.
            if self._on_done(error):
                self._loop.call_later(
                    CHECKSUM_PAUSE_SECONDS, self._add_some_checksums, reader, found[-1][0]
                )

        self._committer.submit(lambda: self._writer.add_checksums(found), done)

    def not_committed(self) -> None:
        """Compact history after a failed commit: if the disk was full, that may free some space."""
        self._writers_busy = False
        self._plan()
        self._compact_a_slice(0)

    def stop(self) -> None:
        """Start no further maintenance."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        """Determine how far to compact, and set a timer for the next change due to age alone."""
        now = self._clock.monotonic()
        self._forget_upto = max(self._forget_upto, self._history.forget(now, self._writer.room))
        due_at = self._history.next_forgetting_at()
        if self._timer is None and due_at is not None and not self._stopped:
            self._timer = self._loop.call_later(due_at - now, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._plan()
        self._compact_a_slice(0)

    def _compact_a_slice(self, revisions: int) -> None:
        start = self.compacted
        if self._compacting or self._stopped or start >= self._forget_upto:
            return
        self._compacting = True
        upto = min(self._forget_upto, start + max(revisions, SLICE_REVISIONS))
        # First in memory, then on disk: no reader may start on history that is being removed.
        self.compacted = upto
        self._on_compacting(upto)
        erase = bool(self._erasing) and self._erasing[0] <= upto
        while self._erasing and self._erasing[0] <= upto:
            self._erasing.popleft()
        self._committer.submit(
            lambda: self._writer.compact(upto, upto - start, erase=erase),
            lambda error: self._on_compacted(error, upto if erase else 0),
        )

    def _on_compacted(self, error: StoreError | None, erased_upto: int) -> None:
        """Handle the end of a slice, which overwrites values up to `erased_upto`, if not 0."""
        self._compacting = False
        if error is not None and erased_upto:
            # The next slice overwrites the values that this one should have.
            self._erasing.appendleft(erased_upto)
        if not self._on_done(error):
            return
        if self.compacted < self._forget_upto:
            # While writers are busy, the next slice follows the next commit.
            if not self._writers_busy:
                self._compact_a_slice(0)
        elif self._writer.vacuum_due and not self._vacuuming:
            self._vacuum_a_slice()

    def _vacuum_a_slice(self) -> None:
        self._vacuuming = True
        self._committer.submit(self._writer.vacuum, self._on_vacuumed)

    def _on_vacuumed(self, error: StoreError | None) -> None:
        self._vacuuming = False
        if self._on_done(error) and self._writer.vacuum_due:
            self._vacuum_a_slice()

    def _on_done(self, error: StoreError | None) -> bool:
        """Return whether to continue. Reports an unknown outcome to `on_failure`.

        A step that found the disk full changed nothing; it is retried after later writes.
        """
        if isinstance(error, StoreFailed):
            self.stop()
            self._on_failure(error)
        return error is None and not self._stopped
