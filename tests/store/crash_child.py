"""Process that writes to a store until it is killed. Used by test_kill.py; imports little."""

import asyncio
import os
from multiprocessing.connection import Connection

from onejob.clock import SystemClock
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from tests.store.support import checked_document, is_whole, pod

WRITERS = 8
#: Small, so that kills also fall into compactions and checkpoints.
LIMITS = Limits(history_changes=500, checkpoint_bytes=300_000, spare_pages=16)


def live(path: str, life: int, acknowledge: Connection) -> None:
    asyncio.run(_live(path, life, acknowledge.fileno()))


async def _live(path: str, life: int, pipe: int) -> None:
    store = await LogStore.open(path, clock=SystemClock(), limits=LIMITS)
    _tell(pipe, f"opened {store.revision}")

    async def create(writer: int) -> None:
        number = 0
        while True:
            name = f"{life}-{writer}-{number}"
            number += 1
            document = checked_document(name, 400)
            stored = store.stage(pod(name), 0, lambda _, value=document: value)  # type: ignore[misc]
            assert stored is not None
            await store.durable(stored.revision)
            _tell(pipe, f"{name} {stored.revision}")

    async def churn() -> None:
        """Update and delete objects, as work for compaction."""
        while True:
            for turn in range(40):
                key = pod(f"churn-{turn % 10}")
                before = store.newest(key)
                if before is not None:
                    assert is_whole(key.name, before.value)
                if before is not None and turn % 7 == 0:
                    store.stage(key, before.revision, None)
                else:
                    document = checked_document(key.name, 1_500)
                    expected = before.revision if before is not None else 0
                    store.stage(key, expected, lambda _, value=document: value)  # type: ignore[misc]
            await store.durable(store.staged_revision)

    await asyncio.gather(churn(), *(create(writer) for writer in range(WRITERS)))


def _tell(pipe: int, line: str) -> None:
    # One write of less than PIPE_BUF bytes: a line is written whole or not at all.
    os.write(pipe, f"{line}\n".encode())
