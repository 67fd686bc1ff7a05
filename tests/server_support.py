"""Control plane in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock


@asynccontextmanager
async def a_plane(folder: Path) -> AsyncIterator[ControlPlane]:
    """Run a control plane with simulated Pods, in virtual time."""
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated")),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter()),
    )
    try:
        yield plane
    finally:
        await plane.stop()
