"""Two servers with equal clocks and random numbers, to compare two ways of one operation."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from onejob.api.service import Service
from onejob.gates import FeatureGates
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import WriteOptions

TRUSTED = WriteOptions(trusted=True)


def with_two_services(folder: Path, test: Callable[[Service, Service], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = virtual_clock()
        first, second = [
            await LogStore.open(folder / name, clock=clock, committer=LoopCommitter())
            for name in ("quick", "general")
        ]
        services = [
            Service(store, clock=clock, rng=Random(5), gates=FeatureGates())
            for store in (first, second)
        ]
        for service in services:
            await service.create(
                BY_RESOURCE["namespaces"], "", {"metadata": {"name": "default"}}, TRUSTED
            )
        await test(*services)
        for store in (first, second):
            await store.close()

    run_virtual(run())
