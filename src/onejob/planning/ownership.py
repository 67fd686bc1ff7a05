"""Garbage collection by owner references: the fate of dependents when owners are deleted.

`OwnerGraph` follows metadata changes and returns the objects to examine. The controller then reads
an object and its owners afresh and calls `judge`. The graph may lag behind the API, so no deletion
rests on it alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.meta import Key, Meta, OwnerReference

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


class Examine(Struct, frozen=True):
    """Task: examine an object.

    Decide whether it may stay or, if it waits for its dependents, may be deleted.
    """

    uid: str


class Orphan(Struct, frozen=True):
    """Task: remove this owner's reference from all its dependents, then complete its deletion."""

    uid: str


class ForeignOwner(Struct, frozen=True):
    """Task: report a reference to an owner in another namespace, which does not count."""

    uid: str
    owner: OwnerReference


Task: TypeAlias = Examine | Orphan | ForeignOwner


class Node:
    """Ownership metadata of one object in the graph."""

    __slots__ = ("deleting", "foreground", "key", "orphaning", "owners", "uid")

    def __init__(self, key: Key, metadata: Meta) -> None:
        self.key = key
        self.uid = metadata.uid
        self.owners = metadata.owner_references
        self.deleting = metadata.deletion_timestamp is not None
        self.foreground = self.deleting and FOREGROUND_FINALIZER in metadata.finalizers
        self.orphaning = self.deleting and ORPHAN_FINALIZER in metadata.finalizers

    def reference_to(self, owner_uid: str) -> OwnerReference | None:
        """Return the reference to an owner; None if there is none."""
        return next((owner for owner in self.owners if owner.uid == owner_uid), None)


class OwnerGraph:
    """Objects by UID, with their dependents. `observe` and `forget` return the resulting tasks.

    `kinds` maps each `Key.resource` to the apiVersion and kind that references to it must have.
    """

    def __init__(self, kinds: Mapping[str, tuple[str, str]]) -> None:
        self._kinds = kinds
        self._nodes: dict[str, Node] = {}
        #: Number of objects per resource.
        self._counts: Counter[str] = Counter()
        # Insertion-ordered sets: the order of deletions must not depend on hashes.
        self._dependents: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, uid: str) -> Node | None:
        """Return the node of an object; None if it has not been observed."""
        return self._nodes.get(uid)

    def dependents(self, uid: str) -> Iterator[Node]:
        """Yield the observed objects that name this owner."""
        for dependent in self._dependents.get(uid, ()):
            if (node := self._nodes.get(dependent)) is not None:
                yield node

    def observe(self, key: Key, metadata: Meta) -> Sequence[Task]:
        """Record a created or changed object, and return the tasks that follow."""
        uid = metadata.uid
        old = self._nodes.get(uid)
        if (
            old is not None
            and not old.deleting
            and metadata.deletion_timestamp is None
            and old.owners == metadata.owner_references
        ):
            return ()  # By far the most changes leave ownership as it is.
        new = self._nodes[uid] = Node(key, metadata)
        if old is None:
            self._counts[key.resource] += 1
        tasks: list[Task] = []
        if old is None or old.owners != new.owners:
            tasks.extend(self._update_edges(old, new))
        if new.foreground and not (old is not None and old.foreground):
            tasks.append(Examine(uid))
            tasks.extend(Examine(dependent.uid) for dependent in self.dependents(uid))
        if new.orphaning and not (old is not None and old.orphaning):
            tasks.append(Orphan(uid))
        return tasks

    def forget(self, uid: str) -> Sequence[Task]:
        """Remove a deleted object, and return the tasks that follow."""
        tasks: list[Task] = [Examine(dependent.uid) for dependent in self.dependents(uid)]
        node = self._nodes.pop(uid, None)
        if node is not None:
            self._counts[node.key.resource] -= 1
            for owner in node.owners:
                self._remove_edge(owner.uid, uid)
                tasks.extend(self._examine_if_waiting(owner.uid))
        return tasks

    def forget_resource(self, resource: str) -> None:
        """Remove all objects of a resource that is no longer served."""
        for uid in [node.uid for node in self._nodes.values() if node.key.resource == resource]:
            self.forget(uid)

    def missing(self, resource: str, uids: Set[str]) -> Sequence[str]:
        """Return the UIDs of a resource's objects in the graph that are not among `uids`.

        `uids` must be the UIDs of all existing objects of that resource, each of them observed
        before.
        """
        if self._counts[resource] == len(uids):
            # As after the first list of each resource. Scanning the nodes of all resources every
            # time would dominate the cost with 100,000 objects.
            return ()
        return [
            node.uid
            for node in self._nodes.values()
            if node.key.resource == resource and node.uid not in uids
        ]

    def is_settled(self, uid: str) -> bool:
        """Return whether the graph has all owners, and none of them in foreground deletion.

        Examining such an object would have no effect.
        """
        node = self._nodes.get(uid)
        if node is None or node.foreground:
            return node is None
        return all(self._is_solid(node, owner) for owner in node.owners)

    def blocking_dependents(self, uid: str) -> Iterator[Node]:
        """Yield the dependents that block the foreground deletion of an owner."""
        for dependent in self.dependents(uid):
            reference = dependent.reference_to(uid)
            if reference is not None and reference.block_owner_deletion:
                yield dependent

    def _update_edges(self, old: Node | None, new: Node) -> Iterator[Task]:
        """Register the node under its owners; yield tasks for owners that it left."""
        before = {owner.uid: owner for owner in old.owners} if old is not None else {}
        for owner in new.owners:
            if owner.uid not in before:
                self._dependents.setdefault(owner.uid, {})[new.uid] = None
                if self._is_foreign(new, owner.uid):
                    yield ForeignOwner(new.uid, owner)
        if before:
            yield from self._leave(before, new)
        for owner in new.owners:
            if not self._is_solid(new, owner):
                yield Examine(new.uid)
                return

    def _leave(self, before: Mapping[str, OwnerReference], new: Node) -> Iterator[Task]:
        """Remove the node from former owners; yield tasks for owners that it no longer blocks."""
        after = {owner.uid: owner for owner in new.owners}
        for uid, owner in before.items():
            if uid not in after:
                self._remove_edge(uid, new.uid)
            if owner.block_owner_deletion and not (
                uid in after and after[uid].block_owner_deletion
            ):
                yield from self._examine_if_waiting(uid)

    def _is_solid(self, node: Node, reference: OwnerReference) -> bool:
        owner = self._nodes.get(reference.uid)
        return (
            owner is not None
            and not owner.foreground
            and not self._is_foreign(node, reference.uid)
            and owner.key.name == reference.name
            and self._kinds[owner.key.resource] == (reference.api_version, reference.kind)
        )

    def _is_foreign(self, node: Node, owner_uid: str) -> bool:
        owner = self._nodes.get(owner_uid)
        return owner is not None and owner.key.namespace not in ("", node.key.namespace)

    def _examine_if_waiting(self, owner_uid: str) -> Iterator[Task]:
        owner = self._nodes.get(owner_uid)
        if owner is not None and owner.foreground:
            yield Examine(owner_uid)

    def _remove_edge(self, owner_uid: str, uid: str) -> None:
        dependents = self._dependents.get(owner_uid)
        if dependents is not None:
            dependents.pop(uid, None)
            if not dependents:
                del self._dependents[owner_uid]


#: State of an owner reference. Dangling: the owner does not exist. Waiting: the owner is in
#: foreground deletion and waits for its dependents. Unknown: its kind is not served here.
Standing: TypeAlias = Literal["solid", "dangling", "waiting", "unknown"]


class Stay(Struct, frozen=True):
    pass


class DropReferences(Struct, frozen=True):
    """Some owners are solid: keep the object and remove its references to the others."""

    owner_uids: tuple[str, ...]


class DeleteObject(Struct, frozen=True):
    propagation: Literal["Background", "Foreground", "Orphan"]
    #: True if a dependent is in foreground deletion as well: clear blockOwnerDeletion, or both
    #: would wait forever.
    unblock_owners: bool = False


Verdict: TypeAlias = Stay | DropReferences | DeleteObject


def judge(metadata: Meta, standings: Mapping[str, Standing], dependents: Iterable[Node]) -> Verdict:
    """Return the decision about an object, given the state of its owners by UID."""
    if not metadata.owner_references or metadata.deleting or "unknown" in standings.values():
        return Stay()
    lost = tuple(
        owner.uid for owner in metadata.owner_references if standings[owner.uid] != "solid"
    )
    if len(lost) < len(metadata.owner_references):
        return DropReferences(lost) if lost else Stay()
    waits_for_dependents = [dependent.foreground for dependent in dependents]
    if waits_for_dependents and "waiting" in standings.values():
        return DeleteObject("Foreground", unblock_owners=any(waits_for_dependents))
    if ORPHAN_FINALIZER in metadata.finalizers:
        return DeleteObject("Orphan")
    if FOREGROUND_FINALIZER in metadata.finalizers:
        return DeleteObject("Foreground")
    return DeleteObject("Background")


def standing_of(reference: OwnerReference, owner: Meta | None) -> Standing:
    """Return the state of a reference.

    `owner` is the object found under the reference's name, or None.
    """
    if owner is None or owner.uid != reference.uid:
        return "dangling"
    if owner.deleting and FOREGROUND_FINALIZER in owner.finalizers:
        return "waiting"
    return "solid"


def without_finalizer(metadata: Meta, finalizer: str) -> bytes:
    """Return a merge patch that removes a finalizer, unless the object has changed meanwhile."""
    kept = [name for name in metadata.finalizers if name != finalizer]
    return _metadata_patch(
        uid=metadata.uid, resourceVersion=metadata.resource_version, finalizers=kept
    )


def without_owners(uid: str, owner_uids: Iterable[str]) -> bytes:
    """Return a strategic merge patch that removes owner references from the object `uid`."""
    dropped = [{"$patch": "delete", "uid": owner_uid} for owner_uid in owner_uids]
    return _metadata_patch(uid=uid, ownerReferences=dropped)


def without_blocking(metadata: Meta) -> bytes:
    """Return a strategic merge patch after which the object does not block any owner's deletion."""
    changed = [
        {"uid": owner.uid, "blockOwnerDeletion": False}
        for owner in metadata.owner_references
        if owner.block_owner_deletion
    ]
    return _metadata_patch(uid=metadata.uid, ownerReferences=changed)


def _metadata_patch(**metadata: object) -> bytes:
    return msgspec.json.encode({"metadata": metadata})
