"""Lookups and lists of durable versions, from memory or, for cold objects, from disk.

Lists are in key order, whole or paged; all pages of a list are of one revision.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from onejob.objects.meta import Key
from onejob.store.base import DamagedDocument, Page, Stored
from onejob.store.contents import Contents, Held
from onejob.store.damage import Damage
from onejob.store.database import Reader
from onejob.store.snapshots import Snapshot, Snapshots


class Listing:
    """Paged lists over the durable objects.

    Guarantees: all pages of a list show the state at one revision, whatever is written in between.
    Cold objects of a page are read from disk with one statement, on the calling thread. Damaged
    objects are left out.
    """

    def __init__(self, contents: Contents, reader: Reader, damage: Damage) -> None:
        self._contents = contents
        self._reader = reader
        self._damage = damage
        self.snapshots = Snapshots()

    def page(
        self,
        resource: str,
        namespace: str,
        limit: int,
        after: Key | None,
        at: int,
        revision: int,
    ) -> Page:
        """Return a page as of the retained revision `at`; `revision` is the newest."""
        snapshot = None if at == revision else self._snapshot(resource, at, revision)
        if snapshot is None or not snapshot.differences:
            page = self._current_page(resource, namespace, limit, after, at)
        else:
            page = self._snapshot_page(snapshot, namespace, limit, after)
        if page.next_after is None:
            self.snapshots.drop(resource, at)
        elif self.snapshots.find(resource, at) is None:
            self.snapshots.follow(snapshot or Snapshot(resource, at))
        return page

    def _snapshot(self, resource: str, at: int, revision: int) -> Snapshot:
        """Return the snapshot at a revision, created if it is not followed yet."""
        snapshot = self.snapshots.find(resource, at)
        if snapshot is None:
            snapshot = Snapshot(resource, at)
            for namespace, name, replaced in self._reader.superseded(
                resource, after=at, upto=revision
            ):
                snapshot.note(namespace, name, replaced)
        return snapshot

    def _current_page(
        self, resource: str, namespace: str, limit: int, after: Key | None, at: int
    ) -> Page:
        """Return a page of the current objects."""
        items: list[Stored] = []
        looked_at = remaining = 0
        last: Key | None = None
        for place, bucket, start in self._contents.walk(resource, namespace, after):
            shown, others = bucket.names.page(start, limit - looked_at if limit else None)
            remaining += others
            if shown:
                held = [bucket.objects[name] for name in shown]
                items += self._load_cold(held, (Key(resource, place, name) for name in shown))
                looked_at += len(shown)
                last = Key(resource, place, shown[-1])
        return Page(items, at, last if remaining else None, remaining)

    def _snapshot_page(
        self, snapshot: Snapshot, namespace: str, limit: int, after: Key | None
    ) -> Page:
        """Return a page of the objects at a snapshot's revision."""
        walk = snapshot.walk(self._contents, namespace, after)
        found = list(islice(walk, limit + 1) if limit else walk)
        more = 0 < limit < len(found)
        found = found[: limit or None]
        items = self._load_cold(
            [self._find_version(key, revision) for key, revision in found],
            (key for key, _ in found),
        )
        # The remaining count is unknown without walking the rest of the list.
        return Page(items, snapshot.at, found[-1][0] if more else None, None if more else 0)

    def _find_version(self, key: Key, revision: int) -> Held:
        held = self._contents.find(key)
        return held if isinstance(held, Stored) and held.revision == revision else revision

    def _load_cold(self, held: Sequence[Held], keys: Iterable[Key]) -> Sequence[Stored]:
        """Return the versions, reading cold ones with one statement. Damaged ones are left out."""
        hot = [one for one in held if isinstance(one, Stored)]
        if len(hot) == len(held):
            return hot
        pairs = list(zip(keys, held, strict=True))
        values = self._reader.values({one: key for key, one in pairs if isinstance(one, int)})
        items = []
        for key, one in pairs:
            if isinstance(one, Stored):
                items.append(one)
            elif self._damage.is_whole(key, one, values[one]):
                items.append(Stored(key, one, values[one]))
            elif self._contents.find(key) == one:
                self._damage.set_apart(key, one, self._contents)
        return items


class Versions:
    """Durable versions of objects."""

    def __init__(self, contents: Contents, reader: Reader, damage: Damage) -> None:
        self._contents = contents
        self._reader = reader
        self._damage = damage
        #: Cold versions of the last read, by revision: a read is usually followed by a write of the
        #: same object.
        self._last_cold: dict[int, Stored] = {}

    def find(self, key: Key, held: int | None) -> Stored | None:
        """Return the newest durable version of an object that is not in memory: that with the
        revision `held`, or None. Raises DamagedDocument."""
        if held is None:
            if self._damage.found:
                self._damage.require_whole(key)
            return None
        stored = self._last_cold.get(held)
        if stored is None:
            value = self._reader.value(key, held)
            if not self._damage.is_whole(key, held, value):
                self._damage.set_apart(key, held, self._contents)
                raise DamagedDocument(key, held)
            stored = Stored(key, held, value)
            self._last_cold = {held: stored}
        return stored

    def load(self, keys: Sequence[Key], *, without: Collection[Key]) -> None:
        """Read the cold objects among `keys` with one statement, ahead of calls to `find`."""
        cold = {
            held: key
            for key in keys
            if key not in without and isinstance(held := self._contents.find(key), int)
        }
        if len(cold) > 1:
            values = self._reader.values(cold)
            is_whole = self._damage.is_whole
            self._last_cold = {
                held: Stored(key, held, values[held])
                for held, key in cold.items()
                if is_whole(key, held, values[held])
            }
