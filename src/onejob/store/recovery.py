"""From the log on disk to the state in memory, checking the log's own rules on the way."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onejob.store.base import CorruptStore, Stored
from onejob.store.contents import Contents
from onejob.store.database import LogRow, Reader
from onejob.store.history import History

if TYPE_CHECKING:
    from onejob.objects.meta import Key

#: A store starts here, not at 0: a resourceVersion of "0" means "any" to clients.
FIRST_REVISION = 1


@dataclass(frozen=True, slots=True)
class Recovered:
    revision: int
    compacted: int


def recover(reader: Reader, contents: Contents, history: History, now: float) -> Recovered:
    """Fill `contents` with the newest version of everything.

    When the versions in the log were written is not recorded; they are kept as if it had been
    `now`. Raises CorruptStore if the versions of an object do not follow each other.
    """
    compacted = reader.compacted()
    revision = max(compacted, FIRST_REVISION)
    sizes: dict[Key, int] = {}
    for row in reader.rows():
        held = contents.find(row.key)
        held_revision = held.revision if isinstance(held, Stored) else held or 0
        if not _follows(row, held_revision, compacted):
            raise CorruptStore(
                f"the log is damaged: revision {row.revision} of {row.key} cannot follow "
                f"revision {held_revision}; restore a copy"
            )
        revision = max(revision, row.revision)
        replaced_size = sizes.pop(row.key, 0)
        if row.deleted:
            contents.remove(row.key)
        else:
            sizes[row.key] = row.size
            contents.put(
                row.key,
                row.revision if row.value is None else Stored(row.key, row.revision, row.value),
            )
        if row.revision > compacted:
            history.record(row.revision, bool(held_revision) + row.deleted, replaced_size, now)
    return Recovered(revision, compacted)


def _follows(row: LogRow, held_revision: int, compacted: int) -> bool:
    """Whether a row can come after the newest one of its key (0: there is none)."""
    if row.revision <= compacted:
        # What it replaced is compacted away, and so would it be if it were a deletion.
        return held_revision == 0 and not row.deleted
    return row.previous == held_revision and not (row.deleted and held_revision == 0)
