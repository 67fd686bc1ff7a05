"""Removal of damaged objects from the database of a stopped server."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from onejob.clock import SystemClock
from onejob.objects.meta import Key
from onejob.store.base import DamagedDocument
from onejob.store.damage import IsReadable
from onejob.store.encryption import NoCipher
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter


async def remove_damaged(
    path: Path, keys: Sequence[Key], is_readable: IsReadable
) -> dict[Key, int]:
    """Delete the objects among `keys` whose documents are damaged; return their revisions.

    All others are left unchanged, with their history. Raises a subclass of CannotOpen, and
    StoreError if nothing could be written.
    """
    store = await LogStore.open(
        path,
        clock=SystemClock(),
        committer=LoopCommitter(),
        is_readable=is_readable,
        cipher=NoCipher(),
    )
    try:
        for key in keys:
            # Damage to documents that are kept on disk only is detected on read.
            with suppress(DamagedDocument):
                store.get(key)
        removed = {key: store.damaged[key] for key in keys if key in store.damaged}
        for key in removed:
            store.discard(key)
        await store.durable(store.staged_revision)
    finally:
        await store.close()
    return removed
