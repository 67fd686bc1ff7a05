"""Reads the log on disk into memory and checks that it is consistent."""

from typing import TYPE_CHECKING

from msgspec import Struct

from onejob.store.base import CorruptStore, Stored
from onejob.store.contents import Contents
from onejob.store.damage import Damage, IsReadable
from onejob.store.database import Reader
from onejob.store.encryption import ENCRYPTED_RESOURCE
from onejob.store.history import History
from onejob.store.limits import Limits

if TYPE_CHECKING:
    from onejob.objects.meta import Key

#: A store starts here, not at 0: a resourceVersion of "0" means "any" to clients.
FIRST_REVISION = 1


class Recovered(Struct, frozen=True):
    contents: Contents
    history: History
    revision: int
    compacted: int
    damage: Damage
    #: Revisions of changes that superseded what must not stay in the files.
    erasing: list[int]


def recover(reader: Reader, limits: Limits, now: float, is_readable: IsReadable) -> Recovered:
    """The newest version of everything, and the history that is still kept.

    The log does not say when versions were written: their age counts from `now`. Raises
    CorruptStore if the versions of an object do not follow each other.
    """
    contents, history = Contents(), History(limits)
    compacted = reader.compacted()
    revision = max(compacted, FIRST_REVISION)
    sizes: dict[Key, int] = {}
    erasing: list[int] = []
    for row in reader.rows():
        key, deleted = row.key, row.deleted
        held = contents.find(key)
        replaced = held.revision if isinstance(held, Stored) else held or 0
        if not _follows(row.previous, replaced, deleted, row.revision <= compacted):
            raise CorruptStore(
                f"the log is damaged: revision {row.revision} of {key} cannot follow "
                f"revision {replaced}; restore a copy or use another data directory"
            )
        revision = max(revision, row.revision)
        if row.revision > compacted:
            dead = bool(replaced) + deleted
            history.record(row.revision, dead, sizes.get(key, 0), now)
            if replaced and key.resource == ENCRYPTED_RESOURCE:
                erasing.append(row.revision)
        if deleted:
            del sizes[key]
            contents.remove(key)
        else:
            sizes[key] = row.size
            value = row.value
            contents.put(key, row.revision if value is None else Stored(key, row.revision, value))
    damage = Damage(is_readable)
    damage.check_all(contents)
    return Recovered(contents, history, revision, compacted, damage, erasing)


def _follows(previous: int, replaced: int, deleted: bool, compacted: bool) -> bool:
    """Whether a row can come after revision `replaced` of its key (0: there is none)."""
    if compacted:
        # What it replaced is gone, and so would it be if it were a deletion.
        return replaced == 0 and not deleted
    return previous == replaced and not (deleted and replaced == 0)
