"""The client for everybody else: the same verbs over HTTPS, to onejob or to Kubernetes.

What a request may not do, and when it may be sent, is decided by its `Pace` and its `WritePermit`;
here each is asked right before a request is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from random import Random
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Final, Protocol

from onejob import __version__
from onejob.client.answers import (
    AnswerLimits,
    Unreachable,
    Untrusted,
    decoded,
    error_of,
    head_of_items,
    read_list,
    read_object,
    require_values,
    revision_of,
    unreachable,
    watch_event,
    whole_item,
    written,
)
from onejob.client.base import (
    Bind,
    Create,
    Evict,
    Listing,
    Op,
    Result,
    Selection,
    WatchEvent,
    Written,
)
from onejob.client.credentials import Credential
from onejob.client.kubeconfig import Connection
from onejob.client.naming import is_what_was_sent, with_chosen_name
from onejob.client.pacing import Pace, Trouble, Unlimited, retry_delay
from onejob.client.requests import (
    HttpRequest,
    get_request,
    list_request,
    watch_request,
    write_request,
)
from onejob.client.tls import tls_context
from onejob.client.transport.answer import UnusableAnswer
from onejob.client.transport.dialing import Headers, Route
from onejob.client.transport.pool import Response, Transport
from onejob.objects.meta import Key
from onejob.wire.errors import (
    AlreadyExists,
    ApiError,
    InsufficientStorage,
    NotFound,
    Unauthorized,
    already_exists,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_REQUEST_SECONDS: Final = 60.0
#: Servers are asked to end watches now and then, so that none outlives a lost connection.
_WATCH_SECONDS: Final = (300, 600)
_TOO_BUSY_TRIES: Final = 5
#: How often a create whose result is not known is looked for and, where absent, sent again.
_CREATE_TRIES: Final = 7
#: How many chosen names may be taken before that is somebody's fault.
_NAME_TRIES: Final = 8
#: Of an answer to a watch or a stream that is an error.
_MAX_ERROR_BYTES: Final = 2**20
#: Events decoded between two yields to the event loop.
_LINES_PER_TURN: Final = 500
_TRUSTED: Final = AnswerLimits()
#: Certificates that are renewed leave connections behind; those of this many are kept.
_MAX_TRANSPORTS: Final = 3


class WritePermit(Protocol):
    def seconds(self) -> float:
        """How long a write that is sent now may take. Raises an ApiError if none may be sent."""


class AlwaysPermitted:
    def seconds(self) -> float:
        return _REQUEST_SECONDS


class HttpClient:
    """Implements `onejob.client.base.Client`. Connections are kept and used again."""

    def __init__(
        self,
        connection: Connection,
        *,
        rng: Random,
        concurrency: int = 32,
        pace: Pace | None = None,
        permit: WritePermit | None = None,
        request_seconds: float = _REQUEST_SECONDS,
        limits: AnswerLimits = _TRUSTED,
    ) -> None:
        """`concurrency` bounds how many writes of one `write_many` are under way at once; `limits`
        what the server may answer."""
        self._connection = connection
        self._rng = rng
        self._concurrency = concurrency
        self._pace = pace or Unlimited()
        self._permit = permit or AlwaysPermitted()
        self._request_seconds = request_seconds
        self._limits = limits
        self._trouble = Trouble(rng)
        self._writes = 0
        self._no_writes = asyncio.Event()
        self._no_writes.set()
        #: By the certificate that their connections present; the newest last.
        self._transports: dict[tuple[bytes, bytes], Transport] = {}
        #: How many requests were sent, for figures.
        self.requests = 0

    async def get(self, key: Key) -> bytes:
        document = await self._answer(get_request(key))
        require_values(document, self._limits.object_values)
        return document

    async def get_raw(self, target: str) -> bytes:
        """What the server has at a path, which begins with a slash."""
        return await self._answer(HttpRequest("GET", target), most_bytes=self._limits.list_bytes)

    async def post_raw(self, target: str, body: bytes) -> bytes:
        """For reviews and dry runs: whatever is sent is neither stored nor limited by the
        permit to write."""
        return await self._answer(HttpRequest("POST", target, body, "application/json"))

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        request = list_request(what, limit, token)
        body = await self._answer(request, most_bytes=self._limits.list_bytes)
        require_values(body, self._limits.list_values)
        found = decoded(read_list, body)
        head = head_of_items(found.kind.removesuffix("List"), found.api_version)
        return Listing(
            [whole_item(bytes(item), head) for item in found.items],
            revision_of(found.metadata.resource_version),
            found.metadata.continue_token,
        )

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        seconds = self._rng.randint(*_WATCH_SECONDS)
        request = watch_request(what, after, seconds)
        # The server ends the watch; if it is gone without a word, we do, a little later.
        await self._wait_for_turn(1)
        sent_at = _loop_time()
        try:
            response = await self._send(request, lambda: seconds + 30.0)
        except Unreachable:
            self._trouble.failed(sent_at, _loop_time())
            raise
        try:
            self._note_status(response.status, sent_at)
            if response.status != 200:
                raise error_of(response.status, await _read(response))
            async for lines in _lines(response, self._limits.object_bytes):
                events = [watch_event(line, what.resource, self._limits) for line in lines]
                good = [event for event in events if isinstance(event, WatchEvent)]
                if good:
                    yield good
                for event in events:
                    if isinstance(event, ApiError):
                        raise event
        finally:
            response.close()

    async def write(self, op: Op) -> Written:
        return await self._write(op, batch=1)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results: dict[int, Result] = {}
        series: dict[Key | int, list[tuple[int, Op]]] = {}
        for position, op in enumerate(ops):
            of_one_object = position if isinstance(op, Create) else op.key
            series.setdefault(of_one_object, []).append((position, op))
        pending = iter(series.values())

        async def work() -> None:
            for one_after_the_other in pending:
                for position, op in one_after_the_other:
                    try:
                        results[position] = await self._write(op, batch=len(ops))
                    except ApiError as error:
                        results[position] = error

        workers = min(self._concurrency, len(series))
        await asyncio.gather(*(work() for _ in range(workers)))
        return [results[position] for position in range(len(ops))]

    async def no_writes(self) -> None:
        """Wait until no write is under way."""
        await self._no_writes.wait()

    async def stream(self, target: str) -> AsyncGenerator[bytes, None]:
        """The body of what a GET answers with, as it comes; logs that are followed may take days.
        Raises what a refusal says before the first piece."""
        response = await self._send(HttpRequest("GET", target), lambda: None)
        try:
            if response.status != 200:
                raise error_of(response.status, await _read(response))
            while chunk := await _next_chunk(response):
                yield chunk
        finally:
            response.close()

    async def web_socket(self, target: str, protocols: Sequence[str]) -> "ClientConnection":
        """An open session with a Pod; the caller closes it. Raises what a refusal says."""
        from onejob.client.web_sockets import open_web_socket

        credential = await self._connection.credentials.current()
        return await open_web_socket(self._connection, credential, target, protocols)

    async def close(self) -> None:
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.close()

    # --- writes ---------------------------------------------------------------------------

    async def _write(self, op: Op, batch: int) -> Written:
        if isinstance(op, Create):
            return await self._create(op, batch)
        document = await self._answer(write_request(op), batch, permit=self._permit)
        answer = decoded(read_object, document)
        if answer.kind == "Status":
            return await self._what_is_there(op)
        return Written(revision_of(answer.metadata.resource_version), document)

    async def _what_is_there(self, op: Op) -> Written:
        """The server said that a write is done, and nothing about its revision: ask for one that
        is not older, so that caches can wait for it."""
        assert not isinstance(op, Create), "a create is answered with what was created"
        if isinstance(op, Bind | Evict):
            try:
                document = await self.get(op.key)
            except NotFound:
                # Evicted at once: only the collection can tell.
                pass
            else:
                revision = decoded(read_object, document).metadata.resource_version
                return Written(revision_of(revision), document)
        what = Selection(op.key.resource, op.key.namespace)
        return Written((await self.list(what, limit=1)).revision, b"")

    async def _create(self, op: Create, batch: int) -> Written:
        document, name = with_chosen_name(op.document, self._rng)
        if document is op.document:
            # Others may choose the same name: what is found under it need not be ours.
            return written(await self._answer(write_request(op), batch, permit=self._permit))
        tries = _NAME_TRIES
        while True:
            named = Create(op.resource, op.namespace, document)
            tries -= 1
            try:
                return await self._create_named(named, name, batch)
            except AlreadyExists:
                if not tries:
                    raise
            document, name = with_chosen_name(op.document, self._rng)

    async def _create_named(self, op: Create, name: str, batch: int) -> Written:
        """The unknown result of a create is found out by reading what it would have created. If
        that is not there it is sent again: under the same name, which can be taken only once."""
        request = write_request(op)
        unknown: ApiError | None = None
        for attempt in range(_CREATE_TRIES):
            if unknown is not None:
                await asyncio.sleep(retry_delay(attempt - 1, self._rng))
                try:
                    found = await self._find(Key(op.resource, op.namespace, name))
                except ApiError as error:
                    if _is_refusal(error):
                        raise
                    unknown = error
                    continue
                if found is not None:
                    if not is_what_was_sent(found, op.document):
                        raise already_exists(op.resource, name)
                    return written(found)
            try:
                return written(await self._answer(request, batch, permit=self._permit))
            except ApiError as error:
                if unknown is not None and isinstance(error, AlreadyExists):
                    continue
                if _is_refusal(error):
                    raise
                unknown = error
        assert unknown is not None, "every attempt but those of unknown result returns or raises"
        raise unknown

    async def _find(self, key: Key) -> bytes | None:
        try:
            return await self.get(key)
        except NotFound:
            return None

    # --- transport ------------------------------------------------------------------------

    async def _answer(
        self,
        request: HttpRequest,
        batch: int = 1,
        permit: WritePermit | None = None,
        most_bytes: int = 0,
    ) -> bytes:
        """Return the body of a successful answer, of `most_bytes` or as much as one object may
        have; raise the error of any other one. Writes are those that need a permit."""
        most_bytes = most_bytes or self._limits.object_bytes
        for attempt in range(_TOO_BUSY_TRIES):
            status, headers, body = await self._ask(request, batch, permit, most_bytes)
            if status < 300:
                return body
            # A server that says when to come back has not done anything yet.
            retry_after = headers.get("retry-after", "")
            patient = status in (429, 503) and _is_seconds(retry_after)
            if not patient or attempt == _TOO_BUSY_TRIES - 1:
                break
            seconds = int(retry_after)
            await asyncio.sleep(seconds * self._rng.uniform(1.0, 1.2))
        raise error_of(status, body)

    async def _ask(
        self, request: HttpRequest, batch: int, permit: WritePermit | None, most_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request and its whole answer."""
        await self._wait_for_turn(batch)
        if permit is not None:
            self._writes += 1
            self._no_writes.clear()
        sent_at = _loop_time()
        try:
            response = await self._send(request, lambda: self._seconds(permit))
            async with response:
                body = await _read(response, most_bytes)
        except Unreachable:
            self._trouble.failed(sent_at, _loop_time())
            raise
        finally:
            if permit is not None:
                self._writes -= 1
                if not self._writes:
                    self._no_writes.set()
        self._note_status(response.status, sent_at)
        return response.status, response.headers, body

    def _seconds(self, permit: WritePermit | None) -> float:
        """How long a request may take that is sent now."""
        return min(self._request_seconds, permit.seconds()) if permit else self._request_seconds

    async def _wait_for_turn(self, batch: int) -> None:
        await self._pace.turn(batch)
        delay = self._trouble.delay()
        if delay:
            await asyncio.sleep(delay)

    def _note_status(self, status: int, sent_at: float) -> None:
        if status in (502, 503, 504):
            self._trouble.failed(sent_at, _loop_time())
        else:
            self._trouble.succeeded()

    async def _send(self, request: HttpRequest, seconds: Callable[[], float | None]) -> Response:
        """The answer's head. A refused credential is renewed, once. Getting a credential may take
        long, so how long the request itself may take is asked for after that."""
        credentials = self._connection.credentials
        credential = await credentials.current()
        response = await self._send_as(credential, request, seconds())
        if response.status != 401:
            return response
        other = await credentials.renewed(credential)
        if other is None:
            return response
        response.close()
        return await self._send_as(other, request, seconds())

    async def _send_as(
        self, credential: Credential, request: HttpRequest, seconds: float | None
    ) -> Response:
        transport = await self._transport_for(credential)
        headers: Headers = (("Accept", "application/json"),)
        if credential.authorization:
            headers += (("Authorization", credential.authorization),)
        if request.content_type:
            headers += (("Content-Type", request.content_type),)
        self.requests += 1
        try:
            return await transport.request(
                request.method, request.target, headers, request.body, seconds
            )
        except SSLCertVerificationError as error:
            raise Untrusted(
                f"the certificate of {self._connection.server} is not trusted: "
                f"{error.verify_message or error}"
            ) from error
        except ValueError as error:
            raise Unauthorized(f"the credential cannot be used: {error}") from error
        except OSError as error:
            raise unreachable(error, self._connection.server) from error

    async def _transport_for(self, credential: Credential) -> Transport:
        """The connections that present this credential's certificate, if it has one."""
        identity = (credential.certificate, credential.key)
        transport = self._transports.get(identity)
        if transport is None:
            transport = self._transports[identity] = self._new_transport(credential)
        if len(self._transports) > _MAX_TRANSPORTS:
            # Requests may be under way with the certificate before, not with one long replaced.
            await self._transports.pop(next(iter(self._transports))).close()
        return transport

    def _new_transport(self, credential: Credential) -> Transport:
        connection = self._connection
        tls = tls_context(connection, credential) if connection.server[:6] == "https:" else None
        encodings = "gzip" if connection.compress else "identity"
        return Transport(
            Route(connection.server, tls, connection.tls_server_name, connection.proxy),
            (("User-Agent", f"onejob/{__version__}"), ("Accept-Encoding", encodings)),
        )


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _is_seconds(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _is_refusal(error: ApiError) -> bool:
    """Whether the server said no. One that fails, or does not answer, may have written."""
    return error.code < 500 or isinstance(error, InsufficientStorage)


async def _read(response: Response, most_bytes: int = _MAX_ERROR_BYTES) -> bytes:
    try:
        return await response.read(most_bytes)
    except OSError as error:
        raise unreachable(error) from error


async def _next_chunk(response: Response) -> bytes:
    """Return more of a stream; empty at its end. A lost connection is an end too: watch again.
    Raises Unreachable if the stream is unusable."""
    try:
        return await response.next_piece()
    except UnusableAnswer as error:
        raise unreachable(error) from error
    except OSError:
        return b""


async def _lines(response: Response, most_bytes: int) -> AsyncGenerator[Sequence[bytes], None]:
    """Yield the lines of a stream, some at a time. Raises Unreachable for one of more bytes."""
    begun: list[bytes] = []
    size = 0
    while chunk := await _next_chunk(response):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > most_bytes:
            raise Unreachable(f"an event of the watch has more than {most_bytes} bytes")
        if not others:
            continue
        lines = [line for line in (b"".join(begun), *others[:-1]) if line]
        begun, size = [others[-1]], len(others[-1])
        for start in range(0, len(lines), _LINES_PER_TURN):
            if start:
                await asyncio.sleep(0)
            yield lines[start : start + _LINES_PER_TURN]
