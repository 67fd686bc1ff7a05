"""Connection upgraded to a WebSocket, based on the sans-I/O protocol of `websockets`."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from websockets import http11
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from onejob.api.http.requests import Request
from onejob.api.sessions.upgraded import Host, UpgradedConnection

_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
#: Size of pieces in which longer messages are sent, at the client's reading speed.
_PIECE_BYTES: Final = 16 * 1024
#: Time for a client to reply to a Close frame.
_CLOSE_SECONDS: Final = 10.0

#: Headers passed to the library. It selects neither subprotocol nor extensions: the application
#: selects the former (some names contain a slash, which RFC 6455 does not allow), and none of the
#: latter is supported. The library's limits on the request length are stricter than ours, and the
#: URL of a session may be long, as it contains the whole command.
_HANDSHAKE: Final = (b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version")

_library_log = logging.getLogger(f"{__name__}.protocol")
# Client errors are not worth logging.
_library_log.setLevel(logging.ERROR)


def open_web_socket(
    host: Host,
    request: Request,
    transport: asyncio.Transport,
    *,
    write_paused: bool = False,
) -> bool:
    """Take over a connection whose request has been read.

    For an invalid handshake, send an error response, close the connection and return False.
    """
    protocol = ServerProtocol(max_size=_MAX_MESSAGE_BYTES, logger=_library_log)
    protocol.receive_data(_handshake(request.method, request.headers))
    events = protocol.events_received()
    handshake = next((event for event in events if isinstance(event, http11.Request)), None)
    if handshake is not None:
        response = protocol.accept(handshake)
        if response.status_code == 101:
            offered = _offered_protocols(request.headers)
            request = msgspec.structs.replace(request, subprotocols=offered)
            socket = WebSocket(host, request, protocol, response)
            socket.begin(transport, write_paused=write_paused)
            return True
        protocol.send_response(response)
    transport.write(b"".join(protocol.data_to_send()))
    transport.close()
    return False


class WebSocket(UpgradedConnection):
    """WebSocket connection."""

    def __init__(
        self,
        host: Host,
        request: Request,
        protocol: ServerProtocol,
        response: http11.Response,
    ) -> None:
        super().__init__(host, request)
        self._protocol = protocol
        #: Handshake response, sent when the application accepts.
        self._response = response
        self._message = bytearray()
        self._is_text = False
        self._sending = asyncio.Lock()
        #: Whether a frame is partially sent; nothing else may be written meanwhile.
        self._frame_open = False
        #: Reply to the newest ping, until it can be written.
        self._pong = b""
        self._close_timer: asyncio.TimerHandle | None = None

    # --- reading ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._protocol.state is State.CONNECTING:
            # RFC 6455, 4.1: clients must wait for the handshake response.
            self.transport.abort()
            return
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame) and event.opcode in _DATA:
                self._process_frame(event)
        self._flush()
        if protocol.eof_sent:
            self._disconnect()
            self.transport.close()

    def _process_frame(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if not frame.fin or self._message:
            # One buffer: a list of fragments could take many times the message limit.
            self._message += frame.data
        if not frame.fin:
            return
        data = bytes(self._message or frame.data)
        self._message.clear()
        if self._protocol.close_sent is not None and self._protocol.close_rcvd is None:
            # The application has ended the session, or an earlier message was invalid.
            return
        if not self._is_text:
            self._deliver(data)
            return
        try:
            self._deliver(data.decode())
        except UnicodeDecodeError:
            self._protocol.fail(CloseCode.INVALID_DATA)

    # --- writing ----------------------------------------------------------------------------------

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_pong()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._is_open():
            self._send_close(CloseCode.SERVICE_RESTART)
        super().shutdown()

    def _accept(self, subprotocol: str) -> None:
        if subprotocol:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        self._protocol.send_response(self._response)
        self.transport.write(b"".join(self._protocol.data_to_send()))

    async def _send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        size = sum(map(len, parts))
        async with self._sending:
            if not self._is_open():
                raise ConnectionResetError("the session has ended")
            if size > _PIECE_BYTES:
                await self._send_large(is_text, parts, size)
                return
            if is_text:
                self._protocol.send_text(b"".join(parts))
            else:
                self._protocol.send_binary(b"".join(parts))
            self.transport.write(b"".join(self._protocol.data_to_send()))

    async def _send_large(self, is_text: bool, parts: Sequence[bytes], size: int) -> None:
        """Send one frame at the client's reading speed.

        If interrupted, the frame stays incomplete and the connection ends without a Close frame.
        """
        self._frame_open = True
        opcode = Opcode.TEXT if is_text else Opcode.BINARY
        self.transport.write(_frame_head(opcode, size))
        for part in parts:
            for start in range(0, len(part), _PIECE_BYTES):
                await self._drained()
                self.transport.write(part[start : start + _PIECE_BYTES])
        self._frame_open = False
        self._write_pong()

    def _close(self, code: int) -> None:
        if not self._is_open():
            self.transport.close()
            return
        self._send_close(code)
        self._disconnect()
        # Continue reading, to receive the reply.
        self._resume_reading()
        self._close_timer = self.loop.call_later(_CLOSE_SECONDS, self.transport.close)

    def _application_ended(self) -> None:
        if self._close_timer is None:
            self.transport.close()

    def _is_open(self) -> bool:
        return self._protocol.state is State.OPEN and not self._frame_open

    def _send_close(self, code: int) -> None:
        self._protocol.send_close(code)
        self.transport.write(b"".join(self._protocol.data_to_send()))

    def _flush(self) -> None:
        """Write the protocol's replies: at most one pong, or the final Close frame."""
        frames = [frame for frame in self._protocol.data_to_send() if frame]
        if not frames:
            return
        if self._protocol.close_sent is None:
            # RFC 6455, 5.5.3: only the newest ping needs a reply. Replies to a flood of pings would
            # accumulate for a client that does not read.
            self._pong = frames[-1]
            self._write_pong()
        elif self._close_timer is None and not self._frame_open:
            self.transport.write(frames[-1])

    def _write_pong(self) -> None:
        if not self._pong or not self._writable.is_set() or self.transport.is_closing():
            return
        if self._is_open():
            self.transport.write(self._pong)
            self._pong = b""


_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


def _frame_head(opcode: Opcode, size: int) -> bytes:
    """Return a frame header (RFC 6455, 5.2): FIN and opcode, no mask, shortest length encoding."""
    if size < 126:
        return bytes((0x80 | opcode, size))
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")


def _handshake(method: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the headers of a handshake as an HTTP request for the protocol library."""
    lines = [b"%b / HTTP/1.1\r\n" % method.encode()]
    lines += [b"%b: %b\r\n" % header for header in headers if header[0] in _HANDSHAKE]
    return b"".join((*lines, b"\r\n"))


def _offered_protocols(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    return [
        text.strip()
        for name, value in headers
        if name == b"sec-websocket-protocol"
        for text in value.decode("latin-1").split(",")
    ]
