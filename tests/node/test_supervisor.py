"""The supervisor process: small and independent."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from onejob.node.process.supervisor_client import _PACKAGES, SupervisorClient
from onejob.node.supervisor.event_batching import MIN_BATCH


def test_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import onejob.node.supervisor.main; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code, _PACKAGES],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(ran.stdout.split())
    assert loaded - set(sys.stdlib_module_names) <= {"onejob", "__main__"}
    assert not loaded & {"asyncio", "subprocess", "threading", "logging"}


async def test_requests_of_previous_server_are_ignored(tmp_path: Path) -> None:
    """The old server is dead, and the next one has got the list of attempts.

    A request read after that would run a Pod again that has run and was released by then.
    """
    ran = tmp_path / "ran"
    request = {
        "claim": ["uid", "c", 0],
        "argv": ["/usr/bin/touch", str(ran)],
        "env": {},
        "cwd": str(tmp_path),
        "grace": 0,
        "log": "log",
    }
    heard: list[Any] = []
    news = asyncio.Event()

    def hear(events: Any) -> None:
        heard.extend(events)
        news.set()

    new = SupervisorClient(tmp_path / "node", owner=False, on_events=hear, on_lost=lambda: None)
    (tmp_path / "node").mkdir()
    await new.connect()
    await new.close(end=False)
    reader, old = await asyncio.open_unix_connection(tmp_path / "node" / "socket")
    old.write(b'{"do":"hello"}\n')
    await reader.readline()
    line = json.dumps({"do": "spawn", "items": [request]}).encode()
    old.write(line)
    await old.drain()
    assert (await new.connect()).known == []
    with contextlib.suppress(ConnectionError):
        old.write(b"\n")
        await old.drain()
    new.send(
        {
            "do": "spawn",
            "items": [request | {"claim": ["other", "c", 0], "argv": ["/bin/true"]}],
        }
    )
    while not any(event[0] == "exited" for event in heard):
        news.clear()
        await news.wait()
    assert {event[1] for event in heard} == {"other"}
    old.close()
    await new.close(end=True)
    assert not ran.exists()


async def test_first_ends_are_reported_during_starts(tmp_path: Path) -> None:
    """The server processes them meanwhile."""
    count = 100
    request = {"argv": ["/bin/true"], "env": {}, "cwd": str(tmp_path), "grace": 0, "log": "log"}
    requests = [request | {"claim": [str(number), "c", 0]} for number in range(count)]
    told: list[list[str]] = []
    news = asyncio.Event()

    def hear(events: Any) -> None:
        told.append([event[1] for event in events if event[0] == "exited"])
        news.set()

    client = SupervisorClient(tmp_path / "node", owner=True, on_events=hear, on_lost=lambda: None)
    await client.connect()
    client.send({"do": "spawn", "items": requests})
    while sum(map(len, told)) < count:
        news.clear()
        await news.wait()
    await client.close(end=True)
    assert MIN_BATCH <= len(told[0]) < count
    assert sorted(uid for some in told for uid in some) == sorted(str(n) for n in range(count))
