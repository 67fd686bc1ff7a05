"""Shared setup of worlds on a simulated network: folder, event loop, control planes."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Collection, Coroutine, Set
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from onejob.api.service import Service
from onejob.client.local import LocalClient
from onejob.clock import Clock
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.controllers.selection import ALL
from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext, Runtime
from onejob.planning.queue.limits import Limits
from onejob.virtual_time import Stuck
from sim.checks.problems import Problems
from sim.disk import Disk, DiskCommitter
from sim.faults import NETWORK, Dice, Trace
from sim.network.links import Network
from sim.network.loop import NetworkLoop
from sim.world import Verdict

#: Faults of the servers in these worlds; servers never crash.
SERVER_FAULTS = ("slow commit", "failed commit")


class Stage:
    """One world: its dice, network, trace and problems."""

    def __init__(
        self,
        seed: int,
        often: Collection[str] = (),
        kinds: Collection[str] = (),
        *,
        late_after_end: bool = True,
    ) -> None:
        """Create the world. `kinds` are faults in addition to those of network and servers."""
        self.seed = seed
        self.rng = Random(f"{seed} stage")
        self.trace = Trace()
        self.dice = Dice(seed, self.trace, often, (*NETWORK, *SERVER_FAULTS, *kinds))
        self.problems = Problems()
        self.network = Network(self.dice, Random(f"{seed} network"), late_after_end)
        self.folder = Path()
        self._committers: list[DiskCommitter] = []

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Memory, not disk: a simulation dies with its process, and syncing would take most of its
        # time.
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="onejob-sim-", dir=place))
        try:
            with asyncio.Runner(loop_factory=self._make_loop) as runner:
                try:
                    runner.run(main())
                except Stuck as error:
                    self.problems.add("time passes", str(error))
        finally:
            shutil.rmtree(self.folder)

    def _make_loop(self) -> NetworkLoop:
        loop = NetworkLoop()
        loop.network = self.network
        return loop

    async def open_plane(
        self,
        name: str,
        clock: Clock,
        *,
        controllers: Set[str] = ALL,
        client: Callable[[Service], LocalClient] = LocalClient,
        runtime: Callable[[NodeContext], Runtime] | None = None,
        limits: Limits | None = None,
    ) -> ControlPlane:
        """Open a control plane; without a `runtime` it has no node."""
        committer = DiskCommitter(Disk(self.dice), self._no_crash, lambda: None)
        self._committers.append(committer)
        settings = Settings(
            self.folder / name,
            NodeOptions("simulated", "node", {"cpu": "1000", "pods": "50"}),
            controllers=controllers,
            with_node=runtime is not None,
            queue_limits=limits,
        )
        outside = Dependencies(
            clock=clock,
            rng=Random(f"{self.seed} {name} {asyncio.get_running_loop().time()}"),
            committer=committer,
            client=client,
            runtime=runtime,
        )
        plane = await ControlPlane.open(settings, outside)
        plane.failed.add_done_callback(partial(self._failed, name))
        return plane

    def disturb(self) -> None:
        """Enable faults, which are off while a control plane starts."""
        for committer in self._committers:
            committer.reliable = False

    def calm(self) -> None:
        self.trace.note("calm")
        self.dice.calm = True
        self.network.mend()

    def verdict(self, **facts: Any) -> Verdict:
        known: dict[str, Any] = {"versions": (), "processes": 0, "lives": 1} | facts
        return Verdict(
            self.seed,
            tuple(self.problems.found),
            self.dice.happened,
            tuple(self.trace.lines),
            **known,
        )

    def _failed(self, name: str, failed: "asyncio.Future[str]") -> None:
        self.problems.add("keeps running", f"the control plane {name} failed: {failed.result()}")

    def _no_crash(self, when: str) -> None:
        raise AssertionError("servers do not crash in this world")
