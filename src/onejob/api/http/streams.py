"""Streaming responses: start, encoding of events, and termination."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Final, TypeAlias, TypeVar

from onejob.api.decoding.query import first
from onejob.api.http.negotiation import Representation
from onejob.api.http.representations import (
    WATCH_LINE_TAIL,
    metadata_only,
    watch_line,
    watch_line_head,
)
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import error_response
from onejob.api.http.tables import bookmark_table, object_table, parse_include_object
from onejob.api.schema.protobuf_encoding import encode_event, framed
from onejob.api.service import Service
from onejob.api.shared_batches import SharedBatch
from onejob.api.yielding import LARGE_BYTES, PER_DOCUMENT_COST_BYTES, YIELD_INTERVAL_BYTES
from onejob.wire.errors import ApiError
from onejob.wire.kinds import Kind
from onejob.wire.requests import WatchEvent

T = TypeVar("T")
#: Payload of one WebSocket frame, in pieces that need not be joined.
Frame: TypeAlias = tuple[bytes, ...]

#: Approximate size of one write; as much is held in memory per client that does not read.
_PIECE_BYTES: Final = 16 * 1024
#: Yield budget for encoded forms: protobuf and Table rows cost more than forwarding documents.
_MADE_TURN_BYTES: Final = YIELD_INTERVAL_BYTES // 4


class Rendering:
    """Encoder of documents and events in the representation that one client requested."""

    def __init__(
        self, service: Service, kind: Kind, representation: Representation, request: UserRequest
    ) -> None:
        self._strategy = service.strategies[kind.strategy]
        self._clock = service.clock
        self._form = representation.form
        self._protobuf = representation.media == "protobuf"
        self._render = self._protobuf or self._form == "Table"
        self.turn_bytes = _MADE_TURN_BYTES if self._render else YIELD_INTERVAL_BYTES
        self._worker = service.worker
        self._turns = service.watch_turns
        self._include = parse_include_object(first(request.query, "includeObject"))
        self._columns_sent = False
        self._shape: tuple[Hashable, ...] = (
            kind.api_version,
            kind.kind,
            self._form,
            self._protobuf,
            self._include,
        )

    def render(self, document: bytes) -> bytes:
        """Return a document in the representation of the watch.

        Only the first Table of a stream has column definitions.
        """
        if not self._strategy.shows_as_stored:
            document = self._strategy.shown(document)
        if self._form == "Table":
            with_columns, self._columns_sent = not self._columns_sent, True
            return object_table(
                document,
                self._strategy,
                self._include,
                self._clock.now(),
                with_columns=with_columns,
            )
        return metadata_only(document) if self._form else document

    @property
    def is_text(self) -> bool:
        """Return whether WebSockets carry the events in text frames."""
        return not self._protobuf

    @property
    def stream_type(self) -> bytes:
        """Content type of the watch response."""
        if self._protobuf:
            return b"application/vnd.kubernetes.protobuf;stream=watch"
        return b"application/json"

    def object(self, event: WatchEvent) -> bytes:
        """Return the object of an event in the representation of the watch."""
        if event.type == "BOOKMARK" and self._form == "Table":
            return bookmark_table(event.document)
        return self.render(event.document)

    async def made(self, events: Sequence[WatchEvent]) -> Iterable[bytes]:
        """Return the encoded events in pieces, in a loop iteration with budget for them.

        Large documents are encoded in the worker thread.
        """
        return await self._made_by("lines", self.pieces, events)

    async def made_frames(self, events: Sequence[WatchEvent]) -> Iterable[Frame]:
        """Return one WebSocket frame per event, under the same conditions as `made`."""
        return await self._made_by("frames", self.frames, events)

    async def _made_by(
        self,
        form: str,
        make: Callable[[Sequence[WatchEvent]], Iterator[T]],
        events: Sequence[WatchEvent],
    ) -> Iterable[T]:
        shared = events if isinstance(events, SharedBatch) else None
        shape = (form, *self._shape_now())
        made: Sequence[T]
        if self._render and any(len(event.document) > LARGE_BYTES for event in events):
            if shared is None:
                made = await self._worker.turn(list, make(events))
            else:
                made = await shared.cached_async(
                    shape, lambda: self._worker.turn(list, make(events))
                )
            # Charged only now: the end of an encoding wakes all watchers that share it at once.
            await self._turns.spend(_batch_cost(events))
        else:
            await self._turns.spend(_batch_cost(events))
            if shared is None:
                return make(events)
            made = shared.made(shape, lambda: list(make(events)))
        # Another watcher may have encoded them, including the columns.
        self._columns_sent = True
        return made

    def _shape_now(self) -> tuple[Hashable, ...]:
        """Return the cache key: everything but the events that the encoded bytes depend on."""
        if self._form != "Table":
            return self._shape
        # Rows contain ages in seconds, and only the first event contains the columns.
        return (*self._shape, int(self._clock.now().timestamp()), self._columns_sent)

    def pieces(self, events: Sequence[WatchEvent]) -> Iterator[bytes]:
        """Yield the lines of events, joining small ones.

        A large document is not copied before a piece of it is sent, so that watchers that do not
        read hold no copies.
        """
        joined: list[bytes] = []
        size = 0
        for event in events:
            document = self.object(event)
            if len(document) > _PIECE_BYTES and not self._protobuf:
                yield b"".join((*joined, watch_line_head(event.type)))
                for start in range(0, len(document), _PIECE_BYTES):
                    yield document[start : start + _PIECE_BYTES]
                joined, size = [WATCH_LINE_TAIL], 0
                continue
            line = self.line(event.type, document)
            joined.append(line)
            size += len(line)
            if size >= _PIECE_BYTES:
                yield b"".join(joined)
                joined, size = [], 0
        if joined:
            yield b"".join(joined)

    def frames(self, events: Sequence[WatchEvent]) -> Iterator[Frame]:
        """Yield a WebSocket message for each event."""
        for event in events:
            yield self.frame(event.type, self.object(event))

    def frame(self, event_type: str, document: bytes) -> Frame:
        """Return the parts of a WebSocket message with one event."""
        if self._protobuf:
            return (encode_event(event_type, document),)
        return watch_line_head(event_type), document, WATCH_LINE_TAIL

    def line(self, event_type: str, document: bytes) -> bytes:
        """Return an event in the framing of an HTTP stream."""
        if self._protobuf:
            return framed(encode_event(event_type, document))
        return watch_line(event_type, document)


async def begun(items: AsyncIterator[T], patience_seconds: float) -> "asyncio.Future[T | None]":
    """Start `items` and return a future of the first one (None: the end).

    An early failure is raised here, while an error response is still possible.
    """
    first_item = asyncio.ensure_future(anext(items, None))
    try:
        # An iterator that fails without waiting has failed after two loop iterations.
        for _ in range(2):
            await asyncio.sleep(0)
        if patience_seconds and not first_item.done():
            await asyncio.wait((first_item,), timeout=patience_seconds)
    except BaseException:
        first_item.cancel()
        raise
    if first_item.done():
        first_item.result()
    return first_item


async def resumed(
    first_item: "asyncio.Future[bytes | None]", items: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """Yield an item that is already awaited, then the remaining ones."""
    try:
        item = await first_item
        while item is not None:
            yield item
            item = await anext(items, None)
    finally:
        first_item.cancel()
        await _close(items)


async def _close(items: AsyncIterator[object]) -> None:
    """Close an iterator if it is a generator."""
    if isinstance(items, AsyncGenerator):
        await items.aclose()


def in_slices(
    events: Sequence[WatchEvent], turn_bytes: int = YIELD_INTERVAL_BYTES
) -> Iterator[Sequence[WatchEvent]]:
    """Yield slices of events whose size fits into one yield interval."""
    start = size = 0
    for end, event in enumerate(events, 1):
        size += len(event.document) + PER_DOCUMENT_COST_BYTES
        if size >= turn_bytes:
            yield events[start:end]
            start, size = end, 0
    if start < len(events):
        yield events[start:]


def slices_of(events: Sequence[WatchEvent], turn_bytes: int) -> Iterable[Sequence[WatchEvent]]:
    if isinstance(events, SharedBatch):
        return events.slices(turn_bytes, in_slices)
    return in_slices(events, turn_bytes)


def _batch_cost(events: Sequence[WatchEvent]) -> int:
    return sum(len(event.document) + PER_DOCUMENT_COST_BYTES for event in events)


class Watch:
    """Watch that has been admitted: its events as response lines or as WebSocket frames.

    A failure is sent as the last event, because the response has already begun. Iterate over one of
    the two, once, or `aclose` it.
    """

    def __init__(
        self,
        batches: AsyncIterator[Sequence[WatchEvent]],
        first_batch: "asyncio.Future[Sequence[WatchEvent] | None]",
        rendering: Rendering,
    ) -> None:
        self._batches = batches
        self._first_batch = first_batch
        self._rendering = rendering

    @property
    def content_type(self) -> bytes:
        return self._rendering.stream_type

    @property
    def is_text(self) -> bool:
        return self._rendering.is_text

    def lines(self) -> AsyncGenerator[bytes, None]:
        """Return the events as pieces of an HTTP body."""
        return self._render(self._rendering.made, self._rendering.line)

    def frames(self) -> AsyncGenerator[Frame, None]:
        """Return the events as WebSocket messages."""
        return self._render(self._rendering.made_frames, self._rendering.frame)

    async def _render(
        self,
        make: Callable[[Sequence[WatchEvent]], Awaitable[Iterable[T]]],
        make_one: Callable[[str, bytes], T],
    ) -> AsyncGenerator[T, None]:
        """Yield rendered events, batch by batch, up to the end of the watch."""
        try:
            try:
                events = await self._first_batch
                while events is not None:
                    for turn in slices_of(events, self._rendering.turn_bytes):
                        for piece in await make(turn):
                            yield piece
                    events = await anext(self._batches, None)
            except ApiError as error:
                body = error_response(error).body
                assert isinstance(body, bytes)
                yield make_one("ERROR", body)
        finally:
            self._first_batch.cancel()
            await _close(self._batches)
