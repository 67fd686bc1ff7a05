"""Replicas of `onejob controller`, each with its own host and clock."""

import asyncio
from datetime import timedelta
from random import Random

from onejob.clock import LoopClock
from onejob.cluster.manager import Manager, Settings
from onejob.planning.leadership import Timing
from onejob.virtual_time import NOON
from sim.cluster.leases import LeaseCheck
from sim.network.links import ORIGIN
from sim.network.server import connection_to
from sim.network.stage import Stage

_MAX_OUTAGE_SECONDS = 20.0


class Replica:
    """One replica of `onejob controller`, which can be killed, stopped and restarted."""

    def __init__(
        self, host: str, server: str, stage: Stage, timing: Timing, skew: float, check: LeaseCheck
    ) -> None:
        self._host = host
        self._server = server
        self._stage = stage
        self._timing = timing
        self._skew = timedelta(seconds=skew)
        self._check = check
        self._starts = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        self._starts += 1
        self._stage.network.revive(self._host)
        self._stopping = asyncio.Event()
        token = ORIGIN.set(self._host)
        try:
            self._task = asyncio.create_task(self._run(self._stopping))
        finally:
            ORIGIN.reset(token)

    async def _run(self, stopping: asyncio.Event) -> None:
        clock = LoopClock(asyncio.get_running_loop(), NOON + self._skew)
        manager = Manager(
            Settings(leader_elect=True, timing=self._timing, qps=0),
            connection_to(self._server),
            clock=clock,
            rng=Random(f"{self._stage.seed} {self._host} {self._starts}"),
        )
        self._check.identities[self._host] = manager._identity
        self._stage.trace.note(f"{self._host} starts as {manager._identity[-4:]}")
        await manager.run(stopping)

    async def kill(self) -> None:
        """Kill the replica without a clean shutdown; it is restarted after a while."""
        self._stage.trace.note(f"{self._host} is killed")
        self._stage.network.kill(self._host)
        await self._end()

    async def stop(self) -> None:
        """Shut the replica down cleanly."""
        self._stage.trace.note(f"{self._host} is stopped")
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_MAX_OUTAGE_SECONDS)
        await self._end()

    async def _end(self) -> None:
        if self._task is None:
            return
        if self._task.done() and not self._task.cancelled():
            self._see_failure(self._task.exception())
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def _see_failure(self, error: BaseException | None) -> None:
        if error is not None:
            self._stage.problems.add("keeps running", f"{self._host} failed: {error!r}")
