"""Floods of small or compressed SPDY frames: other work of the event loop gets its turns."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from onejob.api.sessions import exec_sessions
from onejob.api.sessions.exec_sessions import SPDY_PROTOCOL, run_session
from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams
from onejob.api.sessions.port_forwarding import Connection, run_tunnel
from onejob.api.sessions.socket import Socket
from onejob.api.sessions.spdy import Pinged, SpdyError, SpdyReader, SpdyWriter

PINGS = 20_000
Run = Callable[[Socket], Awaitable[None]]


class Sleeper:
    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        await asyncio.get_running_loop().create_future()
        return 0


async def tunnel(socket: Socket) -> None:
    async def connect(port: int) -> Connection:
        raise AssertionError("not reached")

    await run_tunnel(connect, socket)


async def session(socket: Socket) -> None:
    request = ExecRequest("default", "p", "c", ("sleep",))
    await run_session(Sleeper(), request, socket, SPDY_PROTOCOL)


class ScriptedSocket:
    """Socket of a client that sends these messages and disconnects."""

    def __init__(self, *messages: bytes) -> None:
        self._left = list(messages)
        self.sent: list[bytes] = []

    @property
    def unread(self) -> int:
        return len(self._left)

    async def receive(self) -> bytes | None:
        return self._left.pop(0) if self._left else None

    async def send(self, message: bytes | str) -> None:
        assert isinstance(message, bytes)
        self.sent.append(message)

    async def send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        self.sent.extend(parts)

    async def close(self, code: int = 1000) -> None:
        """Do nothing."""


async def carried(run: Run, *messages: bytes) -> tuple[int, bytes]:
    """Return the turns of other tasks meanwhile, and all bytes sent."""
    socket = ScriptedSocket(*messages)
    running = asyncio.ensure_future(run(socket))
    turns = 0
    while not running.done():
        await asyncio.sleep(0)
        turns += 1
    await running
    return turns, b"".join(socket.sent)


@pytest.mark.parametrize("run", [tunnel, session])
async def test_ping_flood_leaves_turns_to_others(run: Run) -> None:
    writer = SpdyWriter()
    opening = writer.open(1, {"streamtype": "error"}) if run is session else b""
    flood = b"".join(writer.ping(number) for number in range(PINGS))
    turns, sent = await carried(run, opening, flood)
    answers = [event for event in SpdyReader().feed(sent) if isinstance(event, Pinged)]
    assert [ping.number for ping in answers] == list(range(PINGS))
    assert turns > PINGS // 2000


def test_headers_that_stand_for_much_are_refused() -> None:
    many = SpdyWriter().open(1, {f"h{n}": "" for n in range(100)})
    long = SpdyWriter().open(1, {"name": "x" * 10_000})
    for frame in (many, long):
        with pytest.raises(SpdyError, match="too many headers"):
            list(SpdyReader().feed(frame))


def test_data_before_all_streams_are_open_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_sessions, "_STREAMS_SECONDS", 3600.0)
    writer = SpdyWriter()
    opening = writer.open(1, {"streamtype": "stdin"})
    socket = ScriptedSocket(opening, *[writer.data(1, b"x" * 100_000)] * 99)
    request = ExecRequest("default", "p", "c", ("cat",), stdin=True)
    asyncio.run(run_session(Sleeper(), request, socket, SPDY_PROTOCOL))
    assert socket.unread > 0, "a client may send without end"
