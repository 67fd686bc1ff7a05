"""Minimal client of the gRPC health checking protocol, with only the necessary part of HTTP/2.

Only the message of the response is read, so that the server's headers need not be decoded.
"""

import asyncio

_STATUS_NAMES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 1, 1, 4, 8
_FRAME_HEAD_BYTES = 9
_MESSAGE_HEAD_BYTES = 5
#: HTTP/2's default limit for a frame.
_MAX_FRAME_BYTES = 16384


async def health(host: str, port: int, service: str) -> str:
    """Return the name of the server's health status. Raises OSError, or ValueError for an invalid
    response."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, 1, _headers(f"{host}:{port}"))
            + _frame(_DATA, _END_STREAM, 1, _message(_request(service)))
        )
        status = await _answer(reader, writer)
    except asyncio.IncompleteReadError:
        raise ValueError("the server closed the connection without a response") from None
    finally:
        writer.close()
    return _STATUS_NAMES.get(status, str(status))


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """Return the serving status in the server's response. Raises ValueError, EOFError."""
    message = b""
    while True:
        head = await reader.readexactly(_FRAME_HEAD_BYTES)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if length > _MAX_FRAME_BYTES:
            raise ValueError("not an HTTP/2 response")
        payload = await reader.readexactly(length)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _DATA:
            message += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
            size = int.from_bytes(message[1:_MESSAGE_HEAD_BYTES], "big")
            if len(message) >= _MESSAGE_HEAD_BYTES + size:
                return _status(message[_MESSAGE_HEAD_BYTES : _MESSAGE_HEAD_BYTES + size])
        elif kind in (_RST_STREAM, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
            raise ValueError("the server does not implement the health service")


def _status(message: bytes) -> int:
    """Return field 1 of a HealthCheckResponse, a small number; absent means 0."""
    return message[1] if len(message) >= 2 and message[0] == 0x08 else 0


def _request(service: str) -> bytes:
    """Return a HealthCheckRequest; its only field is omitted for the server as a whole."""
    name = service.encode()
    return b"\x0a" + _varint(len(name)) + name if name else b""


def _message(body: bytes) -> bytes:
    """Return a message in gRPC framing."""
    return b"\0" + len(body).to_bytes(4, "big") + body


def _headers(authority: str) -> bytes:
    """Return uncompressed HPACK headers, using indexes of the static table for known names."""
    return (
        b"\x83\x86"  # :method POST, :scheme http
        + (b"\x04" + _text("/grpc.health.v1.Health/Check"))
        + (b"\x01" + _text(authority))
        + (b"\x0f\x10" + _text("application/grpc"))  # content-type
        + (b"\x00" + _text("te") + _text("trailers"))
    )


def _text(text: str) -> bytes:
    """Return a header text in HPACK."""
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    return b"\x7f" + _varint(len(data) - 127) + data


def _varint(number: int) -> bytes:
    """Encode seven bits per byte, lowest first: the same in HPACK and in protobuf."""
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload
