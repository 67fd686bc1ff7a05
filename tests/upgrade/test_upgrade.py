"""Upgrades: old databases and journals open; newer ones are refused in one line."""

import asyncio
import fcntl
import json
import os
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Patch
from onejob.node.process.supervisor_client import SupervisorClient, SupervisorRefused
from onejob.node.supervisor.journal import NAME, Journal
from onejob.node.supervisor.record_file import frame
from onejob.node.supervisor.versions import JOURNAL, PROTOCOL, NewerVersion, journal_version
from onejob.store.migrations import STEPS
from tests.upgrade.support import (
    CLAIMS,
    ENDED,
    FINISHED,
    FIXTURES,
    IDENTITY,
    SUSPENDED,
    a_plane,
    database,
    journal,
    key,
    status,
    unpack,
)


def test_there_is_a_fixture_for_each_version_until_now() -> None:
    """If not: `python -m tests.upgrade.make_fixtures`, before the next release."""
    expected = {database(version) for version in range(1, len(STEPS) + 1)}
    expected |= {journal(version) for version in range(1, JOURNAL + 1)}
    assert set(FIXTURES.iterdir()) == expected


@pytest.mark.parametrize("version", range(1, len(STEPS) + 1))
@pytest.mark.virtual_time
async def test_a_database_of_each_schema_opens_and_goes_on(tmp_path: Path, version: int) -> None:
    tmp_path.chmod(0o700)
    unpack(database(version), tmp_path / "onejob.db")
    (tmp_path / "onejob.db").chmod(0o600)
    plane = await a_plane(tmp_path)
    before = await status(plane, FINISHED)
    assert before["succeeded"] == 2
    resume = msgspec.json.encode({"spec": {"suspend": False}})
    await plane.client.write(Patch(key(SUSPENDED), resume, "merge"))
    await asyncio.sleep(60)
    assert (await status(plane, SUSPENDED))["succeeded"] == 2
    assert await status(plane, FINISHED) == before
    await plane.stop()


@pytest.mark.parametrize("version", range(1, JOURNAL + 1))
def test_a_journal_of_each_version_is_read_and_continued(tmp_path: Path, version: int) -> None:
    path = tmp_path / NAME
    unpack(journal(version), path)
    assert journal_version(str(path)) == version
    for _ in range(2):
        found = Journal(str(path), IDENTITY)
        assert not found.damaged
        assert not found.rebooted
        assert {attempt.claim for attempt in found.each()} == set(CLAIMS.values())
        ended, running = found.find(CLAIMS["ended"]), found.find(CLAIMS["running"])
        assert ended is not None
        assert ended.outcome == ENDED
        assert running is not None
        assert (running.pid, running.started_at) == (4242, 1_700_000_000.25)
        # Once opened, it is of the present version.
        assert journal_version(str(path)) == JOURNAL


def a_newer_journal(folder: Path) -> bytes:
    header = {"k": "header", "version": JOURNAL + 1, "boot": "b", "namespace": 1, "folder": ""}
    data = frame(json.dumps(header).encode()) + frame(b'{"k":"something new"}')
    (folder / NAME).write_bytes(data)
    return data


def test_a_newer_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = a_newer_journal(tmp_path)
    with pytest.raises(NewerVersion, match="newer onejob"):
        Journal(str(tmp_path / NAME), IDENTITY)
    assert (tmp_path / NAME).read_bytes() == data


async def test_a_server_starts_no_supervisor_on_a_newer_journal(tmp_path: Path) -> None:
    data = a_newer_journal(tmp_path)
    client = SupervisorClient(tmp_path, owner=True, on_events=lambda _: None, on_lost=lambda: None)
    with pytest.raises(SupervisorRefused) as refused:
        await client.connect()
    assert f"(version {JOURNAL + 1}, this one supports {JOURNAL})" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (tmp_path / NAME).read_bytes() == data
    assert not (tmp_path / "socket").exists()


async def test_a_server_leaves_a_newer_supervisor_alone(tmp_path: Path) -> None:
    asked: list[str] = []
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond as the next version might."""
        handshake = {"known": [], "rebooted": False, "isolates": True, "version": PROTOCOL + 1}
        while line := await reader.readline():
            asked.append(json.loads(line)["do"])
            writer.write(json.dumps(handshake).encode() + b"\n")
        writer.close()
        left.set()

    # The holder of this lock is the supervisor.
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        client = SupervisorClient(
            tmp_path, owner=True, on_events=lambda _: None, on_lost=lambda: None
        )
        async with await asyncio.start_unix_server(answer, tmp_path / "socket"):
            with pytest.raises(SupervisorRefused, match="belongs to a newer onejob"):
                await client.connect()
            await left.wait()
    finally:
        os.close(lock)
    assert asked == ["hello"]
