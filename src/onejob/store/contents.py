"""In-memory index of the durable objects: lookup by key, ordered listing.

A hot object is held as its `Stored`; a cold one only as its revision, an int. Keys are not kept for
cold objects: each costs a name, a number and a dict slot.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from onejob.objects.meta import Key
from onejob.store.base import Change, Stored
from onejob.store.sorted_names import SortedNames

Held: TypeAlias = Stored | int


class Bucket:
    """Objects of one resource in one namespace."""

    __slots__ = ("names", "objects")

    def __init__(self) -> None:
        self.objects: dict[str, Held] = {}
        self.names = SortedNames()


class Collection:
    """Objects of one resource."""

    __slots__ = ("buckets", "namespaces")

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}
        self.namespaces = SortedNames()


class Contents:
    """Index of the durable objects by resource, namespace and name.

    `find` returns None for an absent object, its Stored if it is hot, and its revision if it is
    cold. `remove` raises KeyError for an absent object. Namespaces and names are iterated in sorted
    order.
    """

    def __init__(self) -> None:
        self._collections: dict[str, Collection] = {}

    def find(self, key: Key) -> Held | None:
        """Return the object, or the revision of a cold one; None if it does not exist."""
        resource, namespace, name = key
        try:
            objects = self._collections[resource].buckets[namespace].objects
        except KeyError:
            # The resource has no objects, or none in this namespace.
            return None
        return objects.get(name)

    def apply(self, change: Change) -> None:
        """Apply a durable change."""
        key, value = change.key, change.value
        if value is None:
            self.remove(key)
            return
        resource, namespace, name = key
        try:
            bucket = self._collections[resource].buckets[namespace]
        except KeyError:
            bucket = self._add_bucket(resource, namespace)
        if name not in bucket.objects:
            bucket.names.add(name)
        bucket.objects[name] = (
            change.revision if change.cold else Stored(key, change.revision, value, change.tail)
        )

    def fill(self, resource: str, namespace: str, objects: dict[str, Held]) -> None:
        """Add all objects of a resource in a namespace without any; `objects` must not be empty."""
        bucket = self._add_bucket(resource, namespace)
        bucket.objects = objects
        bucket.names = SortedNames(objects)

    def _add_bucket(self, resource: str, namespace: str) -> Bucket:
        """Add the empty bucket of a namespace, and return it."""
        collection = self._collections.setdefault(resource, Collection())
        bucket = collection.buckets[namespace] = Bucket()
        collection.namespaces.add(namespace)
        return bucket

    def remove(self, key: Key) -> None:
        """Remove an object. Raises KeyError if it does not exist."""
        resource, namespace, name = key
        collection = self._collections[resource]
        bucket = collection.buckets[namespace]
        del bucket.objects[name]
        bucket.names.remove(name)
        if not bucket.objects:
            del collection.buckets[namespace]
            collection.namespaces.remove(namespace)

    def hot(self) -> Iterator[Stored]:
        """Yield all versions that are held in memory, unordered."""
        for collection in self._collections.values():
            for bucket in collection.buckets.values():
                yield from (held for held in bucket.objects.values() if isinstance(held, Stored))

    def count(self, resource: str, namespace: str = "") -> int:
        """Return the number of objects, in all namespaces if `namespace` is ""."""
        collection = self._collections.get(resource)
        if collection is None:
            return 0
        if namespace:
            bucket = collection.buckets.get(namespace)
            return len(bucket.objects) if bucket is not None else 0
        return sum(len(bucket.objects) for bucket in collection.buckets.values())

    def namespaces(self, resource: str) -> Sequence[str]:
        """Return the namespaces with objects of the resource, sorted."""
        collection = self._collections.get(resource)
        return list(collection.namespaces.after(None)) if collection is not None else ()

    def bucket(self, resource: str, namespace: str) -> Bucket | None:
        """Return the objects of a namespace; None if there are none."""
        collection = self._collections.get(resource)
        return collection.buckets.get(namespace) if collection is not None else None

    def walk(
        self, resource: str, namespace: str, after: Key | None
    ) -> Iterator[tuple[str, Bucket, str | None]]:
        """Yield each namespace in order, with its bucket and the name to continue after.

        The name is None to start at the beginning.
        """
        for place in (namespace,) if namespace else self.namespaces(resource):
            if after is not None and place < after.namespace:
                continue
            bucket = self.bucket(resource, place)
            if bucket is not None:
                same = after is not None and place == after.namespace
                yield place, bucket, after.name if after and same else None
