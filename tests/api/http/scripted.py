"""Scripted replacement of the service, for tests of the transport alone."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from onejob.api.strategy import Document
from onejob.api.yielding import SharedYieldBudget, Worker
from onejob.clock import SystemClock
from onejob.wire.errors import not_found
from onejob.wire.kinds import KINDS, Kind
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)


class ScriptedStrategy:
    default_propagation = "Background"
    unconditional_update = True
    shows_as_stored = True

    def columns(self) -> list[dict[str, Any]]:
        return [{"name": "Name", "type": "string", "format": "name"}]

    def cells(self, doc: dict[str, Any], now: datetime) -> list[Any]:
        return [doc["metadata"]["name"]]

    def row_conditions(self, doc: dict[str, Any]) -> list[dict[str, str]]:
        return []


class ScriptedService:
    """Service with one collection of documents, whatever the requested kind is."""

    def __init__(self, documents: Mapping[str, bytes] | None = None) -> None:
        self.documents = dict(documents or {})
        self.clock = SystemClock()
        self.kinds = KindRegistry()
        self.strategies = {kind.resource: ScriptedStrategy() for kind in KINDS}
        self.seen: list[Any] = []
        self.warnings: tuple[str, ...] = ()
        self.events: list[Sequence[WatchEvent]] = []
        self.failure: Exception | None = None
        self.open_watches = 0
        self.no_watches = asyncio.Event()
        self.worker = Worker()
        self.watch_turns = SharedYieldBudget()

    async def admitted(
        self, operation: str, target: Target, body: Document, old: None, options: WriteOptions
    ) -> tuple[Document, tuple[str, ...]]:
        return body, ()

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        self._fail()
        if name not in self.documents:
            raise not_found(kind.resource, name)
        return self.documents[name]

    async def get_for_client(self, kind: Kind, namespace: str, name: str) -> bytes:
        return await self.get(kind, namespace, name)

    def outcome_for_client(self, kind: Kind, outcome: Outcome) -> Outcome:
        return outcome

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        self._fail()
        self.seen.append(options)
        return ListOutcome(tuple(self.documents.values()), 7)

    async def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        self._fail()
        self.seen.append(options)
        self.open_watches += 1
        try:
            for batch in self.events:
                yield batch
            await asyncio.get_running_loop().create_future()
        finally:
            self.open_watches -= 1
            self.no_watches.set()

    async def create(
        self,
        kind: Kind,
        namespace: str,
        body: dict[str, Any],
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
        problems: Sequence[str] = (),
        size: int = 0,
    ) -> Outcome:
        self._fail()
        self.seen.append((body, options))
        return Outcome(201, b'{"kind":"Echo"}', 1, self.warnings)

    async def update(
        self, kind: Kind, namespace: str, name: str, body: Any, options: WriteOptions, **_: Any
    ) -> Outcome:
        self.seen.append((body, options))
        return Outcome(200, b'{"kind":"Echo"}', 1)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: Any,
        options: WriteOptions,
        **_: Any,
    ) -> Outcome:
        self.seen.append((patch_type, body, options))
        return Outcome(200, b'{"kind":"Echo"}', 1)

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> Outcome:
        self.seen.append(options)
        return Outcome(200, b'{"kind":"Status","apiVersion":"v1","status":"Success"}', 1)

    async def delete_collection(
        self, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListOutcome:
        self.seen.append((selection, options))
        return ListOutcome((), 7)

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
