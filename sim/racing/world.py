"""Simulation of one seed: slow requests and quick users, until the world is at rest."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from random import Random

from onejob.api.service import Service
from onejob.client.local import LocalClient
from onejob.clock import LoopClock
from onejob.control_plane import ControlPlane
from onejob.node.runtime import NodeContext
from onejob.objects.meta import CRONJOBS, JOBS, PODS
from onejob.planning.queue.limits import Limits
from onejob.virtual_time import NOON
from onejob.wire.requests import User, WriteOptions
from sim.checks.history_checker import HistoryChecker
from sim.checks.rest import left_over
from sim.clients.log import ServerLog
from sim.history import History
from sim.machine import Machine, MachineRuntime
from sim.network.stage import Stage
from sim.racing.client import SlowClient
from sim.racing.deletions import DeletionCheck
from sim.racing.users import CONFIG_MAPS, RacingUsers, priority_of
from sim.rights import Rights
from sim.world import Verdict

_MAX_RUN_SECONDS = 150.0
_REST_WITHIN_SECONDS = 3600
_LOOK_EVERY_SECONDS = 20.0
_FAULTS = (
    "slow read", "slow write", "lost answer", "refused write", "late watch", "split watch",
    "broken watch", "expired watch", "slow start", "failed start", "late report", "ignored SIGTERM",
)  # fmt: skip


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    """Simulate the world of a seed and return the verdict."""
    stage = Stage(seed, often, _FAULTS)
    world = _World(stage)
    stage.run(world.live)
    versions = tuple(world.history.in_order())
    return stage.verdict(versions=versions, processes=len(world.machine.ran))


class _World:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rng = Random(f"{stage.seed} racing")
        self.machine = Machine(stage.seed, stage.dice)
        self.history = History()
        self._log = ServerLog()
        self._check = DeletionCheck(stage.problems, self._log, steady=lambda: not self._set_back_at)
        self._client: SlowClient
        self._plane: ControlPlane
        self._set_back_at: list[float] = []
        self._users = RacingUsers(stage.seed, stage.trace, self._check)

    async def live(self) -> None:
        stage, loop = self._stage, asyncio.get_running_loop()
        clock = LoopClock(loop, NOON)

        def make_runtime(node: NodeContext) -> MachineRuntime:
            return MachineRuntime(
                self.machine,
                stage.dice,
                clock,
                revision=lambda: self._plane.store.revision,
                deletion_known=lambda uid: (
                    self._client.deletions_shown.get(uid, loop.time()) < loop.time()
                ),
            )

        self._plane = plane = await stage.open_plane(
            "server",
            clock,
            client=self._make_client,
            runtime=make_runtime,
            limits=self._users.limits,
        )
        self._users.clock = clock
        self._users.client = LocalClient(plane.service, WriteOptions(User("somebody")))
        self.history.follow(plane.store)
        self._log.follow(plane.store, JOBS, PODS, CONFIG_MAPS, CRONJOBS)
        await plane.begin()
        await self._users.begin()
        stage.disturb()
        self._client.reliable = False
        await self._disturb(clock)
        stage.calm()
        await self._come_to_rest(plane)
        await plane.stop()
        self._check_history()

    def _make_client(self, service: Service) -> SlowClient:
        dice, note = self._stage.dice, self.history.acknowledge
        self._client = SlowClient(service, dice, Rights(dice), note)
        return self._client

    async def _disturb(self, clock: LoopClock) -> None:
        rng, loop = self._rng, asyncio.get_running_loop()
        until = rng.uniform(0.4, 1.0) * _MAX_RUN_SECONDS
        # Slots come again only if the clock is set back a little, and TTLs are checked only if it
        # is not.
        sets_clock = self._users.uses_cron and rng.random() < 0.5
        while loop.time() < until:
            await asyncio.sleep(rng.random() * 3)
            await self._users.act()
            if sets_clock and rng.random() < 0.06:
                seconds = rng.choice((20, 30, 45, 70))
                self._stage.trace.note(f"the clock is set back by {seconds} s")
                clock.epoch -= timedelta(seconds=seconds)
                self._set_back_at.append(loop.time())

    async def _come_to_rest(self, plane: ControlPlane) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _REST_WITHIN_SECONDS
        while True:
            await self._users.make_room()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            left = [*left_over(plane, self.machine, loop.time()), *self._check.left_over()]
            if not left or loop.time() > give_up_at:
                break
        for text in left:
            self._stage.problems.add("convergence", text)

    def _check_history(self) -> None:
        limits = Limits() if self._users.requeues else self._users.limits
        checker = HistoryChecker(
            limits,
            problems=self._stage.problems,
            priority_of=priority_of,
            last_slot_counts=True,
        )
        checker.check(
            self.history,
            self.machine,
            steady_clock=not self._set_back_at,
            set_back_at=self._set_back_at,
            deleted_by_users=self._users.deleted,
        )
