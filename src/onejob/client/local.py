"""The client for those who live in the server's process: no transport, shared commits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from onejob.api.errors import ApiError
from onejob.api.kinds import BY_RESOURCE
from onejob.api.pod_subresources import bind, evict
from onejob.api.quick_writes import QuickWrites
from onejob.api.requests import (
    DeleteOptions,
    ListOptions,
    Outcome,
    Target,
    WatchOptions,
    WriteOptions,
)
from onejob.api.service import Service
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

_TRUSTED = WriteOptions(trusted=True)

#: Writes staged before others on the event loop get their turn: a few milliseconds' worth.
_WRITES_PER_TURN = 100


class LocalClient:
    """Implements `onejob.client.base.Client` on a `Service`.

    Trusted by default (onejob's own controllers and node agent). Pass other `options` to have
    documents checked as strictly as over HTTP, for instance for manifests that a person wrote.
    """

    def __init__(self, service: Service, options: WriteOptions = _TRUSTED) -> None:
        self._service = service
        self._options = options
        self._quick = QuickWrites(service.writes)

    async def get(self, key: Key) -> bytes:
        return await self._service.get(BY_RESOURCE[key.resource], key.namespace, key.name)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        found = await self._service.list(
            BY_RESOURCE[what.resource],
            what.namespace,
            ListOptions(what.labels, what.fields, limit, token),
        )
        return Listing(found.documents, found.revision, found.continue_token)

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        options = WatchOptions(what.labels, what.fields, str(after), allow_bookmarks=True)
        return self._service.watch(BY_RESOURCE[what.resource], what.namespace, options)

    async def write(self, op: Op) -> Written:
        outcome = self._stage(op)
        await self._service.durable(outcome.revision)
        return Written(outcome.revision, outcome.document)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results: list[Result] = []
        newest = 0
        for position, op in enumerate(ops):
            if position and position % _WRITES_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                outcome = self._stage(op)
            except ApiError as error:
                results.append(error)
            else:
                newest = max(newest, outcome.revision)
                results.append(Written(outcome.revision, outcome.document))
        await self._service.durable(newest)
        return results

    async def close(self) -> None:
        """Nothing to close: the server owns the store."""

    def _stage(self, op: Op) -> Outcome:
        writes, options = self._service.writes, self._options
        match op:
            case Create("pods", namespace, document):
                return self._create_pod(namespace, document)
            case Create(resource, namespace, document):
                kind = BY_RESOURCE[resource]
                return writes.create(kind, namespace, _decode(document), options)
            case Patch(key, body, patch_type, subresource):
                if key.resource == PODS and patch_type == "strategic":
                    outcome = self._quick.patch_pod(key, body, subresource, options)
                    if outcome is not None:
                        return outcome
                kind = BY_RESOURCE[key.resource]
                patch = msgspec.json.decode(body)
                target = Target(kind, key.namespace, key.name, subresource)
                return writes.patch(target, patch_type, patch, options)
            case Replace(key, document, subresource):
                kind = BY_RESOURCE[key.resource]
                target = Target(kind, key.namespace, key.name, subresource)
                return writes.update(target, _decode(document), options)
            case Delete(key, propagation, grace, uid, resource_version):
                kind = BY_RESOURCE[key.resource]
                deletion = DeleteOptions(
                    options.user, options.dry_run, propagation, grace, uid, resource_version
                )
                return writes.delete(Target(kind, key.namespace, key.name), deletion)
            case Bind(key, node, uid):
                outcome = self._quick.bind_pod(key, node, uid)
                if outcome is not None:
                    return outcome
                binding = {"metadata": {"uid": uid}, "target": {"name": node}}
                return bind(writes, key.namespace, key.name, binding, options)
            case Evict(key, grace):
                eviction = (
                    {"deleteOptions": {"gracePeriodSeconds": grace}} if grace is not None else {}
                )
                return evict(writes, key.namespace, key.name, eviction, options)

    def _create_pod(self, namespace: str, document: bytes) -> Outcome:
        outcome = self._quick.create_pod(namespace, document, self._options)
        if outcome is not None:
            return outcome
        outcome = self._service.writes.create(
            BY_RESOURCE[PODS], namespace, _decode(document), self._options
        )
        if self._options.trusted:
            self._quick.learn_spec(document, outcome.document)
        return outcome


def _decode(document: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(document)
    return decoded
