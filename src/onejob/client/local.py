"""In-process API client: no transport, and concurrent writes share commits."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from onejob.api.sections import SectionedDocument, sectioned_patch, split
from onejob.api.service import Service
from onejob.api.unreadable import storage_read_error
from onejob.api.writing.pod_subresources import bind_pod, evict
from onejob.api.yielding import INLINE_BYTES
from onejob.client.base import (
    Bind,
    Create,
    Delete,
    Evict,
    Listing,
    Op,
    Patch,
    Replace,
    Result,
    Selection,
    WatchEvent,
    Written,
)
from onejob.objects.meta import PODS, Key
from onejob.store.base import DamagedDocument
from onejob.wire.errors import ApiError
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    Outcome,
    Target,
    WatchOptions,
    WriteOptions,
)

log = logging.getLogger(__name__)

_TRUSTED = WriteOptions(trusted=True)

#: Writes staged before yielding to the event loop; a few milliseconds of work.
_WRITES_PER_TURN = 100

#: Bytes. Shorter patches are cached once parsed: there are few distinct patches that remove a Pod's
#: finalizer.
_SHORT_PATCH = 256
_short_patch = lru_cache(maxsize=16)(sectioned_patch)
#: All Pods of a Job without indexes are created from the same bytes, which are parsed once.
_split_creation = lru_cache(maxsize=16)(split)


class Place(Protocol):
    """Reserved room on a node for one Pod that is about to be created."""

    @property
    def node(self) -> str: ...

    def take(self, document: bytes, revision: int) -> None:
        """Commit the reservation.

        The Pod is staged with this node, and exists once `revision` is durable.
        """


class Placer(Protocol):
    def find_place(self, spec: bytes) -> Place | None:
        """Return room for a Pod with this spec, or None if the Pod has to wait for capacity."""


class LocalClient:
    """Implementation of `onejob.client.base.Client` on a `Service`.

    Trusted by default (onejob's own controllers and node agent). Pass other `options` to validate
    documents as strictly as over HTTP, for instance manifests written by users.
    """

    def __init__(self, service: Service, options: WriteOptions = _TRUSTED) -> None:
        self._service = service
        self._options = options
        self._trusted = options.trusted
        self._kinds = service.kinds.by_resource
        self._writes = service.writes
        self._placer: Placer | None = None
        self._stages: dict[type[Op], Callable[[Any], Outcome]] = {
            Create: self._stage_create,
            Patch: self._stage_patch,
            Replace: self._stage_replace,
            Delete: self._stage_delete,
            Bind: self._stage_bind,
            Evict: self._stage_evict,
        }

    def place_created_pods(self, placer: Placer) -> None:
        """Let `placer` choose the node of each Pod created through this client.

        Creation and binding then take one write.
        """
        self._placer = placer

    async def get(self, key: Key) -> bytes:
        try:
            return await self._service.get(self._kinds[key.resource], key.namespace, key.name)
        except DamagedDocument as error:
            raise storage_read_error(error, self._service.kinds) from error

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        found = await self._service.list(
            self._kinds[what.resource],
            what.namespace,
            ListOptions(what.labels, what.fields, limit, token),
        )
        return Listing(found.documents, found.revision, found.continue_token)

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        options = WatchOptions(what.labels, what.fields, str(after), allow_bookmarks=True)
        return self._service.watch(self._kinds[what.resource], what.namespace, options)

    async def write(self, op: Op) -> Written:
        if isinstance(op, Patch) and len(op.body) > INLINE_BYTES:
            return await self._write_large(op)
        outcome = await self._service.decided(lambda: self.stage(op))
        return Written(outcome.revision, outcome.document)

    async def _write_large(self, op: Patch) -> Written:
        """Apply a large patch, like one that drops thousands of owners, off the event loop."""
        kind, key = self._kinds[op.key.resource], op.key
        outcome = await self._service.patch(
            kind, key.namespace, key.name, op.type, msgspec.json.decode(op.body), self._options,
            subresource=op.subresource, size=len(op.body),
        )  # fmt: skip
        return Written(outcome.revision, outcome.document)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results = await stage_all(ops, self.stage, self.look_ahead)
        newest, refused = 0, False
        for result in results:
            if type(result) is not Written:
                refused = True
            elif result.revision > newest:
                newest = result.revision
        if refused:
            # A caller that retries at once must not starve other tasks.
            await asyncio.sleep(0)
            await self._service.settled()
        await self._service.durable(newest)
        return results

    async def close(self) -> None:
        """Do nothing: the server owns the store."""

    @property
    def pending_revision(self) -> int:
        """Revision of the newest staged write of any client that is not durable yet."""
        return self._service.store.pending_revision

    @property
    def rollbacks(self) -> int:
        """Number of times that staged writes were lost before they became durable."""
        return self._service.store.rollbacks

    async def durable(self, revision: int) -> None:
        await self._service.durable(revision)

    def stage(self, op: Op) -> Outcome:
        """Validate a write and stage it; it is neither durable nor visible to readers yet."""
        try:
            # A dict rather than `match`: testing the types in turn takes longer than a quick write.
            return self._stages[type(op)](op)
        except DamagedDocument as error:
            raise storage_read_error(error, self._service.kinds) from error

    def look_ahead(self, ops: Sequence[Op]) -> None:
        """Prefetch the objects of all deletions in one read.

        The last versions of deleted objects have mostly left memory.
        """
        self._service.store.warm([op.key for op in ops if type(op) is Delete])

    def _target(self, key: Key, subresource: str = "") -> Target:
        return Target(self._kinds[key.resource], key.namespace, key.name, subresource)

    def _stage_create(self, op: Create) -> Outcome:
        kind = self._kinds[op.resource]
        placer = self._placer
        if op.resource == PODS and self._trusted:
            body: dict[str, Any] = SectionedDocument(_split_creation(op.document))
        else:
            body = self._body(op.document)
        if op.replaces_damaged:
            self._discard_damaged(Key(op.resource, op.namespace, body["metadata"]["name"]))
        if op.resource != PODS or placer is None:
            return self._writes.create(kind, op.namespace, body, self._options)
        place: Place | None = None

        def choose_node(spec: bytes) -> str:
            nonlocal place
            place = placer.find_place(spec)
            return "" if place is None else place.node

        outcome = self._writes.create(kind, op.namespace, body, self._options, (), choose_node)
        if place is not None:
            place.take(outcome.document, outcome.revision)
        return outcome

    def _discard_damaged(self, key: Key) -> None:
        store = self._service.store
        if store.newest_is_damaged(key):
            store.discard(key)
            log.error("%s was recreated as it is by default: what was changed in it is lost", key)

    def _stage_patch(self, op: Patch) -> Outcome:
        key = op.key
        target = Target(self._kinds[key.resource], key.namespace, key.name, op.subresource)
        if op.type != "strategic" or not self._trusted:
            patch = msgspec.json.decode(op.body) if op.type == "json" else self._body(op.body)
        elif len(op.body) > _SHORT_PATCH:
            patch = sectioned_patch(op.body)
        else:
            patch = _short_patch(op.body)
        return self._writes.patch(target, op.type, patch, self._options)

    def _stage_replace(self, op: Replace) -> Outcome:
        target = self._target(op.key, op.subresource)
        return self._writes.update(target, self._body(op.document), self._options)

    def _stage_delete(self, op: Delete) -> Outcome:
        deletion = DeleteOptions(
            self._options.user,
            self._options.dry_run,
            op.propagation,
            op.grace_seconds,
            op.uid,
            op.resource_version,
        )
        return self._writes.delete(self._target(op.key), deletion)

    def _stage_bind(self, op: Bind) -> Outcome:
        return bind_pod(self._writes, op.key, op.node, op.uid, self._options)

    def _stage_evict(self, op: Evict) -> Outcome:
        grace = op.grace_seconds
        eviction = {"deleteOptions": {"gracePeriodSeconds": grace}} if grace is not None else {}
        namespace, name = op.key.namespace, op.key.name
        budgets = self._service.budgets_in(namespace)
        return evict(self._writes, namespace, name, eviction, self._options, budgets)

    def _body(self, document: bytes) -> dict[str, Any]:
        """Decode a document.

        A trusted one is only split into sections; sections that no rule reads stay encoded.
        """
        if self._trusted:
            return SectionedDocument(split(document))
        decoded: dict[str, Any] = msgspec.json.decode(document)
        return decoded


async def stage_all(
    ops: Sequence[Op],
    stage: Callable[[Op], Outcome],
    look_ahead: Callable[[Sequence[Op]], None],
) -> list[Result]:
    """Stage many writes with yields to the event loop; return one result each, in order.

    `look_ahead` is called with each chunk of writes before the chunk is staged.
    """
    results: list[Result] = []
    for first in range(0, len(ops), _WRITES_PER_TURN):
        if first:
            await asyncio.sleep(0)
        turn = ops[first : first + _WRITES_PER_TURN]
        look_ahead(turn)
        for op in turn:
            try:
                outcome = stage(op)
            except ApiError as error:
                results.append(error)
            else:
                results.append(Written(outcome.revision, outcome.document))
    return results
