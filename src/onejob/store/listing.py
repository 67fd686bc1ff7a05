"""Lists in key order, whole or page by page, each page of the same moment."""

from itertools import islice

from onejob.objects.meta import Key
from onejob.store.base import Page, Stored
from onejob.store.contents import Contents, Held
from onejob.store.database import Reader
from onejob.store.snapshots import Snapshot, Snapshots


class Listing:
    def __init__(self, contents: Contents, reader: Reader) -> None:
        self._contents = contents
        self._reader = reader
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
        """`at` is a kept revision; `revision` is the newest."""
        snapshot = None if at == revision else self._snapshot(resource, at, revision)
        if snapshot is None or snapshot.is_now:
            page = self._page_now(resource, namespace, limit, after, at)
        else:
            page = self._page_then(snapshot, namespace, limit, after)
        if page.next_after is None:
            self.snapshots.drop(resource, at)
        elif self.snapshots.find(resource, at) is None:
            self.snapshots.follow(snapshot or Snapshot(resource, at))
        return page

    def _snapshot(self, resource: str, at: int, revision: int) -> Snapshot:
        snapshot = self.snapshots.find(resource, at)
        if snapshot is None:
            snapshot = Snapshot(resource, at)
            for namespace, name, replaced in self._reader.superseded(
                resource, after=at, upto=revision
            ):
                snapshot.note(namespace, name, replaced)
        return snapshot

    def _page_now(
        self, resource: str, namespace: str, limit: int, after: Key | None, at: int
    ) -> Page:
        items: list[Stored] = []
        remaining = 0
        for place, bucket, names in self._contents.walk(resource, namespace, after):
            room = limit - len(items) if limit else len(names)
            remaining += max(0, len(names) - room)
            if room > 0:
                objects = bucket.objects
                items += [
                    self._stored(resource, place, name, objects[name]) for name in names[:room]
                ]
        return Page(items, at, items[-1].key if remaining else None, remaining)

    def _page_then(self, snapshot: Snapshot, namespace: str, limit: int, after: Key | None) -> Page:
        walk = snapshot.walk(self._contents, namespace, after)
        found = list(islice(walk, limit + 1) if limit else walk)
        more = 0 < limit < len(found)
        items = [self._version(key, then) for key, then in found[: limit or None]]
        # How many follow would have to be counted.
        return Page(items, snapshot.at, items[-1].key if more else None, None if more else 0)

    def _version(self, key: Key, revision: int) -> Stored:
        held = self._contents.find(key)
        if isinstance(held, Stored) and held.revision == revision:
            return held
        return Stored(key, revision, self._reader.value(revision))

    def _stored(self, resource: str, namespace: str, name: str, held: Held) -> Stored:
        if isinstance(held, Stored):
            return held
        return Stored(Key(resource, namespace, name), held, self._reader.value(held))
