"""SPDY/3.1 framing, limited to the subset that Kubernetes uses. Sans-I/O.

The protocol is obsolete elsewhere; kubectl still uses it for the streams of forwarded connections,
inside a WebSocket. Flow control is not implemented, because no client uses it.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

#: Compression dictionary of the SPDY specification: length-prefixed common header names, then
#: common text.
_COMMON_NAMES: Final = (
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset",
    "accept-encoding", "accept-language", "accept-ranges", "age", "allow", "authorization",
    "cache-control", "connection", "content-base", "content-encoding", "content-language",
    "content-length", "content-location", "content-md5", "content-range", "content-type",
    "date", "etag", "expect", "expires", "from", "host", "if-match", "if-modified-since",
    "if-none-match", "if-range", "if-unmodified-since", "last-modified", "location",
    "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer",
    "retry-after", "server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    "vary", "via", "warning", "www-authenticate", "method", "get", "status", "200 OK",
    "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin",
)  # fmt: skip
_COMMON_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(struct.pack(">I", len(name)) + name.encode() for name in _COMMON_NAMES)
    + _COMMON_TEXT.encode()
)

_MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
#: Limits of one stream. Kubernetes' clients send three short headers; compressed data may expand a
#: thousandfold.
_MAX_HEADER_BYTES: Final = 8 * 1024
_MAX_HEADERS: Final = 64
#: Bytes parsed before yielding to the event loop; at most 1365 frames.
_SLICE_BYTES: Final = 16 * 1024
_FIN: Final = 0x01
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_CANCEL: Final = 5


class SpdyError(Exception):
    """The peer sent invalid SPDY or exceeded a limit."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The client has opened a stream."""

    stream: int
    headers: Mapping[str, str]
    ended: bool


@dataclass(frozen=True, slots=True)
class StreamData:
    """Data on a stream."""

    stream: int
    data: bytes
    ended: bool


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The client has reset a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Pinged:
    """Ping; the reply is `ping` with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class GoingAway:
    """The peer will not open further streams."""


Event: TypeAlias = StreamOpened | StreamData | StreamReset | Pinged | GoingAway


def slices(data: bytes) -> Iterator[bytes]:
    """Split received data into slices. Yield to the event loop after each.

    A flood of small frames, such as pings, takes much longer to parse than to send.
    """
    for start in range(0, len(data), _SLICE_BYTES):
        yield data[start : start + _SLICE_BYTES]


class SpdyReader:
    """Incremental parser from bytes to events."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._headers = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Parse `data` and yield the completed events. Raises SpdyError."""
        self._pending += data
        while len(self._pending) >= 8:
            first, flags_and_length = struct.unpack_from(">II", self._pending)
            flags, length = flags_and_length >> 24, flags_and_length & 0xFFFFFF
            if length > _MAX_FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes")
            if len(self._pending) < 8 + length:
                return
            payload = bytes(self._pending[8 : 8 + length])
            del self._pending[: 8 + length]
            if not first & 0x80000000:
                yield StreamData(first, payload, bool(flags & _FIN))
                continue
            event = self._control(first & 0xFFFF, flags, payload)
            if event is not None:
                yield event

    def _control(self, kind: int, flags: int, payload: bytes) -> Event | None:
        """Return the event of a control frame; None for one that is ignored. Raises SpdyError."""
        try:
            match kind:
                case 1:
                    [stream] = struct.unpack_from(">I", payload)
                    headers = self._read_headers(payload[10:])
                    return StreamOpened(stream & 0x7FFFFFFF, headers, bool(flags & _FIN))
                case 3:
                    [stream] = struct.unpack_from(">I", payload)
                    return StreamReset(stream & 0x7FFFFFFF)
                case 6:
                    [number] = struct.unpack_from(">I", payload)
                    return Pinged(number)
                case 7:
                    return GoingAway()
                case 8:
                    # Additional headers are ignored, but the decompression state depends on them.
                    self._read_headers(payload[4:])
                case _:
                    pass
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(str(error)) from error
        return None

    def _read_headers(self, block: bytes) -> dict[str, str]:
        """Return the decompressed headers. Raises SpdyError."""
        plain = self._headers.decompress(block, _MAX_HEADER_BYTES)
        if self._headers.unconsumed_tail:
            raise SpdyError("too many headers")
        [count] = struct.unpack_from(">I", plain)
        if count > _MAX_HEADERS:
            raise SpdyError("too many headers")
        position = 4
        headers = {}
        for _ in range(count):
            name, position = _read_text(plain, position)
            headers[name], position = _read_text(plain, position)
        return headers


class SpdyWriter:
    """Frame encoder. Frames must be sent in the order in which they were created."""

    def __init__(self) -> None:
        self._headers = zlib.compressobj(zdict=DICTIONARY)

    def accept(self, stream: int) -> bytes:
        """Return the reply that accepts a stream, without headers."""
        block = self._headers.compress(struct.pack(">I", 0))
        block += self._headers.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(_SYN_REPLY, struct.pack(">I", stream) + block)

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Return the frame with which a client opens a stream."""
        plain = struct.pack(">I", len(headers)) + b"".join(
            struct.pack(">I", len(text.encode())) + text.encode()
            for pair in headers.items()
            for text in pair
        )
        block = self._headers.compress(plain) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(_SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + block)

    @staticmethod
    def data(stream: int, data: bytes, *, ends: bool = False) -> bytes:
        """Return a data frame; `ends` closes our side of the stream."""
        return struct.pack(">II", stream, (_FIN if ends else 0) << 24 | len(data)) + data

    @staticmethod
    def reset(stream: int) -> bytes:
        """Return a frame that cancels a stream."""
        return _control_frame(_RST_STREAM, struct.pack(">II", stream, _CANCEL))

    @staticmethod
    def ping(number: int) -> bytes:
        """Return the reply to a ping."""
        return _control_frame(_PING, struct.pack(">I", number))

    @staticmethod
    def go_away(last_stream: int) -> bytes:
        return _control_frame(_GOAWAY, struct.pack(">II", last_stream, 0))


def _control_frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, len(payload)) + payload


def _read_text(plain: bytes, position: int) -> tuple[str, int]:
    """Return the text at `position` and the position after it. Raises SpdyError."""
    [length] = struct.unpack_from(">I", plain, position)
    end = position + 4 + length
    if end > len(plain):
        raise SpdyError("headers end too early")
    return plain[position + 4 : end].decode(), end
