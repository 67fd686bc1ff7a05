"""In-memory connections between a client's protocol and a server's, with network faults.

Bytes of one direction arrive in order. Everything else may happen: requests and responses are lost,
late or repeated, a gateway responds instead of the server before or after it has acted, streams are
cut or stall, and a host is partitioned from the others for a while.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias, cast

from sim.faults import Chance

#: Host of the current task, inherited by the tasks that it starts.
ORIGIN: ContextVar[str] = ContextVar("origin", default="somewhere")

_LATENCY_SECONDS = 0.002
_LATEST_SECONDS = 6.0
_MAX_PARTITION_SECONDS = 40.0
_RESET_SECONDS = 2.0

JobOutcome: TypeAlias = Literal["", "lost", "replaced", "repeated"]


@dataclass(frozen=True)
class Arrival:
    """A request that has reached a server."""

    at: float
    origin: str
    host: str
    method: str
    target: str
    body: bytes

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


@dataclass
class Network:
    """All links of a world.

    `late_after_end` lets a request arrive although the client has given it up meanwhile, as TCP
    segments in flight do.
    """

    dice: Chance
    rng: Random
    late_after_end: bool = True
    listeners: dict[str, Callable[[], asyncio.Protocol]] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    on_arrival: list[Callable[[Arrival], None]] = field(default_factory=list)
    links: list["Link"] = field(default_factory=list)
    #: Time at which a response last reached a host.
    answered_at: dict[str, float] = field(default_factory=dict)
    _cut_until: dict[str, float] = field(default_factory=dict)
    #: Hosts with a dead process: nothing that they sent arrives any more.
    _dead: set[str] = field(default_factory=set)

    async def connect(
        self, make: Callable[[], asyncio.Protocol], host: str
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        origin = ORIGIN.get()
        await asyncio.sleep(_LATENCY_SECONDS)
        if self.is_cut(origin):
            if self.rng.random() < 0.5:
                await asyncio.sleep(3600.0)
            raise ConnectionRefusedError("the simulated network has no route")
        if host not in self.listeners or self.dice.happens("connection refused"):
            raise ConnectionRefusedError("the simulated server does not listen")
        protocol = make()
        link = Link(self, origin, host, protocol, self.listeners[host]())
        self.links.append(link)
        return cast("asyncio.Transport", link.client), protocol

    def is_cut(self, origin: str) -> bool:
        return origin in self._dead or _now() < self._cut_until.get(origin, 0.0)

    def cut(self, origin: str, seconds: float) -> None:
        """Partition a host: bytes in flight on its connections are lost."""
        self._cut_until[origin] = _now() + seconds
        for link in self._open_links(origin):
            link.silence()

    def mend(self) -> None:
        """End all partitions and reset stalled connections.

        To wait until their users time out would take most of the time of a world.
        """
        self._cut_until.clear()
        for link in [link for link in self.links if link.is_silent]:
            link.reset()

    def kill(self, origin: str) -> None:
        """Kill the host's process: the kernel closes its connections."""
        self._dead.add(origin)
        for link in self._open_links(origin):
            link.client.abort()

    def revive(self, origin: str) -> None:
        self._dead.discard(origin)

    def _open_links(self, origin: str) -> Sequence["Link"]:
        return [link for link in self.links if link.origin == origin and not link.ended]

    def maybe_cut(self, origin: str) -> None:
        if self.dice.happens("partition"):
            self.cut(origin, self.dice.up_to("partition", _MAX_PARTITION_SECONDS))

    def note(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        for call in self.on_arrival:
            call(arrival)


class Link:
    """One connection; `client` and `server` are the transports of its two ends."""

    def __init__(
        self,
        network: Network,
        origin: str,
        host: str,
        client: asyncio.Protocol,
        server: asyncio.Protocol,
    ) -> None:
        self.origin = origin
        self.host = host
        self._network = network
        self._dice = network.dice
        self.client = End(self, client, self._send_request)
        self.server = End(self, server, self._send_answer)
        self.ended = False
        self._silent = False
        self._fate: JobOutcome = ""
        self._streaming = False
        self._exchanges = 0
        server.connection_made(cast("asyncio.BaseTransport", self.server))
        client.connection_made(cast("asyncio.BaseTransport", self.client))

    def silence(self) -> None:
        """Stall the connection: nothing arrives any more, and neither end is notified."""
        self._silent = True

    @property
    def is_silent(self) -> bool:
        return self._silent

    def reset(self) -> None:
        self._end(ConnectionResetError("the simulated network"))

    # --- from the client

    def _send_request(self, data: bytes) -> None:
        """Send one request, with its faults.

        The client writes each request at once, and the next after the response.
        """
        network, dice = self._network, self._dice
        network.maybe_cut(self.origin)
        method, target, body = _parsed(data)
        self._fate, self._streaming = "", "watch=true" in target
        self._exchanges += 1
        if self._silent or network.is_cut(self.origin):
            return
        if self._exchanges > 1 and dice.happens("kept connection closed"):
            # The server closed it while the request was on its way.
            if dice.up_to("kept connection closed", 1.0) < 0.5:
                self._deliver_request(method, target, body, data, _LATENCY_SECONDS)
            self._fate = "lost"
            self._reset(_LATENCY_SECONDS * 2)
            return
        if dice.happens("request lost"):
            self._fate = "lost"
            self._maybe_reset("request lost")
            return
        if dice.happens("too busy"):
            self._fate = "replaced"
            self.client.deliver(_busy(dice.up_to("too busy", 1.0)), _LATENCY_SECONDS)
            return
        seconds = _LATENCY_SECONDS
        if dice.happens("request late"):
            seconds += dice.up_to("request late", _LATEST_SECONDS)
        if not self._streaming:
            self._draw_fate()
        self._deliver_request(method, target, body, data, seconds)

    def _draw_fate(self) -> None:
        if self._dice.happens("answer lost"):
            self._fate = "lost"
        elif self._dice.happens("gateway error") or self._dice.happens("server error"):
            self._fate = "replaced"
        elif self._dice.happens("answer repeated"):
            self._fate = "repeated"

    def _deliver_request(
        self, method: str, target: str, body: bytes, data: bytes, seconds: float
    ) -> None:
        def arrive() -> None:
            arrival = Arrival(_now(), self.origin, self.host, method, target, body)
            self._network.note(arrival)

        self.server.deliver(data, seconds, arrive)

    # --- from the server

    def _send_answer(self, data: bytes) -> None:
        if self._silent or self._network.is_cut(self.origin):
            return
        if self._streaming:
            self._send_piece(data)
            return
        fate, self._fate = self._fate, ""
        seconds = _LATENCY_SECONDS
        if self._dice.happens("answer late"):
            seconds += self._dice.up_to("answer late", _LATEST_SECONDS)
        match fate:
            case "lost":
                self._maybe_reset("answer lost")
            case "replaced":
                self.client.deliver(_trouble(self._dice.up_to("gateway error", 3.0)), seconds)
            case "repeated":
                # At once: a later repetition would look like the response to the next request.
                self.client.deliver(data + data, seconds)
            case _:
                self._split(data, seconds)
                self._network.answered_at[self.origin] = _now() + seconds

    def _send_piece(self, data: bytes) -> None:
        """Send a piece of a watch, with its faults."""
        seconds = _LATENCY_SECONDS
        if self._dice.happens("stream stalled"):
            self.silence()
            return
        if self._dice.happens("stream late"):
            seconds += self._dice.up_to("stream late", _LATEST_SECONDS)
        if self._dice.happens("stream cut"):
            self.client.deliver(data[: int(self._dice.up_to("stream cut", len(data)))], seconds)
            self._reset(seconds)
            self.silence()
            return
        if not data.startswith(b"HTTP/") and self._dice.happens("stream error"):
            self.client.deliver(data + _ERROR_EVENT, seconds)
            self.silence()
            return
        self._split(data, seconds)

    def _split(self, data: bytes, seconds: float) -> None:
        if len(data) > 1 and self._dice.happens("data split"):
            middle = 1 + int(self._dice.up_to("data split", len(data) - 1))
            self.client.deliver(data[:middle], seconds)
            self.client.deliver(data[middle:], seconds + self._dice.up_to("data split", 0.2))
        else:
            self.client.deliver(data, seconds)

    # --- end of the connection

    def _maybe_reset(self, kind: str) -> None:
        """Reset the connection after a drawn delay, or else leave the client to its timeout."""
        seconds = self._dice.up_to(kind, 2 * _RESET_SECONDS)
        if seconds < _RESET_SECONDS:
            self._reset(seconds)

    def _reset(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, self._end, ConnectionResetError("the simulated network"))

    def close_from(self, end: "End", *, abort: bool) -> None:
        """Close from one end; the other reads the bytes sent before."""
        if self.ended:
            return
        if end is self.client:
            if abort and not self._network.late_after_end:
                self.server.drop_pending()
            self._end(None)
        else:
            delay = max(self.client.last_at - _now(), 0.0) + _LATENCY_SECONDS
            asyncio.get_running_loop().call_later(delay, self._end, None)

    def _end(self, error: Exception | None) -> None:
        if self.ended:
            return
        self.ended = True
        loop = asyncio.get_running_loop()
        self._network.links.remove(self)
        loop.call_soon(self.client.lost, error)
        # The end of a connection follows the bytes sent on it.
        delay = max(self.server.last_at - _now(), 0.0) + _LATENCY_SECONDS
        loop.call_later(delay, self.server.lost, None)


class End:
    """`asyncio.Transport` of one end."""

    def __init__(
        self, link: Link, protocol: asyncio.Protocol, send: Callable[[bytes], None]
    ) -> None:
        self._link = link
        self._protocol = protocol
        self._send = send
        self._closing = False
        self._lost = False
        #: Data on its way to this end, in the order in which it was sent.
        self._pending: deque[tuple[bytes, Callable[[], None]]] = deque()
        #: Arrival time of the last data on its way to this end.
        self.last_at = 0.0

    def deliver(self, data: bytes, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Deliver `data` to this end after `seconds`, and not before earlier data.

        `then` is called just before.
        """
        self.last_at = max(self.last_at, _now() + seconds)
        self._pending.append((data, then))
        # Timers due at the same time fire in any order: each takes the oldest data.
        asyncio.get_running_loop().call_at(self.last_at, self._receive)

    def drop_pending(self) -> None:
        self._pending.clear()

    def lost(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._protocol.connection_lost(error)

    def _receive(self) -> None:
        if not self._pending:
            return
        data, then = self._pending.popleft()
        if self._lost or (self._closing and self is self._link.client):
            return
        then()
        self._protocol.data_received(data)

    # --- asyncio.Transport

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._send(bytes(data))

    def close(self) -> None:
        self._close(abort=False)

    def abort(self) -> None:
        self._close(abort=True)

    def _close(self, *, abort: bool) -> None:
        if not self._closing:
            self._closing = True
            self._link.close_from(self, abort=abort)

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: writes never block."""

    def pause_reading(self) -> None:
        """Do nothing: the protocol buffers incoming data."""

    def resume_reading(self) -> None:
        """Do nothing: reading was never paused."""


_ERROR_STATUS = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"simulated"}}\n'
#: Last chunk of a watch: an error event without a revision.
_ERROR_EVENT = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_ERROR_STATUS), _ERROR_STATUS)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _parsed(data: bytes) -> tuple[str, str, bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
    return method.decode(), target.decode(), body


def _status(code: int, reason: str, *headers: str) -> bytes:
    body = (
        f'{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure",'
        f'"message":"the simulated network","reason":"{reason}","code":{code}}}'
    )
    lines = [f"HTTP/1.1 {code} X", f"content-length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


def _busy(draw: float) -> bytes:
    code, reason = (429, "TooManyRequests") if draw < 0.5 else (503, "ServiceUnavailable")
    return _status(code, reason, "retry-after: 1")


def _trouble(draw: float) -> bytes:
    """Return an error response of a server or gateway that may have executed the request."""
    known = ((500, "InternalError"), (502, ""), (504, "Timeout"))
    return _status(*known[min(int(draw), 2)])
