"""Garbage collector: cascading deletion by owner references, for every served kind.

Watches the metadata of all kinds but Events, which neither own objects nor are owned.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from onejob.client.base import Delete, Patch, Written
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.informers.cache import Delta
from onejob.informers.shared import AnyObject
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.objects.meta import EVENTS, Key, Meta, OwnerReference
from onejob.planning.ownership import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    DeleteObject,
    DropReferences,
    Examine,
    ForeignOwner,
    Node,
    Orphan,
    OwnerGraph,
    Standing,
    Stay,
    Task,
    judge,
    standing_of,
    without_blocking,
    without_finalizer,
    without_owners,
)
from onejob.wire.errors import ApiError, Conflict, Invalid, NotFound
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry, KindsChanged

#: Seconds to wait before orphaning. A dependent created just before its owner's deletion arrives
#: through another watch within this time; a dependent missed by orphaning would be deleted.
_SETTLE_SECONDS = 0.1

_OWNERS_PER_TURN = 100

#: Consecutive attempts at a deletion while the object keeps changing; then it is examined again,
#: later.
_DELETE_TRIES = 5

_read_metadata: Callable[[bytes], AnyObject] = msgspec.json.Decoder(AnyObject).decode


class GarbageCollector:
    """Controller of cascading deletion.

    Deletes objects whose owners are gone, removes references to absent owners, and releases owners
    that wait for their dependents or orphan them.
    """

    def __init__(
        self, context: ControllerContext, kinds: KindRegistry, *, workers: int = 20
    ) -> None:
        self._client = context.client
        self._recorder = context.recorder
        self._metrics = context.metrics
        self._workers = workers
        self._kinds = kinds
        self._informers = context.informers
        #: apiVersion and kind in owner references, by resource.
        self._coordinates: dict[str, tuple[str, str]] = {}
        self._graph = OwnerGraph(self._coordinates)
        self._queue: WorkQueue[Examine | Orphan] = WorkQueue(first_delay=0.05, longest_delay=60.0)
        self._add_informers(kinds.kinds)
        kinds.subscribe(self._kinds_changed)

    def __len__(self) -> int:
        """Return the number of objects in the graph."""
        return len(self._graph)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle

    async def run(self) -> None:
        """Process the queue.

        Start only after the informers have listed: objects not loaded yet would appear absent.
        """
        await work(self._queue, self.sync, workers=self._workers, name="garbage")

    def _add_informers(self, kinds: Iterable[Kind]) -> None:
        """Start informers for kinds that are not watched yet."""
        for kind in kinds:
            if _is_collected(kind) and kind.resource not in self._coordinates:
                self._coordinates[kind.resource] = (kind.api_version, kind.kind)
                informer = self._informers.metadata(kind.resource)
                informer.on_change(self._changed)
                informer.on_relist(partial(self._relisted, kind.resource))

    def _kinds_changed(self, change: KindsChanged) -> None:
        """Watch added kinds, and forget the objects of removed ones."""
        for kind in change.removed:
            if kind.resource in self._coordinates and kind.resource not in self._kinds.by_resource:
                self._informers.drop(kind.resource)
                # The state of these objects can no longer be determined: their dependents stay.
                self._graph.forget_resource(kind.resource)
                del self._coordinates[kind.resource]
        self._add_informers(change.added)

    def _changed(self, deltas: Sequence[Delta[Any]]) -> None:
        """Update the graph of owners by changes of one kind, and queue the tasks that follow."""
        for delta in deltas:
            old, new = delta.old, delta.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._enqueue(self._graph.forget(old.metadata.uid))
            if new is not None and (tasks := self._graph.observe(delta.key, new.metadata)):
                self._enqueue(tasks)

    def _relisted(self, resource: str, present: Mapping[Key, Any]) -> None:
        """Forget objects deleted between two lists, if the cache did not keep them."""
        uids = {view.metadata.uid for view in present.values()}
        for uid in self._graph.missing(resource, uids):
            self._enqueue(self._graph.forget(uid))

    def _enqueue(self, tasks: Iterable[Task]) -> None:
        """Queue the tasks; an owner in another namespace is reported by an Event instead."""
        for task in tasks:
            if isinstance(task, ForeignOwner):
                self._record_foreign_owner(task)
            else:
                self._queue.add(task)

    async def sync(self, task: Examine | Orphan) -> None:
        """Process a task.

        Counts errors other than Conflict, and raises all of them for a retry.
        """
        try:
            await self._process(task)
        except Conflict:
            # Another client was faster: retried, but not counted as an error.
            raise
        except (ApiError, Retry):
            self._metrics.garbage_sync_errors.inc()
            raise

    async def _process(self, task: Examine | Orphan) -> None:
        """Examine an object unless it is settled, or orphan its dependents. Does nothing if it is
        gone."""
        node = self._graph.node(task.uid)
        if node is None:
            return
        match task:
            case Examine():
                if not self._graph.is_settled(node.uid):
                    await self._examine(node)
            case Orphan():
                await self._orphan_dependents(node)

    # --- a closer look --------------------------------------------------------------------

    async def _examine(self, node: Node) -> None:
        """Read an object and its owners afresh, and delete or change it if they require it.

        Raises Retry if its owners change meanwhile.
        """
        metadata = await self._read_live(node.key)
        if metadata is None or metadata.uid != node.uid:
            self._enqueue(self._graph.forget(node.uid))
            return
        if metadata.deleting:
            if FOREGROUND_FINALIZER in metadata.finalizers:
                await self._release(node, metadata)
            return
        standings: dict[str, Standing] = {}
        for number, owner in enumerate(metadata.owner_references, 1):
            standings[owner.uid] = await self._owner_standing(node.key, owner)
            if number % _OWNERS_PER_TURN == 0:
                # The in-process client looks an owner up without yielding.
                await asyncio.sleep(0)
        match judge(metadata, standings, self._graph.dependents(node.uid)):
            case Stay():
                return
            case DropReferences(owner_uids):
                patch = Patch(node.key, without_owners(node.uid, owner_uids))
                await self._write_unless_gone(patch)
            case DeleteObject() as verdict:
                if verdict.unblock_owners:
                    unblocked = await self._write_unless_gone(
                        Patch(node.key, without_blocking(metadata))
                    )
                    if unblocked is None:
                        return
                    metadata = _read_metadata(unblocked.document).metadata
                    if not _has_same_owner_uids(metadata, standings):
                        raise Retry(f"the owners of {node.key} have changed")
                await self._delete(node, metadata, verdict)

    async def _release(self, owner: Node, metadata: Meta) -> None:
        """Remove the foreground finalizer of an owner, or process its blocking dependents first."""
        blocking = list(self._graph.blocking_dependents(owner.uid))
        if not blocking:
            patch = without_finalizer(metadata, FOREGROUND_FINALIZER)
            await self._write_unless_gone(Patch(owner.key, patch, "merge"))
            return
        for dependent in blocking:
            if not dependent.foreground:
                self._queue.add(Examine(dependent.uid))

    async def _orphan_dependents(self, owner: Node) -> None:
        """Remove the owner's references from its dependents, then its orphan finalizer.

        Waits a moment first, for dependents that were created just before the deletion.
        """
        await asyncio.sleep(_SETTLE_SECONDS)
        dependents = list(self._graph.dependents(owner.uid))
        patches = [Patch(node.key, without_owners(node.uid, [owner.uid])) for node in dependents]
        for node, result in zip(dependents, await self._client.write_many(patches), strict=True):
            # Deleted, or another object of that name: either way it does not have this owner.
            if isinstance(result, ApiError) and not isinstance(
                result, (NotFound, Conflict, Invalid)
            ):
                raise Retry(f"cannot orphan {node.key}: {result}")
        metadata = await self._read_live(owner.key)
        if metadata is not None and metadata.uid == owner.uid:
            patch = without_finalizer(metadata, ORPHAN_FINALIZER)
            await self._write_unless_gone(Patch(owner.key, patch, "merge"))

    async def _delete(self, node: Node, metadata: Meta, verdict: DeleteObject) -> None:
        """Delete the object at the version that was evaluated.

        The verdict depends on the owners alone: if only other fields have changed, the newer
        version is deleted. Upstream drops the resourceVersion for that second attempt, and may
        delete an object that was just adopted.

        Does nothing if the object is gone. Raises Conflict if its owners or, repeatedly, other
        fields have changed.
        """
        version = metadata.resource_version
        for tries_left in reversed(range(_DELETE_TRIES)):
            try:
                await self._write_unless_gone(
                    Delete(node.key, verdict.propagation, uid=node.uid, resource_version=version)
                )
            except Conflict:
                newest = await self._read_live(node.key)
                if newest is None or newest.uid != node.uid:
                    return
                if newest.owner_references != metadata.owner_references or not tries_left:
                    raise
                version = newest.resource_version
            else:
                return

    async def _owner_standing(self, dependent: Key, reference: OwnerReference) -> Standing:
        """Return the state of an owner reference, by a fresh read of the owner.

        "unknown" if its kind is not served, or is namespaced while the dependent is not.
        """
        kind = self._kinds.by_kind.get((reference.api_version, reference.kind))
        if kind is None or "get" not in kind.verbs:
            return "unknown"
        if kind.namespaced and not dependent.namespace:
            # This lookup could never succeed; upstream keeps objects with an owner like this.
            return "unknown"
        namespace = dependent.namespace if kind.namespaced else ""
        owner = await self._read_live(Key(kind.storage, namespace, reference.name))
        return standing_of(reference, owner)

    async def _read_live(self, key: Key) -> Meta | None:
        """Return the object's current metadata from the API server; None if it does not exist."""
        try:
            return _read_metadata(await self._client.get(key)).metadata
        except NotFound:
            return None

    async def _write_unless_gone(self, op: Delete | Patch) -> Written | None:
        """Return the result of a write; None if the object does not exist."""
        try:
            return await self._client.write(op)
        except NotFound:
            return None

    def _record_foreign_owner(self, task: ForeignOwner) -> None:
        """Record the Event OwnerRefInvalidNamespace on the dependent."""
        node = self._graph.node(task.uid)
        if node is None:
            return
        kind = self._kinds.by_resource.get(node.key.resource)
        if kind is None:
            return
        owner = task.owner
        described = (
            f"[{owner.api_version}/{owner.kind}, namespace: {node.key.namespace}, "
            f"name: {owner.name}, uid: {owner.uid}]"
        )
        metadata = Meta(name=node.key.name, namespace=node.key.namespace, uid=node.uid)
        self._recorder.record(
            about(kind.api_version, kind.kind, metadata),
            "Warning",
            "OwnerRefInvalidNamespace",
            f'ownerRef {described} does not exist in namespace "{node.key.namespace}"',
        )


def _has_same_owner_uids(metadata: Meta, standings: Mapping[str, Standing]) -> bool:
    """Return whether the object still has exactly the owners whose state was evaluated."""
    return {owner.uid for owner in metadata.owner_references} == standings.keys()


def _is_collected(kind: Kind) -> bool:
    """Return whether objects of the kind can have owners and be deleted."""
    return {"watch", "delete"} <= set(kind.verbs) and kind.storage != EVENTS and not kind.stored_as
