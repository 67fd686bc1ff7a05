"""Simulation of one seed: the control plane starts, crashes and restarts until all is at rest."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

from onejob.api.service import Service
from onejob.clock import LoopClock
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.gates import FeatureGates
from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext, RuntimeUnavailable
from onejob.planning.queue.limits import Limits
from onejob.store.base import CannotOpen, CommitFailed, StoreError, StoreFailed
from onejob.store.log import LogStore
from onejob.virtual_time import NOON, Stuck, VirtualTimeLoop
from sim.api import FaultyClient
from sim.checks.history_checker import HistoryChecker
from sim.checks.problems import Problem
from sim.checks.rest import left_over
from sim.database_disk import VFS, DatabaseDisk
from sim.disk import Disk, DiskCommitter
from sim.faults import Dice, Trace
from sim.gates import Gates
from sim.history import History, Version
from sim.machine import Machine, MachineRuntime
from sim.node.machine import ProcessMachine
from sim.node.runtime import WatchedRuntime
from sim.rare_users import users_of
from sim.rights import Rights
from sim.users import TEAM, Users
from sim.workloads import QUEUE

T = TypeVar("T")

#: Simulated machine of the Pods: a script, or the production supervisor on a simulated kernel.
Node: TypeAlias = Literal["machine", "processes"]

#: Faults, edits and restarts end after at most this; then everything must come to rest.
_CALM_AFTER_SECONDS = 150.0
_REST_WITHIN_SECONDS = 4 * 3600
_LOOK_EVERY_SECONDS = 20.0
_MAX_OUTAGE_SECONDS = 20.0
_CLOSE_SECONDS = 1.0
#: Limit on callbacks at a single instant, to detect livelock; a whole world takes fewer.
_MAX_TURNS = 200_000
#: Consecutive failures; more cannot be by chance.
_MAX_FAILED_STARTS = 20


@dataclass(frozen=True)
class Verdict:
    """Result of one world: problems, faults, trace and history."""

    seed: int
    problems: tuple[Problem, ...]
    faults: Counter[str]
    #: Events in chronological order, with their times.
    trace: tuple[tuple[float, str], ...]
    versions: tuple[Version, ...]
    processes: int
    lives: int


def simulate(
    seed: int,
    often: Collection[str] = (),
    *,
    node: Node | None = None,
    job_limit: int | None = None,
    rare: bool | None = None,
    gates: bool | None = None,
) -> Verdict:
    """Simulate the world of a seed and return the verdict.

    The same seed always produces the same run (among processes with equal hash seeds). `often`
    names kinds of faults that happen often in this world. The other options override values that
    are otherwise drawn: `node` is the machine of its Pods, `job_limit` the number of Jobs that may
    run at once (some worlds have a limit anyway), `rare` enables the users' rare actions, and
    `gates` gives each process its own feature gates.
    """
    # Memory, not disk: a simulation dies with its process, and syncing would take most of its time.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="onejob-sim-", dir=place))
    try:
        users = partial(users_of, seed, rare=rare)
        switch = Gates(seed, gates)
        node = node or _drawn_node(seed)
        return _World(seed, folder, often, node, job_limit, users, switch).run()
    finally:
        shutil.rmtree(folder)


def simulate_with(
    seed: int, often: Collection[str], users: Callable[[int, History, Trace], Users]
) -> Verdict:
    """Simulate a world with other users, on the scripted machine and with default gates."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="onejob-sim-", dir=place))
    try:
        world = _World(
            seed, folder, often, "machine", None, partial(users, seed), Gates(seed, False)
        )
        return world.run()
    finally:
        shutil.rmtree(folder)


def _drawn_node(seed: int) -> Node:
    return Random(f"{seed} node").choice(("machine", "processes"))


def _drawn_limits(seed: int) -> Limits:
    rng = Random(f"{seed} limits")
    if rng.random() < 0.7:
        return Limits()
    possible = {"*": 3, f"namespace/{TEAM}": 2, QUEUE: 1}
    return Limits({scope: possible[scope] for scope in rng.sample(sorted(possible), 2)})


class _World:
    """State that outlives the processes of the control plane."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        often: Collection[str],
        node: Node,
        job_limit: int | None,
        users: Callable[[History, Trace], Users],
        gates: Gates,
    ) -> None:
        self.seed = seed
        self.limits = _drawn_limits(seed) if job_limit is None else Limits({"*": job_limit})
        self.folder = folder
        self.rng = Random(f"{seed} world")
        self.trace = Trace()
        self.dice = Dice(seed, self.trace, often)
        self.disk = Disk(self.dice)
        self.database = DatabaseDisk(seed, self.dice, folder, lambda: self.disk.full)
        self.history = History()
        self.users = users(self.history, self.trace)
        self.gates = gates
        self.checker = HistoryChecker(self.limits, gates_switched=gates.switched)
        self.rights = Rights(self.dice)
        #: Wall-clock time at loop time 0; changes when the clock is set.
        self.epoch = NOON
        self.set_back_at: list[float] = []
        self.machine: Machine | ProcessMachine = Machine(seed, self.dice)
        if node == "processes":
            self.machine = ProcessMachine(
                seed, self.dice, self.disk, self.trace, folder, lambda: self.epoch
            )
        self.calm_at = self.rng.uniform(0.3, 1.0) * _CALM_AFTER_SECONDS
        self.cpus = self.rng.choice(("1", "4", "1000"))
        #: Whether users have created their initial objects.
        self.begun = False
        #: The control plane cannot be started any more.
        self.broken = False
        #: Consecutive failed starts for lack of a container runtime.
        self.starts_failed = 0

    def run(self) -> Verdict:
        with ExitStack() as undo:
            undo.enter_context(self.database.installed())
            if isinstance(self.machine, ProcessMachine):
                undo.enter_context(self.machine.installed())
            return self._run()

    def _run(self) -> Verdict:
        now, lives, at_rest = 0.0, 0, False
        while not at_rest and not self.broken:
            lives += 1
            with asyncio.Runner(loop_factory=partial(_loop_at, now)) as runner:
                try:
                    at_rest = runner.run(_live(self))
                except Stuck as error:
                    self.checker.problems.add("time passes", str(error))
                    self.broken = True
                now = runner.get_loop().time()
            now += self.rng.random() * _MAX_OUTAGE_SECONDS
        self.checker.check(
            self.history,
            self.machine,
            steady_clock=not self.dice.happened["clock set"],
            set_back_at=self.set_back_at,
            deleted_by_users=self.users.deleted,
            stripped_by_users=self.users.stripped,
        )
        return Verdict(
            self.seed,
            tuple(self.checker.problems.found),
            self.dice.happened,
            tuple(self.trace.lines),
            tuple(self.history.in_order()),
            len(self.machine.ran),
            lives,
        )


def _node_options(world: _World) -> NodeOptions:
    capacity = {"cpu": world.cpus, "pods": "20"}
    if not isinstance(world.machine, ProcessMachine):
        return NodeOptions("simulated", "node", capacity)
    return NodeOptions(
        "process",
        "node",
        capacity,
        pid_namespace="auto" if world.machine.isolates else "off",
        # Folders per Pod would be real ones.
        working_dir=world.folder,
    )


def _loop_at(now: float) -> VirtualTimeLoop:
    loop = VirtualTimeLoop(most_turns=_MAX_TURNS)
    loop.advance(now)
    return loop


async def _live(world: _World) -> bool:
    return await _Life(world).run()


class _Life:
    """One process of the control plane, from start to exit or crash."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._clock = LoopClock(self._loop, world.epoch)
        self._committer = DiskCommitter(world.disk, self._crash, world.database.close)
        self._died: asyncio.Future[str] = self._loop.create_future()
        self._store: LogStore
        self._client: FaultyClient
        self._runtime: MachineRuntime | WatchedRuntime
        self._options = _node_options(world)
        self._gates = FeatureGates()

    async def run(self) -> bool:
        """Run until the end of the process. Return whether the world has come to rest."""
        machine = self._world.machine
        if isinstance(machine, ProcessMachine):
            machine.attach()
        try:
            return await self._run()
        finally:
            if isinstance(machine, ProcessMachine):
                machine.detach()

    async def _run(self) -> bool:
        plane = await self._or_death(self._start())
        if plane is None:
            return False
        world = self._world
        self._committer.reliable = self._client.reliable = world.database.reliable = False
        stopped = await self._or_death(self._disturb())
        if stopped is None:
            return False
        if not stopped:
            await self._or_death(self._come_to_rest(plane))
        await self._or_death(self._stop(plane))
        return not stopped or world.dice.calm

    async def _start(self) -> ControlPlane | None:
        """Return the started control plane, or None if it could not be started, now or ever."""
        world = self._world
        self._gates = world.gates.draw(calm=self._loop.time() >= world.calm_at)
        settings = Settings(
            world.folder,
            self._options,
            gates=self._gates,
            queue_limits=world.limits or None,
        )
        outside = Dependencies(
            clock=self._clock,
            rng=Random(f"{world.seed} plane {self._loop.time()}"),
            committer=self._committer,
            client=self._make_client,
            runtime=self._make_runtime,
            vfs=VFS,
        )
        world.trace.note(f"start{''.join(f' {n}={v}' for n, v in self._gates.overrides.items())}")
        world.database.begin(self._crash)
        try:
            plane = await ControlPlane.open(settings, outside)
        except CannotOpen as error:
            world.checker.problems.add("starts after every crash", str(error))
            world.broken = True
            return None
        plane.failed.add_done_callback(lambda failed: self._fail(failed.result()))
        world.users.meet(plane)
        world.history.follow(plane.store)
        if world.begun and world.dice.happens("asked early"):
            # A server responds before the caches of its controllers and its node are filled.
            for _ in range(1 + int(world.dice.up_to("asked early", 4))):
                await world.users.act()
        try:
            await plane.begin()
        except RuntimeUnavailable as error:
            # A server logs this and exits, and its service manager starts it again.
            world.trace.note(f"cannot run: {error}")
            world.starts_failed += 1
            if world.starts_failed > _MAX_FAILED_STARTS:
                world.checker.problems.add("starts after every crash", str(error))
                world.broken = True
            await self._stop(plane)
            return None
        world.starts_failed = 0
        return plane

    def _make_client(self, service: Service) -> FaultyClient:
        assert isinstance(service.store, LogStore)
        self._store = service.store
        self._world.history.check_restart(self._store.revision)
        world = self._world
        self._client = FaultyClient(service, world.dice, world.rights, world.history.acknowledge)
        return self._client

    def _make_runtime(self, node: NodeContext) -> MachineRuntime | WatchedRuntime:
        machine, world = self._world.machine, self._world
        if isinstance(machine, ProcessMachine):
            self._runtime = WatchedRuntime(
                machine,
                world.folder,
                self._clock,
                self._options,
                node,
                revision=lambda: self._store.revision,
                deletion_known=self._deletion_known,
            )
        else:
            self._runtime = MachineRuntime(
                machine,
                world.dice,
                self._clock,
                revision=lambda: self._store.revision,
                deletion_known=self._deletion_known,
            )
        return self._runtime

    def _deletion_known(self, uid: str) -> bool:
        """Return whether the node has processed the Pod's deletion.

        A deletion shown at this very instant may still be on its way through callbacks.
        """
        return self._client.deletions_shown.get(uid, self._loop.time()) < self._loop.time()

    # --- disturbances

    async def _disturb(self) -> bool:
        """Inject faults until the process shall stop (True) or the time of faults ends (False)."""
        world, rng = self._world, self._world.rng
        if not world.begun:
            world.begun = True
            await world.users.begin()
        while self._loop.time() < world.calm_at:
            await asyncio.sleep(rng.random() * 4)
            match rng.choices(("users", "crash", "restart", "set the clock"), (90, 3, 3, 2))[0]:
                case "users":
                    await world.users.act()
                case "crash":
                    self._crash("at any moment")
                case "restart":
                    world.dice.count("restart")
                    return True
                case _:
                    self._set_clock(timedelta(seconds=rng.choice((-600, -30, 30, 600, 7200))))
        if self._gates.overrides:
            # The final state is only checked with default gates.
            return True
        world.trace.note("calm")
        world.dice.calm = True
        return False

    def _set_clock(self, by: timedelta) -> None:
        self._world.dice.count("clock set")
        self._world.trace.note(f"the clock is set by {by.total_seconds()} s")
        self._world.epoch += by
        if by < timedelta():
            self._world.set_back_at.append(self._loop.time())
        self._clock.epoch = self._world.epoch

    async def _come_to_rest(self, plane: ControlPlane) -> None:
        world = self._world
        give_up_at = self._loop.time() + _REST_WITHIN_SECONDS
        while True:
            await world.users.make_room()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            left = left_over(plane, world.machine, self._loop.time())
            if not left or self._loop.time() > give_up_at:
                break
        for text in (*left, *world.users.idle_schedules):
            world.checker.problems.add("convergence", text)

    async def _stop(self, plane: ControlPlane) -> bool:
        # With a full disk the last writes are lost, and `stop` reports it with CommitFailed.
        with suppress(CommitFailed):
            try:
                await plane.stop()
            except StoreFailed:
                if not self._world.database.broke:
                    raise
        return True

    # --- end of the process

    def _crash(self, when: str) -> None:
        """Kill the process: nothing that it does from now on has an effect."""
        if self._died.done():
            return
        self._world.dice.count("crash")
        self._world.trace.note(f"crash {when}")
        self._died.set_result(when)
        self._committer.cut()
        self._runtime.disconnect()
        rebooted = self._world.machine.crash()
        self._world.database.die(machine_too=rebooted)

    def _fail(self, why: str) -> None:
        """Record an unrequested exit of the control plane as a problem, unless the disk broke."""
        if self._died.done():
            return
        if not self._world.database.broke:
            self._world.checker.problems.add("keeps running", f"the control plane failed: {why}")
        self._crash(why)

    async def _or_death(self, part: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `part`, or None if the process died meanwhile."""
        task = asyncio.create_task(part)
        waiting: set[asyncio.Future[Any]] = {task, self._died}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._died.done():
            return task.result()
        await self._clean_up()
        return None

    async def _clean_up(self) -> None:
        """Cancel all tasks of a dead process: only the files survive it."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_CLOSE_SECONDS)
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._store.close()
        self._world.database.restore()
