"""The client for everybody else: the same verbs over HTTPS, to onejob or to Kubernetes.

The only module that imports aiohttp.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from yarl import URL

from onejob import __version__
from onejob.client.base import (
    Create,
    EventType,
    Listing,
    Op,
    Result,
    Selection,
    WatchEvent,
    Written,
)
from onejob.client.credentials import Credential
from onejob.client.kubeconfig import Connection
from onejob.client.requests import (
    HttpRequest,
    get_request,
    list_request,
    watch_request,
    write_request,
)
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, Expired, from_status

T = TypeVar("T")

_REQUEST_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0
#: Servers are asked to end watches now and then, so that none outlives a lost connection.
_WATCH_SECONDS: Final = (300, 600)
_TOO_BUSY_TRIES: Final = 5
#: Certificates that are renewed leave sessions behind; this many are kept.
_MAX_SESSIONS: Final = 3
_NOWHERE: Final = Key("", "", "")


class Unreachable(ApiError):
    """No answer came. Whether the request was carried out is not known."""

    code, reason = 503, "ServiceUnavailable"


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_read_object = msgspec.json.Decoder(_Object).decode
_read_list = msgspec.json.Decoder(_List).decode
_read_event = msgspec.json.Decoder(_Event).decode


class HttpClient:
    """Implements `onejob.client.base.Client`. Connections are kept and used again."""

    def __init__(self, connection: Connection, *, rng: Random, concurrency: int = 32) -> None:
        """`concurrency` bounds how many writes of one `write_many` are under way at once."""
        self._connection = connection
        self._rng = rng
        self._concurrency = concurrency
        #: By the certificate that their connections present; the newest last.
        self._sessions: dict[tuple[bytes, bytes], aiohttp.ClientSession] = {}

    async def get(self, key: Key) -> bytes:
        return await self._answer(get_request(key))

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        found = _decoded(_read_list, await self._answer(list_request(what, limit, token)))
        head = _head(found.kind.removesuffix("List"), found.api_version)
        return Listing(
            [_whole(bytes(item), head) for item in found.items],
            _revision(found.metadata.resource_version),
            found.metadata.continue_token,
        )

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        seconds = self._rng.randint(*_WATCH_SECONDS)
        request = watch_request(what, after, seconds)
        # The server ends the watch; if it is gone without a word, we do, a little later.
        response = await self._send(request, total_seconds=seconds + 30.0)
        try:
            if response.status != 200:
                raise _error(response.status, await _read(response))
            rest = b""
            while chunk := await _next_chunk(response):
                *lines, rest = (rest + chunk).split(b"\n")
                events = [_watch_event(line, what.resource) for line in lines if line]
                good = [event for event in events if isinstance(event, WatchEvent)]
                if good:
                    yield good
                for event in events:
                    if isinstance(event, ApiError):
                        raise event
        finally:
            response.close()

    async def write(self, op: Op) -> Written:
        document = await self._answer(write_request(op))
        answer = _decoded(_read_object, document)
        if answer.kind == "Status":
            # Done, and the server says no more than that.
            return Written(0, b"")
        return Written(_revision(answer.metadata.resource_version), document)

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
                        results[position] = await self.write(op)
                    except ApiError as error:
                        results[position] = error

        workers = min(self._concurrency, len(series))
        await asyncio.gather(*(work() for _ in range(workers)))
        return [results[position] for position in range(len(ops))]

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    # --- transport ------------------------------------------------------------------------

    async def _answer(self, request: HttpRequest) -> bytes:
        """The body of a successful answer; raises what any other one says."""
        for attempt in range(_TOO_BUSY_TRIES):
            response = await self._send(request, total_seconds=_REQUEST_SECONDS)
            async with response:
                body = await _read(response)
            if response.status < 300:
                return body
            # A server that says when to come back has not done anything yet.
            retry_after = response.headers.get("Retry-After", "")
            patient = response.status == 429 and retry_after.isdigit()
            if not patient or attempt == _TOO_BUSY_TRIES - 1:
                break
            await asyncio.sleep(int(retry_after))
        raise _error(response.status, body)

    async def _send(self, request: HttpRequest, *, total_seconds: float) -> aiohttp.ClientResponse:
        """The answer's head. A refused credential is renewed, once."""
        credentials = self._connection.credentials
        credential = await credentials.current()
        response = await self._send_as(credential, request, total_seconds)
        if response.status != 401:
            return response
        other = await credentials.renewed(credential)
        if other is None:
            return response
        response.close()
        return await self._send_as(other, request, total_seconds)

    async def _send_as(
        self, credential: Credential, request: HttpRequest, total_seconds: float
    ) -> aiohttp.ClientResponse:
        session = await self._session_for(credential)
        headers = {"Accept": "application/json"}
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        if request.content_type:
            headers["Content-Type"] = request.content_type
        connection = self._connection
        try:
            return await session.request(
                request.method,
                URL(connection.server + request.target, encoded=True),
                data=request.body or None,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total_seconds, sock_connect=_CONNECT_SECONDS),
                proxy=connection.proxy or None,
                server_hostname=connection.tls_server_name or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error

    async def _session_for(self, credential: Credential) -> aiohttp.ClientSession:
        """The connections that present this credential's certificate, if it has one."""
        identity = (credential.certificate, credential.key)
        session = self._sessions.get(identity)
        if session is None:
            session = self._sessions[identity] = self._new_session(credential)
        if len(self._sessions) > _MAX_SESSIONS:
            # Requests may be under way with the certificate before, not with one long replaced.
            await self._sessions.pop(next(iter(self._sessions))).close()
        return session

    def _new_session(self, credential: Credential) -> aiohttp.ClientSession:
        encodings = "gzip" if self._connection.compress else "identity"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=_tls(self._connection, credential), keepalive_timeout=60
            ),
            headers={"User-Agent": f"onejob/{__version__}", "Accept-Encoding": encodings},
            # A watch may be sent objects larger than aiohttp's default for one read.
            read_bufsize=2**20,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _tls(connection: Connection, credential: Credential) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cadata=connection.authority.decode() if connection.authority else None
    )
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        # ssl reads certificates from files only.
        with tempfile.TemporaryDirectory() as directory:
            pem = Path(directory) / "client.pem"
            pem.touch(mode=0o600)
            pem.write_bytes(credential.certificate + b"\n" + credential.key)
            context.load_cert_chain(pem)
    return context


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _unreachable(error) from error


async def _next_chunk(response: aiohttp.ClientResponse) -> bytes:
    """More of a stream; empty at its end. A lost connection is an end too: watch again."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return b""


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """A success that is not what was asked for comes from something in between."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"this is not the answer of an API server: {error}") from error


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(f"no answer from the API server: {str(error) or type(error).__name__}")


def _error(code: int, body: bytes) -> ApiError:
    """What an unsuccessful answer says: a Status, or text from something in between."""
    status: Any = None
    try:
        status = msgspec.json.decode(body)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace").strip()[:500]
        status = {"message": text or f"the server answered with HTTP status {code}"}
    if not isinstance(status, dict) or not isinstance(status.get("message", ""), str):
        status = {"message": f"the server answered with HTTP status {code}"}
    return _from_status({**status, "code": code})


def _from_status(status: dict[str, Any]) -> ApiError:
    error = from_status(status)
    if error.code == 410 and not isinstance(error, Expired):
        # Kubernetes has two reasons for one thing; callers know one.
        return Expired(error.message, details=error.details)
    return error


def _watch_event(line: bytes, resource: str) -> WatchEvent | ApiError:
    event = _decoded(_read_event, line)
    document = bytes(event.object)
    if event.type == "ERROR":
        return _from_status(msgspec.json.decode(document))
    metadata = _decoded(_read_object, document).metadata
    revision = _revision(metadata.resource_version)
    if event.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", _NOWHERE, revision, b"")
    key = Key(resource, metadata.namespace, metadata.name)
    return WatchEvent(_event_type(event.type), key, revision, document)


def _event_type(text: str) -> EventType:
    match text:
        case "ADDED" | "MODIFIED" | "DELETED" as known:
            return known
        case _:
            raise Unreachable(f"the server sent a watch event of unknown type {text!r}")


def _head(kind: str, api_version: str) -> bytes:
    return b'{"apiVersion":"%s","kind":"%s",' % (api_version.encode(), kind.encode())


def _whole(item: bytes, head: bytes) -> bytes:
    """An item of a list with the apiVersion and kind that the list left out."""
    if item.startswith(head) or _read_object(item).kind:
        return item
    return head + item[1:]


def _revision(text: str) -> int:
    return int(text) if text.isdigit() else 0
