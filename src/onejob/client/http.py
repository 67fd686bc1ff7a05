"""HTTPS API client, for onejob and Kubernetes servers.

A `Pace` decides when a request may be sent, and a `WritePermit` whether a write may be sent and how
long it may take; both are consulted right before a request is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from random import Random
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Final, Protocol

from onejob import __version__
from onejob.client.answers import (
    ResponseLimits,
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
from onejob.client.naming import matches_sent, with_chosen_name
from onejob.client.pacing import Pace, Trouble, Unlimited, retry_delay
from onejob.client.requests import (
    HttpRequest,
    get_request,
    list_request,
    watch_request,
    write_request,
)
from onejob.client.tls import tls_context
from onejob.client.transport.answer import UnusableResponse
from onejob.client.transport.dialing import Headers, Route
from onejob.client.transport.pool import PooledResponse, Transport
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
#: Range of watch timeouts in seconds. Servers are requested to end watches now and then, so that
#: none outlives a lost connection.
_WATCH_SECONDS: Final = (300, 600)
_TOO_BUSY_TRIES: Final = 5
#: Attempts at a create with an unknown result: look the object up and, if absent, create it again.
_CREATE_TRIES: Final = 7
#: Generated names that may collide before AlreadyExists is raised.
_NAME_TRIES: Final = 8
#: Bytes read of the error response to a watch or a stream.
_MAX_ERROR_BYTES: Final = 2**20
#: Events decoded between two yields to the event loop.
_LINES_PER_TURN: Final = 500
_TRUSTED: Final = ResponseLimits()
#: Renewed client certificates leave connections behind; those of this many certificates are kept.
_MAX_TRANSPORTS: Final = 3


class WritePermit(Protocol):
    """Permission to write, as of the leader of replicas."""

    def seconds(self) -> float:
        """Return the seconds that a write sent now may take.

        Raises ApiError if none may be sent.
        """


class AlwaysPermitted:
    """Permission of a client without leader election."""

    def seconds(self) -> float:
        return _REQUEST_SECONDS


class HttpClient:
    """Implementation of `onejob.client.base.Client` over HTTPS. Connections are reused.

    Retries: requests answered with 429 or 503 and Retry-After are sent again. A create with
    generateName is retried under its chosen name if its result is unknown. Other writes whose
    response is lost raise `Unreachable`; the server may have performed them.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        rng: Random,
        concurrency: int = 32,
        pace: Pace | None = None,
        permit: WritePermit | None = None,
        request_seconds: float = _REQUEST_SECONDS,
        limits: ResponseLimits = _TRUSTED,
    ) -> None:
        """Create a client; it connects at the first request.

        `concurrency` bounds the concurrent writes of one `write_many`; `limits` bounds the size of
        responses.
        """
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
        #: Transports by the client certificate that their connections present; the newest last.
        self._transports: dict[tuple[bytes, bytes], Transport] = {}
        #: Number of requests sent, for statistics.
        self.requests = 0

    async def get(self, key: Key) -> bytes:
        document = await self._answer(get_request(key))
        require_values(document, self._limits.object_values)
        return document

    async def get_raw(self, target: str) -> bytes:
        """Return the response body of a GET of `target`, a path that begins with a slash."""
        return await self._answer(HttpRequest("GET", target), most_bytes=self._limits.list_bytes)

    async def post_raw(self, target: str, body: bytes) -> bytes:
        """Return the response body of a POST, for reviews and dry runs.

        The write permit does not apply, because such requests store nothing.
        """
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
        # The server ends the watch after `seconds`; if it vanished silently, this client does so a
        # little later.
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
        """Wait until no write is in flight."""
        await self._no_writes.wait()

    async def stream(self, target: str, *, whole: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield the response body of a GET as it arrives; followed logs may take days.

        A lost connection ends it like the end of the body, unless `whole` is set.

        Raises:
            ApiError: before the first piece, if the server refuses the request.
            Unreachable: with `whole`, if the connection is lost before the end of the body.
        """
        response = await self._send(HttpRequest("GET", target), lambda: None)
        try:
            if response.status != 200:
                raise error_of(response.status, await _read(response))
            while chunk := await _next_chunk(response, whole=whole):
                yield chunk
        finally:
            response.close()

    async def web_socket(self, target: str, protocols: Sequence[str]) -> "ClientConnection":
        """Open a WebSocket session with a Pod. The caller closes it. Raises ApiError if refused."""
        from onejob.client.web_sockets import open_web_socket

        credential = await self._connection.credentials.current()
        return await open_web_socket(self._connection, credential, target, protocols)

    async def close(self) -> None:
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.close()

    # --- writes ---------------------------------------------------------------------------

    async def _write(self, op: Op, batch: int) -> Written:
        """Execute a write as one of `batch` concurrent ones. Raises ApiError."""
        if isinstance(op, Create):
            return await self._create(op, batch)
        document = await self._answer(write_request(op), batch, permit=self._permit)
        answer = decoded(read_object, document)
        if answer.kind == "Status":
            return await self._what_is_there(op)
        return Written(revision_of(answer.metadata.resource_version), document)

    async def _what_is_there(self, op: Op) -> Written:
        """Return the result of a write that the server confirmed with a Status, without a revision.

        Reads the object or its collection to obtain a revision that is not older than the write, so
        that caches can wait for it.
        """
        assert not isinstance(op, Create), "a create is answered with what was created"
        if isinstance(op, Bind | Evict):
            try:
                document = await self.get(op.key)
            except NotFound:
                # Evicted at once: only the collection has a newer revision.
                pass
            else:
                revision = decoded(read_object, document).metadata.resource_version
                return Written(revision_of(revision), document)
        what = Selection(op.key.resource, op.key.namespace)
        return Written((await self.list(what, limit=1)).revision, b"")

    async def _create(self, op: Create, batch: int) -> Written:
        """Create an object; with generateName, under names chosen here until one is free."""
        body = op.document
        document, name = with_chosen_name(body, self._rng)
        if document is body:
            # Other clients may choose the same name, so an object found under it need not be ours.
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
            document, name = with_chosen_name(body, self._rng)

    async def _create_named(self, op: Create, name: str, batch: int) -> Written:
        """Create an object under a unique name, retrying if the result is unknown.

        An unknown result (no response, 5xx) is resolved by reading the object. If it does not
        exist, the create is sent again under the same name, which can be taken only once.
        """
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
                    if not matches_sent(found, op.document):
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
        """Return an object; None if it does not exist."""
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
        """Return the body of a successful response; raise the ApiError of any other response.

        The body may have `most_bytes`, by default as many as one object may have. Requests with a
        `permit` are writes.
        """
        most_bytes = most_bytes or self._limits.object_bytes
        for attempt in range(_TOO_BUSY_TRIES):
            status, headers, body = await self._ask(request, batch, permit, most_bytes)
            if status < 300:
                return body
            # A server that sends Retry-After has not performed the request.
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
        """Send one request; return status, headers and the whole body of the response."""
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
        """Return the seconds that a request sent now may take."""
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

    async def _send(
        self, request: HttpRequest, seconds: Callable[[], float | None]
    ) -> PooledResponse:
        """Send a request and return the head of its response; renew a refused credential once.

        Obtaining a credential may take long, so `seconds`, the time limit of the request itself, is
        called after that.
        """
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
    ) -> PooledResponse:
        """Send a request with a credential and return the response."""
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
                f"{self._connection.server} has an untrusted certificate: "
                f"{error.verify_message or error}"
            ) from error
        except ValueError as error:
            raise Unauthorized(f"cannot use the credential: {error}") from error
        except OSError as error:
            raise unreachable(error, self._connection.server) from error

    async def _transport_for(self, credential: Credential) -> Transport:
        """Return the transport that presents this credential's certificate, if it has one."""
        identity = (credential.certificate, credential.key)
        transport = self._transports.get(identity)
        if transport is None:
            transport = self._transports[identity] = self._new_transport(credential)
        if len(self._transports) > _MAX_TRANSPORTS:
            # Requests may be in flight with the previous certificate, but not with one replaced
            # long ago.
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
    """Return whether the server rejected a request.

    After a failure, or without a response, it may have written.
    """
    return error.code < 500 or isinstance(error, InsufficientStorage)


async def _read(response: PooledResponse, most_bytes: int = _MAX_ERROR_BYTES) -> bytes:
    """Return the body of a response. Raises Unreachable."""
    try:
        return await response.read(most_bytes)
    except OSError as error:
        raise unreachable(error) from error


async def _next_chunk(response: PooledResponse, *, whole: bool = False) -> bytes:
    """Return the next chunk of a stream; empty at its end.

    Unless it is needed `whole`, a lost connection also counts as its end, because the caller then
    watches again. Raises Unreachable if the stream is unusable.
    """
    try:
        return await response.next_piece()
    except UnusableResponse as error:
        raise unreachable(error) from error
    except OSError as error:
        if whole:
            raise unreachable(error) from error
        return b""


async def _lines(
    response: PooledResponse, most_bytes: int
) -> AsyncGenerator[Sequence[bytes], None]:
    """Yield the lines of a stream in batches.

    Raises Unreachable for a line longer than `most_bytes`.
    """
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
