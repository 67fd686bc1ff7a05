"""Durability of the outbox file when a server stops."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from onejob.controllers.notify.outbox import FILE, Outbox, OutboxFile, open_outbox
from onejob.planning.notify.record import ENDED, RecordChange
from onejob.virtual_time import NOON


async def test_a_server_that_stops_in_the_middle_of_a_commit_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committing thread goes on although no task waits for it any more."""
    commit, close = OutboxFile.commit, OutboxFile.close
    begun, closed = threading.Event(), threading.Event()
    write = OutboxFile._write

    def write_slowly(self: OutboxFile, change: RecordChange) -> None:
        write(self, change)
        if not begun.is_set():
            begun.set()
            # Until the file is closed meanwhile, unless that waits for its turn.
            closed.wait(0.3)

    def note_closing(self: OutboxFile) -> None:
        close(self)
        closed.set()

    ended: list[object] = []

    def note_end(self: OutboxFile, *what: Any) -> None:
        try:
            commit(self, *what)
            ended.append(None)
        except Exception as error:
            ended.append(error)
            raise

    monkeypatch.setattr(OutboxFile, "_write", write_slowly)
    monkeypatch.setattr(OutboxFile, "close", note_closing)
    monkeypatch.setattr(OutboxFile, "commit", note_end)
    outbox = Outbox(open_outbox(tmp_path / FILE, NOON))
    running = asyncio.create_task(outbox.run())
    outbox.write(RecordChange({"uid": ENDED}))
    await asyncio.to_thread(begun.wait, 30)
    running.cancel()
    await asyncio.wait((running,))
    await outbox.close()
    assert ended == [None, None]
    found = OutboxFile(tmp_path / FILE, NOON)
    assert found.record.seen == {"uid": ENDED}
    found.close()
