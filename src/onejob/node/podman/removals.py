"""Background removal of containers and folders that are no longer needed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from onejob.node.podman.engine import Engine
from onejob.node.removal import remove_trees


class Removals:
    """Queue of containers and folders to remove."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: asyncio.Queue[tuple[Sequence[str], Sequence[Path]]] = asyncio.Queue()

    def add(self, names: Sequence[str], folders: Sequence[Path] = ()) -> None:
        """Queue containers, then folders, for removal."""
        self._queue.put_nowait((names, folders))

    async def done(self) -> None:
        """Wait until everything added so far is removed."""
        await self._queue.join()

    async def run(self) -> None:
        """Remove in batches until cancelled: containers before the folders that they mount."""
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._engine.remove(name for names, _ in batch for name in names)
            await asyncio.to_thread(
                remove_trees, [str(folder) for _, folders in batch for folder in folders]
            )
            for _ in batch:
                self._queue.task_done()
