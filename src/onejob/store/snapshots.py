"""Snapshots at earlier revisions, for lists that are paged while writes continue.

A snapshot is stored as a difference: the earlier revision of each object that changed since. All
other objects are as in the current contents.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import merge

from onejob.objects.meta import Key
from onejob.store.base import Change
from onejob.store.contents import Contents
from onejob.store.sorted_names import SortedNames

#: Maximum number of paged lists that are tracked concurrently; an older one is rebuilt from the
#: log.
FOLLOWED = 8
#: A snapshot with more changed objects than this is not kept in memory.
MAX_DIFFERENCES = 50_000


class Snapshot:
    """Objects of a resource as of a revision: the versions that were superseded since."""

    def __init__(self, resource: str, at: int) -> None:
        self.resource = resource
        self.at = at
        #: Namespace -> name -> revision at the snapshot, 0 if the object did not exist.
        self._then: dict[str, dict[str, int]] = {}
        self._existed: dict[str, SortedNames] = {}
        self.differences = 0

    def note(self, namespace: str, name: str, replaced: int) -> None:
        """Record a change; `replaced` is the revision before it, 0 for none.

        Must be called for every change after `at`, in order.
        """
        then = self._then.setdefault(namespace, {})
        if name in then:
            return
        then[name] = replaced
        self.differences += 1
        if replaced:
            self._existed.setdefault(namespace, SortedNames()).add(name)

    def walk(
        self, contents: Contents, namespace: str, after: Key | None
    ) -> Iterator[tuple[Key, int]]:
        """Yield keys and revisions as of the snapshot, in order, following `after`."""
        for place in (namespace,) if namespace else self._namespaces(contents):
            if after is not None and place < after.namespace:
                continue
            start = after.name if after is not None and place == after.namespace else None
            for name, revision in self._walk_namespace(contents, place, start):
                yield Key(self.resource, place, name), revision

    def _namespaces(self, contents: Contents) -> list[str]:
        """Return the namespaces that have objects now or had some at the revision, sorted."""
        return sorted({*contents.namespaces(self.resource), *self._existed})

    def _walk_namespace(
        self, contents: Contents, namespace: str, start: str | None
    ) -> Iterator[tuple[str, int]]:
        bucket = contents.bucket(self.resource, namespace)
        then = self._then.get(namespace, {})
        existed = self._existed.get(namespace)
        last = None
        for name in merge(
            bucket.names.after(start) if bucket is not None else (),
            existed.after(start) if existed is not None else (),
        ):
            if name == last:
                continue
            last = name
            revision = then.get(name)
            if revision is None:
                assert bucket is not None
                held = bucket.objects[name]
                revision = held if isinstance(held, int) else held.revision
            if revision:
                yield name, revision


class Snapshots:
    """Snapshots of lists that are being paged, least recently used first."""

    def __init__(self) -> None:
        self._followed: OrderedDict[tuple[str, int], Snapshot] = OrderedDict()

    def find(self, resource: str, at: int) -> Snapshot | None:
        """Return a followed snapshot and mark it as used; None if it is not followed."""
        snapshot = self._followed.get((resource, at))
        if snapshot is not None:
            self._followed.move_to_end((resource, at))
        return snapshot

    def follow(self, snapshot: Snapshot) -> None:
        """Keep the snapshot up to date from now on.

        It must already contain all changes until now.
        """
        self._followed[snapshot.resource, snapshot.at] = snapshot
        if len(self._followed) > FOLLOWED:
            self._followed.popitem(last=False)

    def drop(self, resource: str, at: int) -> None:
        """Stop following a snapshot."""
        self._followed.pop((resource, at), None)

    def drop_before(self, revision: int) -> None:
        for resource, at in tuple(self._followed):
            if at < revision:
                self.drop(resource, at)

    def note(self, change: Change) -> None:
        """Update the snapshots for a change."""
        key = change.key
        for snapshot in tuple(self._followed.values()):
            if snapshot.resource == key.resource:
                snapshot.note(key.namespace, key.name, change.previous_revision)
                if snapshot.differences > MAX_DIFFERENCES:
                    self.drop(snapshot.resource, snapshot.at)

    def __bool__(self) -> bool:
        return bool(self._followed)
