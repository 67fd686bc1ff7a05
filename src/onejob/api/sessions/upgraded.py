"""Connections taken over from HTTP/1.1 by an upgrade.

This module implements the common part: back-pressure in both directions, rejections, revocation,
and the end of the connection.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from onejob.api.http.exchange import App
from onejob.api.http.requests import Request
from onejob.api.http.responses import Response
from onejob.api.sessions.socket import Session

log = logging.getLogger(__name__)

#: WebSocket close code when the user's access is revoked (RFC 6455, 7.4.1).
_POLICY_VIOLATION: Final = 1008


class Host(Protocol):
    """Server-side owner of connections. It ends `connections` and `tasks` at shutdown."""

    app: App
    connections: set[Any]
    tasks: "set[asyncio.Task[None]]"
    on_closed: Callable[[], None]

    def stalls(self, connection: Any) -> None:
        """Note that the client of a connection does not read."""

    def goes_on(self, connection: Any) -> None:
        """Note that the client of a connection reads again."""


class UpgradedConnection(asyncio.Protocol):
    """Base class of the protocols that a connection can be upgraded to; a `Socket` for sessions.

    Reading pauses while a message waits for the session; `send` waits while the client does not
    read. Stalled clients count towards the server's limit of stalled connections.
    """

    transport: asyncio.Transport

    def __init__(self, host: Host, request: Request) -> None:
        self.loop = asyncio.get_running_loop()
        self._host = host
        self._request = request
        #: Messages of the client; None after its disconnect.
        self._arrived: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False

    def begin(self, transport: asyncio.Transport, *, write_paused: bool = False) -> None:
        """Take over a connection whose request has been read."""
        self.transport = transport
        self._host.connections.add(self)
        if write_paused:
            self.pause_writing()
        task = self.loop.create_task(self._run())
        self._host.tasks.add(task)
        task.add_done_callback(self._host.tasks.discard)
        transport.set_protocol(self)

    # --- asyncio.Protocol -----------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._writable.clear()
        self._host.stalls(self)

    def resume_writing(self) -> None:
        self._writable.set()
        self._host.goes_on(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.resume_writing()
        self._host.connections.discard(self)
        self._disconnect()
        self._host.on_closed()

    def shutdown(self) -> None:
        """Close the connection because the server is stopping."""
        self._disconnect()
        self.transport.close()

    # --- application side ----------------------------------------------------------------------

    async def _run(self) -> None:
        """Have the application handle the request, and close the connection afterwards."""
        response: Response | None = None
        try:
            response = await self._host.app(self._request)
            await self._respond(response)
        except ConnectionError:
            # The client disconnected during a response.
            return
        except Exception:
            log.exception("a session failed")
        finally:
            self._application_ended()
            if response is not None and response.on_end is not None:
                response.on_end()

    async def _respond(self, response: Response) -> None:
        """Run the session of a response, or write the response if it has none.

        Waits for space in the buffer first. If the client disconnects before the upgrade is
        accepted, the session is abandoned and the error raised.
        """
        session = response.session
        if session is None:
            await self._drained()
            self._refuse(response)
            return
        try:
            await self._drained()
            self._accept(session.protocol)
        except BaseException:
            if session.abandon is not None:
                await session.abandon()
            raise
        await self._run_session(session, response.ends)

    async def _run_session(
        self, session: Session, ends: tuple["asyncio.Future[None]", ...]
    ) -> None:
        """Run a session until it ends, or close it with a policy violation if its user's access is
        revoked."""
        running = asyncio.ensure_future(session.run(self))
        try:
            await asyncio.wait((running, *ends), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait((running,))
        if running.cancelled():
            await self.close(_POLICY_VIOLATION)
        else:
            running.result()

    def _application_ended(self) -> None:
        """Close the connection once the application has handled the request."""
        self.transport.close()

    async def receive(self) -> bytes | str | None:
        message = await self._arrived.get()
        if self._arrived.empty():
            self._resume_reading()
        return message

    async def send(self, message: bytes | str) -> None:
        await self._drained()
        if isinstance(message, str):
            await self._send_parts((message.encode(),), is_text=True)
        else:
            await self._send_parts((message,), is_text=False)

    async def send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        await self._drained()
        await self._send_parts(parts, is_text=is_text)

    async def close(self, code: int = 1000) -> None:
        await self._drained()
        self._close(code)

    async def _drained(self) -> None:
        """Wait until the client has read most of the sent data. Raises ConnectionError."""
        await self._writable.wait()
        if self._lost or self.transport.is_closing():
            raise ConnectionResetError("the client has left")

    @abstractmethod
    def _accept(self, subprotocol: str) -> None:
        """Write the response that accepts the upgrade."""

    @abstractmethod
    async def _send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        """Write one message, given in parts, to the transport's buffer."""

    def _close(self, code: int) -> None:
        """Close the connection; `code` is for transports with a closing handshake."""
        self.transport.close()

    def _refuse(self, response: Response) -> None:
        """Write a response without an upgrade, and close the connection."""
        body = response.body
        assert isinstance(body, bytes), "upgrades are not answered with streams"
        kind = (b"content-type", response.content_type)
        ends = ((b"content-length", b"%d" % len(body)), (b"connection", b"close"))
        self._write_head(response.code, [kind, *response.headers, *ends])
        self.transport.write(body)
        self._disconnect()
        self.transport.close()

    # --- helpers of subclasses --------------------------------------------------------------------

    def _deliver(self, message: bytes | str) -> None:
        """Queue a message for the session and pause reading until it is consumed."""
        self._arrived.put_nowait(message)
        if not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        """Resume reading if it is paused and the client is connected."""
        if self._reading_paused and not self._lost:
            self._reading_paused = False
            self.transport.resume_reading()

    def _disconnect(self) -> None:
        """Have `receive` return None."""
        self._arrived.put_nowait(None)

    def _write_head(self, code: int, headers: list[tuple[bytes, bytes]]) -> None:
        lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n")
