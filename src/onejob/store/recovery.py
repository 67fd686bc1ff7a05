"""Reads the log on disk into memory and checks that it is consistent."""

from collections.abc import Iterator
from sys import intern
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.meta import Key
from onejob.store.base import CorruptStore
from onejob.store.contents import Contents, Held
from onejob.store.damage import Damage, IsReadable
from onejob.store.database import Reader
from onejob.store.encryption import ENCRYPTED_RESOURCE
from onejob.store.history import History
from onejob.store.limits import Limits

#: A store starts here, not at 0: a resourceVersion of "0" means "any" to clients.
FIRST_REVISION = 1

_Name: TypeAlias = tuple[str, str, str]
#: Revision, size of the document, whether it is cold.
_Version: TypeAlias = tuple[int, int, int]
_NONE: _Version = (0, 0, 0)


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
    history = History(limits)
    compacted = reader.compacted()
    newest = max(compacted, FIRST_REVISION)
    live: dict[_Name, _Version] = {}
    erasing: list[int] = []
    #: Also the versions that are only history must be readable, for watchers.
    sealed: dict[int, Key] = {}
    # Most rows are versions that others have replaced: neither keys nor documents are made of them.
    for revision, previous, resource, namespace, name, deleted, size, cold in reader.rows():
        named = (intern(resource), intern(namespace), name)
        replaced, dead_bytes, _ = live.get(named, _NONE)
        if not _follows(previous, replaced, bool(deleted), revision <= compacted):
            raise CorruptStore(
                f"the log is damaged: revision {revision} of {Key(*named)} cannot follow "
                f"revision {replaced}; restore a copy or use another data directory"
            )
        newest = max(newest, revision)
        if revision > compacted:
            history.record(revision, bool(replaced) + deleted, dead_bytes, now)
        if resource == ENCRYPTED_RESOURCE:
            if replaced and revision > compacted:
                erasing.append(revision)
            if not deleted:
                sealed[revision] = Key(*named)
        if deleted:
            del live[named]
        else:
            live[named] = (revision, size, cold)
    contents = Contents()
    contents.fill(_held(live, sealed, reader))
    damage = Damage(is_readable)
    damage.check_all(contents)
    return Recovered(contents, history, newest, compacted, damage, erasing)


def _held(
    live: "dict[_Name, _Version]", sealed: dict[int, Key], reader: Reader
) -> Iterator[tuple[Key, Held]]:
    """What is live, with the documents of what is hot. Raises MissingKey."""
    hot: dict[int, Key] = {}
    for named, (revision, _, cold) in live.items():
        key = Key(*named)
        if cold:
            yield key, revision
        else:
            hot[revision] = key
    for stored in reader.first_values({**sealed, **hot}):
        if stored.revision in hot:
            yield stored.key, stored


def _follows(previous: int, replaced: int, deleted: bool, compacted: bool) -> bool:
    """Whether a row can come after revision `replaced` of its key (0: there is none)."""
    if compacted:
        # What it replaced is gone, and so would it be if it were a deletion.
        return replaced == 0 and not deleted
    return previous == replaced and not (deleted and replaced == 0)
