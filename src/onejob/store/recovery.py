"""Start-up recovery: read the log on disk into memory and check its consistency."""

from sys import intern
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.meta import Key
from onejob.store.base import CorruptStore
from onejob.store.checksums import is_intact
from onejob.store.contents import Contents, Held
from onejob.store.damage import Damage, IsReadable
from onejob.store.database import Reader
from onejob.store.encryption import ENCRYPTED_RESOURCE
from onejob.store.history import History
from onejob.store.limits import Limits

#: First revision of a store. Not 0, because a resourceVersion of "0" means "any" to clients.
FIRST_REVISION = 1

#: Resource and namespace.
_Place: TypeAlias = tuple[str, str]
#: Revision, size of the document in bytes, whether it is cold.
_Version: TypeAlias = tuple[int, int, int]
_NONE: _Version = (0, 0, 0)


class Recovered(Struct, frozen=True):
    contents: Contents
    history: History
    revision: int
    compacted: int
    damage: Damage
    #: Revisions of changes that superseded sensitive values, which compaction must overwrite.
    erasing: list[int]
    #: Whether some rows have no checksum yet.
    unchecked: bool


def recover(reader: Reader, limits: Limits, now: float, is_readable: IsReadable) -> Recovered:
    """Return the newest version of every object, and the retained history.

    The log does not record when versions were written: their age counts from `now`. Raises
    CorruptStore if the versions of an object do not form a chain.
    """
    history = History(limits)
    compacted = reader.compacted()
    newest = max(compacted, FIRST_REVISION)
    live: dict[_Place, dict[str, _Version]] = {}
    erasing: list[int] = []
    unchecked = False
    last = FIRST_REVISION - 1
    #: Versions of Secrets, superseded ones included: watchers may read them, so their keys are
    #: required.
    sealed: dict[int, Key] = {}
    # Most rows are superseded versions: no keys or documents are built for them. There may be a
    # million rows, so every function call in the loop is noticeable.
    with reader.rows() as rows:
        for revision, previous, resource, namespace, name, deleted, size, cold, crc in rows:
            if revision <= last:
                # Such a row could be listed, but not looked up.
                raise CorruptStore(_damage_message(revision, f"comes after revision {last}"))
            last = revision
            if type(name) is not str or type(namespace) is not str:
                raise CorruptStore(_damage_message(revision, "has no name"))
            if type(resource) is not str:
                resource = str(resource)
            if deleted and not is_intact(revision, resource, None, crc):
                # A document misread as a deletion would take the object with it.
                key = Key(resource, namespace, name)
                raise CorruptStore(
                    _damage_message(revision, f"of {key} does not match its checksum")
                )
            versions = live.get((resource, namespace))
            if versions is None:
                versions = live[intern(resource), intern(namespace)] = {}
            replaced, dead_bytes, _ = versions.get(name, _NONE)
            if revision <= compacted:
                # The version that it replaced was compacted, and so would be a deletion.
                follows = not replaced and not deleted
            else:
                follows = previous == replaced and not (deleted and not replaced)
            if not follows:
                key = Key(resource, namespace, name)
                raise CorruptStore(
                    _damage_message(revision, f"of {key} cannot follow revision {replaced}")
                )
            if revision > compacted and (replaced or deleted):
                history.record(revision, (1 if replaced else 0) + deleted, dead_bytes, now)
            if resource == ENCRYPTED_RESOURCE:
                if replaced and revision > compacted:
                    erasing.append(revision)
                if not deleted:
                    sealed[revision] = Key(resource, namespace, name)
            if crc is None:
                unchecked = True
            if deleted:
                del versions[name]
            else:
                versions[name] = (revision, size, cold)
    newest = max(newest, last)
    if last > compacted:
        # Objects created since the last superseding change are part of the history, too.
        history.record(last, 0, 0, now)
    contents = Contents()
    _load_contents(contents, live, sealed, reader)
    damage = Damage(is_readable)
    damage.check_all(contents, newest)
    return Recovered(contents, history, newest, compacted, damage, erasing, unchecked)


def _damage_message(revision: int, what: str) -> str:
    return (
        f"the log is damaged: revision {revision} {what}; onejob doctor lists lost objects, "
        "saves intact ones and repairs; or restore a backup"
    )


def _load_contents(
    contents: Contents,
    live: "dict[_Place, dict[str, _Version]]",
    sealed: dict[int, Key],
    reader: Reader,
) -> None:
    """Fill `contents` with the live versions, and with the documents of hot ones.

    Raises MissingKey.
    """
    hot: dict[int, Key] = {}
    found: dict[_Place, dict[str, Held]] = {}
    for place, versions in live.items():
        resource, namespace = place
        cold = found[place] = {}
        for name, (revision, _, is_cold) in versions.items():
            if is_cold:
                cold[name] = revision
            else:
                hot[revision] = Key(resource, namespace, name)
    for stored in reader.first_values({**sealed, **hot}):
        if stored.revision in hot:
            resource, namespace, name = stored.key
            found[resource, namespace][name] = stored
    for (resource, namespace), objects in found.items():
        if objects:
            contents.fill(resource, namespace, objects)
