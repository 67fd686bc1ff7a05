"""Simulation of one seed: Jobs of one control plane run on another, until the world is at rest."""

import asyncio
from collections.abc import Collection
from contextlib import ExitStack
from datetime import timedelta
from random import Random

from onejob.client import http
from onejob.client.local import LocalClient
from onejob.clock import LoopClock
from onejob.control_plane import ControlPlane
from onejob.node.runtime import NodeContext
from onejob.objects.meta import JOBS, PODS
from onejob.virtual_time import NOON, virtual_clock
from onejob.wire.requests import User, WriteOptions
from sim.checks.history_checker import HistoryChecker
from sim.clients.log import ServerLog
from sim.history import History
from sim.machine import Machine, MachineRuntime
from sim.mirroring.copies import CopyCheck
from sim.mirroring.users import HOST, MirrorUsers
from sim.mutants.planting import replace
from sim.network.links import ORIGIN
from sim.network.server import front
from sim.network.stage import Stage
from sim.world import Verdict

_MAX_RUN_SECONDS = 150.0
_REST_WITHIN_SECONDS = 2 * 3600
_LOOK_EVERY_SECONDS = 20.0
_MAX_OUTAGE_SECONDS = 15.0
_MACHINE_FAULTS = ("slow start", "failed start", "late report", "ignored SIGTERM")


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    """Simulate the world of a seed and return the verdict."""
    stage = Stage(seed, often, _MACHINE_FAULTS)
    world = _World(stage)
    with ExitStack() as undo:
        # Targets have https addresses, and TLS is not simulated.
        replace(undo, http, "tls_context", lambda *_: None)
        stage.run(world.live)
    versions = tuple(world.history.in_order())
    return stage.verdict(versions=versions, processes=len(world.machine.ran), lives=world.lives)


class _World:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rng = Random(f"{stage.seed} mirroring")
        self.machine = Machine(stage.seed, stage.dice)
        #: History of the remote side.
        self.history = History()
        self._log = ServerLog()
        self._check = CopyCheck(stage.problems, self._log, ServerLog(), stage.network)
        self.users = MirrorUsers(stage.seed, stage.trace, self._check)
        self._epoch = NOON
        self._clock: LoopClock
        self._here: ControlPlane
        self.lives = 0

    async def live(self) -> None:
        stage = self._stage
        there = await self._start_there()
        await self._start_here()
        await self.users.begin()
        stage.disturb()
        await self._disturb()
        stage.calm()
        await self._come_to_rest()
        await self._here.stop()
        await there.stop()
        self._check_history()

    def _check_history(self) -> None:
        """Check that the remote side ran its Jobs like any others.

        Its final state is not checked here: copies that never ran stay suspended.
        """
        checker, deleted = HistoryChecker(), self._check.deleted_there
        checker.check(self.history, self.machine, steady_clock=False, deleted_by_users=deleted)
        for problem in checker.problems.found:
            if problem.check != "convergence":
                self._stage.problems.add(problem.check, problem.text)

    async def _start_there(self) -> ControlPlane:
        clock, stage = virtual_clock(), self._stage

        def make_runtime(node: NodeContext) -> MachineRuntime:
            return MachineRuntime(
                self.machine,
                stage.dice,
                clock,
                revision=lambda: plane.store.revision,
                deletion_known=lambda uid: False,
            )

        plane = await stage.open_plane("there", clock, runtime=make_runtime)
        self.users.there = LocalClient(plane.service, WriteOptions(User("somebody")))
        self.history.follow(plane.store)
        self._check.there.follow(plane.store, JOBS, PODS)
        await plane.begin()
        stage.network.listeners[HOST] = front(plane, Random(f"{stage.seed} front"))
        return plane

    async def _start_here(self) -> None:
        self.lives += 1
        self._stage.trace.note("here starts")
        self._stage.network.revive("here")
        self._clock = LoopClock(asyncio.get_running_loop(), self._epoch)
        token = ORIGIN.set("here")
        try:
            plane = await self._stage.open_plane("here", self._clock)
            self._log.follow(plane.store, JOBS, PODS)
            self.users.here = LocalClient(plane.service, WriteOptions(User("somebody")))
            await plane.begin()
        finally:
            ORIGIN.reset(token)
        self._here = plane

    async def _stop_here(self) -> None:
        """Stop the process at an arbitrary point.

        Its requests may still arrive, but the responses do not.
        """
        self._stage.network.kill("here")
        self._stage.trace.note("here stops")
        await self._here.stop()

    async def _disturb(self) -> None:
        rng, loop = self._rng, asyncio.get_running_loop()
        until = rng.uniform(0.3, 1.0) * _MAX_RUN_SECONDS
        while loop.time() < until:
            await asyncio.sleep(rng.random() * 4)
            match rng.choices(("users", "restart", "cut off", "set the clock"), (85, 6, 5, 4))[0]:
                case "users":
                    await self.users.act()
                case "restart":
                    await self._stop_here()
                    await asyncio.sleep(rng.random() * _MAX_OUTAGE_SECONDS)
                    await self._start_here()
                    self._stage.disturb()
                case "cut off":
                    seconds = rng.choice((5.0, 20.0, 70.0))
                    self._stage.trace.note(f"here is cut off for {seconds} s")
                    self._stage.network.cut("here", seconds)
                case _:
                    seconds = rng.choice((-600, 30, 600))
                    self._stage.trace.note(f"the clock here is set by {seconds} s")
                    self._epoch += timedelta(seconds=seconds)
                    self._clock.epoch = self._epoch

    async def _come_to_rest(self) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _REST_WITHIN_SECONDS
        while True:
            await self.users.make_room()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            left = self._check.left_over()
            if not left or loop.time() > give_up_at:
                break
        for check, text in left:
            self._stage.problems.add(check, text)
