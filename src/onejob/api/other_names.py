"""Kinds that are stored under another kind's name: events.k8s.io/v1 Events are core Events.

`OtherNames` serves such a kind through the service of the kind it is stored as, translating
documents on the way in and out.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onejob.api.kinds import BY_RESOURCE, Kind
from onejob.api.requests import (
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    ServedEvent,
    WatchOptions,
    WriteOptions,
)
from onejob.api.strategies.events import from_core, to_core
from onejob.api.strategy import Document

if TYPE_CHECKING:
    from onejob.api.service import Service


def stored_kind(kind: Kind) -> Kind:
    return BY_RESOURCE[kind.storage]


class OtherNames:
    def __init__(self, service: "Service") -> None:
        self._service = service

    async def create(
        self, kind: Kind, namespace: str, body: Document, options: WriteOptions
    ) -> Outcome:
        body.pop("kind", None)
        outcome = await self._service.create(
            stored_kind(kind), namespace, {**to_core(body), "kind": kind.kind}, options
        )
        return _translated(outcome)

    async def update(
        self, kind: Kind, namespace: str, name: str, body: Document, options: WriteOptions
    ) -> Outcome:
        core = stored_kind(kind)
        return _translated(
            await self._service.update(core, namespace, name, to_core(body), options)
        )

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: Any,
        options: WriteOptions,
    ) -> Outcome:
        patch = to_core(body) if isinstance(body, dict) else body
        core = stored_kind(kind)
        return _translated(
            await self._service.patch(core, namespace, name, patch_type, patch, options)
        )

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        return _outward(await self._service.get(stored_kind(kind), namespace, name))

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        return _all_translated(await self._service.list(stored_kind(kind), namespace, options))

    async def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[ServedEvent], None]:
        async with aclosing(self._service.watch(stored_kind(kind), namespace, options)) as batches:
            async for batch in batches:
                yield [replace(event, document=_outward(event.document)) for event in batch]

    async def delete_collection(
        self, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListOutcome:
        core = stored_kind(kind)
        return _all_translated(
            await self._service.delete_collection(core, namespace, selection, options)
        )


def _outward(document: bytes) -> bytes:
    return msgspec.json.encode(from_core(msgspec.json.decode(document)))


def _translated(outcome: Outcome) -> Outcome:
    return replace(outcome, document=_outward(outcome.document))


def _all_translated(outcome: ListOutcome) -> ListOutcome:
    return replace(outcome, documents=tuple(_outward(d) for d in outcome.documents))
