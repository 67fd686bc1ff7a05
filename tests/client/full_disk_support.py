"""Client of a store on a disk that can be filled."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import apsw

from onejob.api.service import Service
from onejob.client.local import LocalClient
from onejob.clock import Clock
from onejob.controllers.bootstrap import bootstrap
from onejob.gates import FeatureGates
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from sim.faulty_disk import Entry, FaultyDisk


class Disk:
    def __init__(self, faulty: FaultyDisk) -> None:
        self.full = False
        faulty.before = self._before

    def _before(self, entry: Entry) -> None:
        if self.full and entry.what == "write":
            raise apsw.FullError("database or disk is full")


@asynccontextmanager
async def a_disk_and_a_client(
    folder: Path, clock: Clock
) -> AsyncIterator[tuple[Disk, LocalClient]]:
    with FaultyDisk(name=f"full-{folder.name}") as faulty:
        store = await LogStore.open(
            folder / "onejob.db", clock=clock, committer=LoopCommitter(), vfs=faulty.name
        )
        client = LocalClient(Service(store, clock=clock, rng=Random(1), gates=FeatureGates()))
        await bootstrap(client)
        try:
            yield Disk(faulty), client
        finally:
            await store.close()
