"""Simulation of one seed: an API server, controller replicas and users, until all is at rest."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import ExitStack
from random import Random

from msgspec.structs import replace as with_changes

from onejob.api.service import Service
from onejob.cluster.election import Leadership
from onejob.cluster.manager import DEFAULT_MANAGER
from onejob.control_plane import ControlPlane
from onejob.node.runtime import NodeContext
from onejob.objects.job import Job
from onejob.objects.meta import JOBS
from onejob.planning.leadership import Timing
from onejob.virtual_time import virtual_clock
from sim import workloads
from sim.api import FaultyClient
from sim.checks.history_checker import HistoryChecker
from sim.checks.rest import left_over
from sim.cluster.leases import LeaseCheck
from sim.cluster.replicas import Replica
from sim.history import History, Version
from sim.machine import Machine, MachineRuntime
from sim.network.server import front
from sim.network.stage import Stage
from sim.rights import Rights
from sim.users import Users
from sim.world import Verdict

_HOST = "api.example.com"
_MAX_RUN_SECONDS = 120.0
_REST_WITHIN_SECONDS = 4 * 3600
_LOOK_EVERY_SECONDS = 20.0
_MACHINE_FAULTS = (
    "slow start", "failed start", "hindered start", "lost end", "late report", "ignored SIGTERM",
)  # fmt: skip
_TIMINGS = (Timing(), Timing(6, 5, 0.5), Timing(4, 3, 0.3), Timing(3, 2, 0.2))


class ClusterUsers(Users):
    """Users whose Jobs are run by the replicas."""

    manager = DEFAULT_MANAGER

    async def _create_job(self) -> None:
        document = workloads.job(self._rng, self._name("job"))
        document["spec"]["managedBy"] = DEFAULT_MANAGER
        await self._create(JOBS, self._place(), document)


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    """Simulate the world of a seed and return the verdict."""
    # A server cannot distinguish a request that its sender gave up from others: the world assumes
    # that none arrives after that.
    stage = Stage(seed, often, _MACHINE_FAULTS, late_after_end=False)
    world = _World(stage)
    with ExitStack() as undo:
        _observe_permits(undo, world.leases)
        stage.run(world.live)
    versions = tuple(world.history.in_order())
    return stage.verdict(
        versions=versions, processes=len(world.machine.ran), lives=world.leases.terms
    )


def _observe_permits(undo: ExitStack, check: LeaseCheck) -> None:
    original: Callable[[Leadership], float] = Leadership.seconds

    def seconds(self: Leadership) -> float:
        found = original(self)
        check.see_permit(found, self.term.timing.lease_seconds)
        return found

    Leadership.seconds = seconds  # type: ignore[method-assign]
    undo.callback(setattr, Leadership, "seconds", original)


class _World:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rng = Random(f"{stage.seed} cluster")
        self.machine = Machine(stage.seed, stage.dice)
        self.history = History()
        self.users = ClusterUsers(stage.seed, self.history, stage.trace)
        self.leases = LeaseCheck(stage.problems)
        self._client: FaultyClient
        self._plane: ControlPlane
        #: Maximum difference of the replicas' wall clocks, in seconds.
        self._skew = self._rng.choice((0.0, 0.0, 5.0, 60.0))

    async def live(self) -> None:
        stage, loop = self._stage, asyncio.get_running_loop()
        clock = virtual_clock()

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
            "server", clock, client=self._make_client, runtime=make_runtime
        )
        self.users.meet(plane)
        self.history.follow(plane.store)
        following = asyncio.create_task(self.leases.follow(plane.store))
        await plane.begin()
        stage.network.listeners[_HOST] = front(plane, Random(f"{stage.seed} front"))
        stage.network.on_arrival.append(self.leases.see_arrival)
        timing = self._rng.choice(_TIMINGS)
        replicas = [
            Replica(f"replica-{n}", _HOST, stage, timing, self._draw_skew(), self.leases)
            for n in range(self._rng.randint(2, 3))
        ]
        for replica in replicas:
            replica.start()
        stage.disturb()
        await self._disturb(replicas)
        stage.calm()
        for replica in replicas:
            if not replica.runs:
                replica.start()
        await self._come_to_rest(plane)
        for replica in replicas:
            await replica.stop()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await plane.stop()
        self._check_history()

    def _draw_skew(self) -> float:
        return self._rng.uniform(-self._skew, self._skew)

    def _make_client(self, service: Service) -> FaultyClient:
        """Return the server's own client, without faults.

        It records the deletions shown to the node.
        """
        dice, note = self._stage.dice, self.history.acknowledge
        self._client = FaultyClient(service, dice, Rights(dice), note)
        return self._client

    async def _disturb(self, replicas: list[Replica]) -> None:
        rng, loop = self._rng, asyncio.get_running_loop()
        until = rng.uniform(0.3, 1.0) * _MAX_RUN_SECONDS
        await self.users.begin()
        while loop.time() < until:
            await asyncio.sleep(rng.random() * 4)
            replica = rng.choice(replicas)
            match rng.choices(("users", "kill", "stop", "start"), (80, 4, 4, 12))[0]:
                case "users":
                    await self.users.act()
                case "kill" if replica.runs:
                    await replica.kill()
                case "stop" if replica.runs:
                    await replica.stop()
                case "start" if not replica.runs:
                    replica.start()

    async def _come_to_rest(self, plane: ControlPlane) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _REST_WITHIN_SECONDS
        while True:
            await self.users.make_room()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            left = left_over(plane, self.machine, loop.time())
            if not left or loop.time() > give_up_at:
                break
        for text in left:
            self._stage.problems.add("convergence", text)

    def _check_history(self) -> None:
        checker = HistoryChecker(problems=self._stage.problems)
        # The checks leave Jobs of other managers alone; here the manager is under test.
        self.history.versions = [_as_own(version) for version in self.history.versions]
        checker.check(
            self.history,
            self.machine,
            steady_clock=not self._skew,
            deleted_by_users=self.users.deleted,
            stripped_by_users=self.users.stripped,
        )


def _as_own(version: Version) -> Version:
    job = version.subject
    if not isinstance(job, Job) or job.spec.managed_by != DEFAULT_MANAGER:
        return version
    own = with_changes(job, spec=with_changes(job.spec, managed_by=None))
    return Version(version.revision, version.key, own, version.gone, version.at)
