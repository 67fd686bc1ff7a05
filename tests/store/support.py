"""Builders for the store's tests."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import apsw

from onejob.objects.meta import Key
from onejob.store.base import Change
from onejob.store.encryption import Cipher
from onejob.store.fanout import LogWatch
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock


def no_room_for(name: str, *, pages: int) -> Callable[[apsw.Connection], None]:
    """Return a connection hook that keeps databases with this name from growing."""

    def limit(connection: apsw.Connection) -> None:
        if Path(connection.filename).name == name:
            connection.pragma("max_page_count", pages)

    return limit


def pod(name: str, namespace: str = "default") -> Key:
    """Return the key of a Pod."""
    return Key("pods", namespace, name)


@asynccontextmanager
async def a_store(
    path: Path,
    *,
    limits: Limits | None = None,
    latency_seconds: float = 0.0,
    vfs: str | None = None,
    cipher: Cipher | None = None,
) -> AsyncIterator[LogStore]:
    """Open a store without threads, in virtual time."""
    store = await LogStore.open(
        path,
        clock=virtual_clock(),
        committer=LoopCommitter(latency_seconds),
        limits=limits,
        vfs=vfs,
        cipher=cipher,
    )
    try:
        yield store
    finally:
        await store.close()


def put(store: LogStore, key: Key, text: str, *, cold: bool = False) -> int:
    """Stage a document over the present one; return its revision."""
    before = store.newest(key)
    stored = store.stage(key, before.revision if before else 0, lambda _: text.encode(), cold=cold)
    assert stored is not None
    return stored.revision


def remove(store: LogStore, key: Key) -> int:
    """Stage a deletion; return its revision."""
    before = store.newest(key)
    assert before is not None
    store.stage(key, before.revision, None)
    return store.staged_revision


async def write(store: LogStore, key: Key, text: str, *, cold: bool = False) -> int:
    """Store a document durably; return its revision."""
    revision = put(store, key, text, cold=cold)
    await store.durable(revision)
    return revision


async def delete(store: LogStore, key: Key) -> int:
    """Delete an object durably; return the revision."""
    revision = remove(store, key)
    await store.durable(revision)
    return revision


def names(store: LogStore, resource: str = "pods", namespace: str = "") -> list[str]:
    """Return the names in a list of the store."""
    return [stored.key.name for stored in store.list(resource, namespace).items]


async def collect(watch: LogWatch, count: int) -> list[Change]:
    """Return the next `count` changes, which must come in whole batches."""
    changes: list[Change] = []
    while len(changes) < count:
        changes += await anext(watch)
    assert len(changes) == count, f"{len(changes)} changes instead of {count}"
    return changes


async def settle(turns: int = 20) -> None:
    """Run ready callbacks, without advancing time."""
    for _ in range(turns):
        await asyncio.sleep(0)


def summary(changes: Sequence[Change]) -> list[tuple[str, int, bytes | None, bytes | None]]:
    """Return name, revision, value and previous value of each change."""
    return [(c.key.name, c.revision, c.value, c.previous) for c in changes]


def checked_document(name: str, filler: int) -> bytes:
    """Return a document with a checksum and its own name."""
    body = f"{name}:{'x' * filler}".encode()
    return b"%08x" % zlib.crc32(body) + body


def is_whole(name: str, document: bytes) -> bool:
    """Return whether a document made by `checked_document` is intact and has this name."""
    body = document[8:]
    return document[:8] == b"%08x" % zlib.crc32(body) and body.startswith(f"{name}:".encode())
