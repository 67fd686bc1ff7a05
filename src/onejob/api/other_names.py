"""Kinds that are stored under another kind's name: events.k8s.io/v1 Events are core Events.

`OtherNames` checks such documents as what they say they are, then serves them through the
service of the kind they are stored as, translating on the way in and out.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onejob.api.reading import Reading
from onejob.api.strategies.events import from_core, patch_to_core, to_core, validate_new_event
from onejob.api.strategy import Document
from onejob.api.turns import INLINE_BYTES
from onejob.api.writing.metadata import check_type, metadata_of
from onejob.wire.errors import Invalid
from onejob.wire.kinds import Kind
from onejob.wire.requests import (
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from onejob.api.service import Service


class OtherNames:
    def __init__(self, service: "Service", reading: Reading) -> None:
        self._service = service
        self._reading = reading

    async def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Outcome:
        warnings = await self._checked(kind, body, options, problems, size)
        errors = [] if options.trusted else validate_new_event(body)
        if errors:
            raise Invalid(kind.kind, kind.group, metadata_of(body).get("name", ""), errors)
        outcome = await self._service.create(
            self._stored_kind(kind), namespace, to_core(body), options, size=size
        )
        return _with_warnings(translated(outcome), warnings)

    async def update(
        self,
        target: Target,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Outcome:
        kind = target.kind
        warnings = await self._checked(kind, body, options, problems, size)
        outcome = await self._service.update(
            self._stored_kind(kind),
            target.namespace,
            target.name,
            to_core(body),
            options,
            size=size,
        )
        return _with_warnings(translated(outcome), warnings)

    async def patch(
        self,
        target: Target,
        patch_type: str,
        body: Any,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Outcome:
        return translated(
            await self._service.patch(
                self._stored_kind(target.kind),
                target.namespace,
                target.name,
                patch_type,
                patch_to_core(body),
                options,
                problems=problems,
                size=size,
            )
        )

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        return _outward(await self._service.get(self._stored_kind(kind), namespace, name))

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        return all_translated(await self._reading.list(kind, namespace, options))

    async def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async with aclosing(self._reading.watch(kind, namespace, options)) as batches:
            async for batch in batches:
                yield [replace(event, document=_outward(event.document)) for event in batch]

    def _stored_kind(self, kind: Kind) -> Kind:
        return self._service.kinds.by_resource[kind.storage]

    async def _checked(
        self,
        kind: Kind,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Sequence[str]:
        check_type(kind, body)
        normalise = self._service.writes.normalise
        if size <= INLINE_BYTES:
            return normalise(kind, body, options, problems)
        return await self._service.worker.run(normalise, kind, body, options, problems)


def _with_warnings(outcome: Outcome, warnings: Sequence[str]) -> Outcome:
    return replace(outcome, warnings=(*warnings, *outcome.warnings))


def _outward(document: bytes) -> bytes:
    return msgspec.json.encode(from_core(msgspec.json.decode(document)))


def translated(outcome: Outcome) -> Outcome:
    return replace(outcome, document=_outward(outcome.document))


def all_translated(outcome: ListOutcome) -> ListOutcome:
    return replace(outcome, documents=tuple(_outward(d) for d in outcome.documents))
