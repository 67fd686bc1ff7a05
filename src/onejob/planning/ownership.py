"""Who owns whom: what becomes of dependents when owners go.

`OwnerGraph` follows metadata as it changes and says what is worth a closer look. A closer look
reads the object and its owners afresh and asks `judge`. The graph may lag behind the API, so no
deletion rests on it alone.
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
    """Look closer: may this object stay, or, if it waits for its dependents, may it go?"""

    uid: str


class Orphan(Struct, frozen=True):
    """Take this owner's reference off all its dependents, then let it go."""

    uid: str


class ForeignOwner(Struct, frozen=True):
    """The owner lives in another namespace, which does not count as owning."""

    uid: str
    owner: OwnerReference


Task: TypeAlias = Examine | Orphan | ForeignOwner


class Node:
    """What the graph remembers of an object."""

    __slots__ = ("deleting", "foreground", "key", "orphaning", "owners", "uid")

    def __init__(self, key: Key, metadata: Meta) -> None:
        self.key = key
        self.uid = metadata.uid
        self.owners = metadata.owner_references
        self.deleting = metadata.deleting
        self.foreground = self.deleting and FOREGROUND_FINALIZER in metadata.finalizers
        self.orphaning = self.deleting and ORPHAN_FINALIZER in metadata.finalizers

    def reference_to(self, owner_uid: str) -> OwnerReference | None:
        return next((owner for owner in self.owners if owner.uid == owner_uid), None)


class OwnerGraph:
    """Objects by UID with their dependents. `observe` and `forget` return what follows.

    `kinds` says for each `Key.resource` which apiVersion and kind references to it must have.
    """

    def __init__(self, kinds: Mapping[str, tuple[str, str]]) -> None:
        self._kinds = kinds
        self._nodes: dict[str, Node] = {}
        #: How many there are of each resource.
        self._counts: Counter[str] = Counter()
        # Insertion-ordered sets: the order of deletions must not depend on hashes.
        self._dependents: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def dependents(self, uid: str) -> Iterator[Node]:
        for dependent in self._dependents.get(uid, ()):
            if (node := self._nodes.get(dependent)) is not None:
                yield node

    def observe(self, key: Key, metadata: Meta) -> Sequence[Task]:
        """An object was created or changed."""
        uid = metadata.uid
        old = self._nodes.get(uid)
        if (
            old is not None
            and not old.deleting
            and metadata.deletion_timestamp is None
            and old.owners == metadata.owner_references
        ):
            return ()  # By far the most changes are none of ownership.
        new = self._nodes[uid] = Node(key, metadata)
        if old is None:
            self._counts[key.resource] += 1
        tasks: list[Task] = []
        if old is None or old.owners != new.owners:
            tasks.extend(self._refile(old, new))
        if new.foreground and not (old is not None and old.foreground):
            tasks.append(Examine(uid))
            tasks.extend(Examine(dependent.uid) for dependent in self.dependents(uid))
        if new.orphaning and not (old is not None and old.orphaning):
            tasks.append(Orphan(uid))
        return tasks

    def forget(self, uid: str) -> Sequence[Task]:
        """An object is gone."""
        tasks: list[Task] = [Examine(dependent.uid) for dependent in self.dependents(uid)]
        node = self._nodes.pop(uid, None)
        if node is not None:
            self._counts[node.key.resource] -= 1
            for owner in node.owners:
                self._unfile(owner.uid, uid)
                tasks.extend(self._if_waiting(owner.uid))
        return tasks

    def forget_resource(self, resource: str) -> None:
        """Objects of that kind are served no more."""
        for uid in [node.uid for node in self._nodes.values() if node.key.resource == resource]:
            self.forget(uid)

    def missing(self, resource: str, uids: Set[str]) -> Sequence[str]:
        """UIDs of the objects of a kind that are known here and not among `uids`, all of which
        were observed."""
        if self._counts[resource] == len(uids):
            # As after the first list of each kind: to look at the nodes of all kinds each time
            # takes longer than anything else if there are a hundred thousand.
            return ()
        return [
            node.uid
            for node in self._nodes.values()
            if node.key.resource == resource and node.uid not in uids
        ]

    def is_settled(self, uid: str) -> bool:
        """Whether, as far as the graph knows, all owners are there and none of them waits: then
        a closer look would find nothing to do."""
        node = self._nodes.get(uid)
        if node is None or node.foreground:
            return node is None
        return all(self._is_solid(node, owner) for owner in node.owners)

    def blocking_dependents(self, uid: str) -> Iterator[Node]:
        """Dependents that an owner deleted in the foreground must wait for."""
        for dependent in self.dependents(uid):
            reference = dependent.reference_to(uid)
            if reference is not None and reference.block_owner_deletion:
                yield dependent

    def _refile(self, old: Node | None, new: Node) -> Iterator[Task]:
        before = {owner.uid: owner for owner in old.owners} if old is not None else {}
        after = {owner.uid: owner for owner in new.owners}
        for uid, owner in after.items():
            if uid not in before:
                self._dependents.setdefault(uid, {})[new.uid] = None
                if self._is_foreign(new, uid):
                    yield ForeignOwner(new.uid, owner)
        for uid, owner in before.items():
            if uid not in after:
                self._unfile(uid, new.uid)
            if owner.block_owner_deletion and not (
                uid in after and after[uid].block_owner_deletion
            ):
                yield from self._if_waiting(uid)
        for owner in new.owners:
            if not self._is_solid(new, owner):
                yield Examine(new.uid)
                return

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

    def _if_waiting(self, owner_uid: str) -> Iterator[Task]:
        owner = self._nodes.get(owner_uid)
        if owner is not None and owner.foreground:
            yield Examine(owner_uid)

    def _unfile(self, owner_uid: str, uid: str) -> None:
        dependents = self._dependents.get(owner_uid)
        if dependents is not None:
            dependents.pop(uid, None)
            if not dependents:
                del self._dependents[owner_uid]


#: What a reference is worth. Dangling: there is no such owner. Waiting: the owner is being
#: deleted and waits for its dependents. Unknown: its kind is not served here.
Standing: TypeAlias = Literal["solid", "dangling", "waiting", "unknown"]


class Stay(Struct, frozen=True):
    pass


class DropReferences(Struct, frozen=True):
    """Some owners are solid, so the object stays, without its references to the others."""

    owner_uids: tuple[str, ...]


class DeleteObject(Struct, frozen=True):
    propagation: Literal["Background", "Foreground", "Orphan"]
    #: A dependent waits for this object in turn: stop blocking owners, or both wait for ever.
    unblock_owners: bool = False


Verdict: TypeAlias = Stay | DropReferences | DeleteObject


def judge(metadata: Meta, standings: Mapping[str, Standing], dependents: Iterable[Node]) -> Verdict:
    """What becomes of an object, given how its owners (by UID) stand."""
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
    """How an owner stands that was looked up where the reference says; None: not found."""
    if owner is None or owner.uid != reference.uid:
        return "dangling"
    if owner.deleting and FOREGROUND_FINALIZER in owner.finalizers:
        return "waiting"
    return "solid"


def without_finalizer(metadata: Meta, finalizer: str) -> bytes:
    """A merge patch that takes off a finalizer, unless the object has changed meanwhile."""
    kept = [name for name in metadata.finalizers if name != finalizer]
    return _metadata_patch(
        uid=metadata.uid, resourceVersion=metadata.resource_version, finalizers=kept
    )


def without_owners(uid: str, owner_uids: Iterable[str]) -> bytes:
    """A strategic merge patch of the object `uid` that drops references."""
    dropped = [{"$patch": "delete", "uid": owner_uid} for owner_uid in owner_uids]
    return _metadata_patch(uid=uid, ownerReferences=dropped)


def without_blocking(metadata: Meta) -> bytes:
    """A strategic merge patch after which the object blocks no owner's deletion."""
    changed = [
        {"uid": owner.uid, "blockOwnerDeletion": False}
        for owner in metadata.owner_references
        if owner.block_owner_deletion
    ]
    return _metadata_patch(uid=metadata.uid, ownerReferences=changed)


def _metadata_patch(**metadata: object) -> bytes:
    return msgspec.json.encode({"metadata": metadata})
