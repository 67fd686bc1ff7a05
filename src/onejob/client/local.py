"""In-process API client: no transport, and concurrent writes share commits."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

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
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    Outcome,
    Target,
    WatchOptions,
    WriteOptions,
)

log = logging.getLogger(__name__)

#: Results in which damaged objects are not described to clients yet.
_Staged: TypeAlias = list[Written | ApiError | DamagedDocument]

_TRUSTED = WriteOptions(trusted=True)

#: Writes staged before yielding to the event loop; a few milliseconds of work.
_WRITES_PER_TURN = 100


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
        self._dynamic = service.admission.dynamic
        self._stages: dict[type[Op], Callable[[Any], Outcome]] = {
            Create: self._stage_create,
            Patch: self._stage_patch,
            Replace: self._stage_replace,
            Delete: self._stage_delete,
            Bind: self._stage_bind,
            Evict: self._stage_evict,
        }

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
        if self._dynamic.active and self._is_reviewed(op):
            outcome = await self._write_reviewed(op)
            return Written(outcome.revision, outcome.document)
        if isinstance(op, Patch) and len(op.body) > INLINE_BYTES:
            return await self._write_large(op)
        try:
            written = self.stage(op)
        except ApiError:
            await self._service.settled()
            raise
        await self._service.durable(written.revision)
        return written

    async def _write_large(self, op: Patch) -> Written:
        """Apply a large patch, like one that drops thousands of owners, off the event loop."""
        kind, key = self._kinds[op.key.resource], op.key
        outcome = await self._service.patch(
            kind, key.namespace, key.name, op.type, msgspec.json.decode(op.body), self._options,
            subresource=op.subresource, size=len(op.body),
        )  # fmt: skip
        return Written(outcome.revision, outcome.document)

    def _is_reviewed(self, op: Op) -> bool:
        """Return whether a write is subject to policies or webhooks, and so cannot be staged."""
        dynamic = self._dynamic
        if isinstance(op, Create):
            kind = self._kinds[op.resource]
            return dynamic.concerns("CREATE", kind) or (
                # The server may bind a Pod when it creates it.
                op.resource == PODS and dynamic.concerns("CREATE", kind, "binding")
            )
        kind = self._kinds[op.key.resource]
        match op:
            case Bind():
                return dynamic.concerns("CREATE", kind, "binding")
            case Evict():
                return dynamic.concerns("CREATE", kind, "eviction")
            case Delete():
                return dynamic.concerns("DELETE", kind)
            case _:
                return dynamic.concerns("UPDATE", kind, op.subresource)

    async def _write_reviewed(self, op: Op) -> Outcome:
        """Perform one write under dynamic admission, as a request over HTTP does."""
        service, options = self._service, self._options
        if isinstance(op, Create):
            body = msgspec.json.decode(op.document)
            if op.replaces_damaged:
                self._discard_damaged(Key(op.resource, op.namespace, body["metadata"]["name"]))
            kind, size = self._kinds[op.resource], len(op.document)
            return await service.create(kind, op.namespace, body, options, size=size)
        kind, key = self._kinds[op.key.resource], op.key
        place = (kind, key.namespace, key.name)
        match op:
            case Bind():
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": key.name, "namespace": key.namespace, "uid": op.uid},
                    "target": {"kind": "Node", "name": op.node},
                }
                bound = await service.create(
                    kind, key.namespace, binding, options, name=key.name, subresource="binding"
                )
                return replace(bound, document=await self.get(key))
            case Evict():
                eviction: dict[str, Any] = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": key.name, "namespace": key.namespace},
                    **_eviction(op),
                }
                return await service.create(
                    kind, key.namespace, eviction, options, name=key.name, subresource="eviction"
                )
            case Delete():
                return await service.remove(self._target(key), self._deletion(op))
            case Replace():
                body = msgspec.json.decode(op.document)
                return await service.update(
                    *place, body, options, subresource=op.subresource, size=len(op.document)
                )
            case _:
                body = msgspec.json.decode(op.body)
                return await service.patch(
                    *place, op.type, body, options, subresource=op.subresource, size=len(op.body)
                )

    async def _result_of(self, op: Op) -> Result:
        try:
            outcome = await self._write_reviewed(op)
        except ApiError as error:
            return error
        except DamagedDocument as error:
            return storage_read_error(error, self._service.kinds)
        return Written(outcome.revision, outcome.document)

    async def _write_many_reviewed(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Perform writes under dynamic admission concurrently, those to one object in order."""
        results: list[Result | None] = [None] * len(ops)
        by_object: dict[object, list[int]] = {}
        for place, op in enumerate(ops):
            by_object.setdefault(place if isinstance(op, Create) else op.key, []).append(place)

        async def perform(places: Sequence[int]) -> None:
            for place in places:
                results[place] = await self._result_of(ops[place])

        async with asyncio.TaskGroup() as tasks:
            for places in by_object.values():
                tasks.create_task(perform(places))
        return [result for result in results if result is not None]

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self._dynamic.active and any(map(self._is_reviewed, ops)):
            return await self._write_many_reviewed(ops)
        results = await stage_all(ops, self.stage_many)
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

    def stage(self, op: Op) -> Written:
        """Validate a write and stage it; it is neither durable nor visible to readers yet."""
        (result,) = self.stage_many((op,))
        if isinstance(result, ApiError):
            raise result
        return result

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Validate writes and stage them; return one result each, in order.

        Consecutive writes of one kind are evaluated together where that saves work.
        """
        # The last versions of deleted objects have mostly left memory: read them all at once.
        self._service.store.warm([op.key for op in ops if type(op) is Delete])
        results: _Staged = []
        for op_type, run in groupby(ops, type):
            results += self._stage_run(op_type, list(run))
        kinds = self._service.kinds
        return [
            # Not `isinstance`: this is evaluated for each write.
            result if type(result) is Written else _answered(result, kinds)
            for result in results
        ]

    def _stage_run(self, op_type: type[Op], ops: Sequence[Any]) -> _Staged:
        """Stage writes of one type."""
        if self._trusted and op_type is Create:
            pods = [op for op in ops if op.resource == PODS and b'"generateName"' in op.body]
            if len(pods) == len(ops):
                return self._writes.create_pods(pods, self._options)
        elif self._trusted and op_type is Patch:
            pods = [op for op in ops if op.key.resource == PODS and op.type == "strategic"]
            if len(pods) == len(ops):
                return self._writes.patch_pods(pods, self._options)
        else:
            pods = []
        if not pods:
            return [self._stage_singly(op) for op in ops]
        return [result for op in ops for result in self._stage_run(op_type, (op,))]

    def _stage_singly(self, op: Op) -> Written | ApiError | DamagedDocument:
        try:
            outcome = self._stages[type(op)](op)
        except (ApiError, DamagedDocument) as error:
            return error
        return Written(outcome.revision, outcome.document)

    def _target(self, key: Key, subresource: str = "") -> Target:
        """Return the target of a request."""
        return Target(self._kinds[key.resource], key.namespace, key.name, subresource)

    def _stage_create(self, op: Create) -> Outcome:
        body = msgspec.json.decode(op.document)
        if op.replaces_damaged:
            self._discard_damaged(Key(op.resource, op.namespace, body["metadata"]["name"]))
        return self._writes.create(self._kinds[op.resource], op.namespace, body, self._options)

    def _discard_damaged(self, key: Key) -> None:
        store = self._service.store
        if store.newest_is_damaged(key):
            store.discard(key)
            log.error(
                "%s was damaged and has been recreated with its defaults; changes to it are lost",
                key,
            )

    def _stage_patch(self, op: Patch) -> Outcome:
        target = self._target(op.key, op.subresource)
        if self._trusted and op.subresource == "status" and op.type == "merge":
            return self._writes.patch_status(target, op.body, self._options)
        return self._writes.patch(target, op.type, msgspec.json.decode(op.body), self._options)

    def _stage_replace(self, op: Replace) -> Outcome:
        """Stage a replacement and return the outcome."""
        target = self._target(op.key, op.subresource)
        return self._writes.update(target, msgspec.json.decode(op.document), self._options)

    def _stage_delete(self, op: Delete) -> Outcome:
        return self._writes.delete(self._target(op.key), self._deletion(op))

    def _deletion(self, op: Delete) -> DeleteOptions:
        """Return the options of a deletion."""
        return DeleteOptions(
            self._options.user,
            self._options.dry_run,
            op.propagation,
            op.grace_seconds,
            op.uid,
            op.resource_version,
        )

    def _stage_bind(self, op: Bind) -> Outcome:
        return bind_pod(self._writes, op.key, op.node, op.uid, self._options)

    def _stage_evict(self, op: Evict) -> Outcome:
        eviction = _eviction(op)
        namespace, name = op.key.namespace, op.key.name
        budgets = self._service.budgets_in(namespace)
        return evict(self._writes, namespace, name, eviction, self._options, budgets)


def _answered(result: Written | ApiError | DamagedDocument, kinds: KindRegistry) -> Result:
    """Return a result as clients get it."""
    return storage_read_error(result, kinds) if isinstance(result, DamagedDocument) else result


def _eviction(op: Evict) -> dict[str, Any]:
    """Return the body of an eviction."""
    grace = op.grace_seconds
    return {"deleteOptions": {"gracePeriodSeconds": grace}} if grace is not None else {}


async def stage_all(
    ops: Sequence[Op], stage_many: Callable[[Sequence[Op]], Sequence[Result]]
) -> list[Result]:
    """Stage many writes with yields to the event loop; return one result each, in order."""
    results: list[Result] = []
    for first in range(0, len(ops), _WRITES_PER_TURN):
        if first:
            await asyncio.sleep(0)
        results += stage_many(ops[first : first + _WRITES_PER_TURN])
    return results
