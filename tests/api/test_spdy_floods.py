"""Floods of small or compressed SPDY frames: other work of the event loop gets its turns."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from onejob.api.http.requests import Receive, Send
from onejob.api.sessions import exec_sessions
from onejob.api.sessions.exec_sessions import SPDY_PROTOCOL, run_session
from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams
from onejob.api.sessions.port_forwarding import Connection, run_tunnel
from onejob.api.sessions.spdy import Pinged, SpdyError, SpdyReader, SpdyWriter

PINGS = 20_000
Run = Callable[[Receive, Send], Awaitable[None]]


class Sleeper:
    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        await asyncio.get_running_loop().create_future()
        return 0


async def tunnel(receive: Receive, send: Send) -> None:
    async def connect(port: int) -> Connection:
        raise AssertionError("not reached")

    await run_tunnel(connect, receive, send)


async def session(receive: Receive, send: Send) -> None:
    request = ExecRequest("default", "p", "c", ("sleep",))
    await run_session(Sleeper(), request, receive, send, SPDY_PROTOCOL)


async def carried(run: Run, *messages: bytes) -> tuple[int, bytes]:
    """Return the turns of other tasks meanwhile, and all bytes sent."""
    sent: list[bytes] = []
    left = list(messages)

    async def receive() -> Mapping[str, Any]:
        if left:
            return {"type": "websocket.receive", "bytes": left.pop(0)}
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("bytes", b""))

    running = asyncio.ensure_future(run(receive, send))
    turns = 0
    while not running.done():
        await asyncio.sleep(0)
        turns += 1
    await running
    return turns, b"".join(sent)


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
    taken = 0

    async def receive() -> Mapping[str, Any]:
        nonlocal taken
        taken += 1
        assert taken < 100, "a client may send without end"
        data = writer.data(1, b"x" * 100_000)
        return {"type": "websocket.receive", "bytes": opening if taken == 1 else data}

    async def send(message: dict[str, Any]) -> None:
        return None

    writer = SpdyWriter()
    opening = writer.open(1, {"streamtype": "stdin"})
    request = ExecRequest("default", "p", "c", ("cat",), stdin=True)
    asyncio.run(run_session(Sleeper(), request, receive, send, SPDY_PROTOCOL))
