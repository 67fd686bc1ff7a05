"""Server that is killed while it handles a claim.

Arguments: FOLDER WHEN WHAT. `WHEN` is `before` or `after`; `WHAT` is the write of the controller at
which the process kills itself: `Create` of the volume, `Patch` of the claim, or `Delete` of the
volume. It ends with -9, or with 1 if that write never comes.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from onejob.api.service import Service
from onejob.client.base import Op, Written
from onejob.client.local import LocalClient
from onejob.control_plane import Dependencies
from onejob.objects.claims import CLAIMS
from onejob.wire.requests import WriteOptions
from tests.claims.support import a_claim, a_world


class DoomedClient(LocalClient):
    """Client that kills the process at a write."""

    def __init__(self, service: Service, when: str, what: str) -> None:
        super().__init__(service, WriteOptions())
        self._when, self._what = when, what

    async def write(self, op: Op) -> Written:
        fatal = type(op).__name__ == self._what and "persistentvolume" in _resource(op)
        if fatal and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        written = await super().write(op)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def _resource(op: Op) -> str:
    # The first write of the claim comes from the test, through a client of its own.
    return op.resource if hasattr(op, "resource") else op.key.resource


async def main(folder: Path, when: str, what: str) -> None:
    doomed = Dependencies(client=lambda service: DoomedClient(service, when, what))
    async with a_world(folder, doomed) as world:
        client = LocalClient(world.plane.service, WriteOptions())
        world.plane.client = client
        await world.create(CLAIMS, a_claim())
        if what == "Delete":
            await world.bound()
            await world.delete(CLAIMS, "data")
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    sys.exit(1)
