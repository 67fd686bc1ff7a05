"""Simulated machine that runs the production supervisor, with a record of all attempts."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from onejob.node.process.supervisor_client import Conversation, SupervisorGone
from onejob.node.runtime import AttemptRef
from sim.disk import Disk
from sim.faults import Dice, Trace
from sim.node.files import Files
from sim.node.kernel import Kernel, Run
from sim.node.supervisors import RunningSupervisor, recorded
from sim.node.system_calls import SystemCalls
from sim.node.timeline import Timeline
from sim.node.wire import Wire

if TYPE_CHECKING:
    from sim.machine import Launch

_START_SECONDS = 0.02
_SLOWEST_START_SECONDS = 0.5


class ProcessMachine:
    """Machine that outlives the control plane, and with it the supervisor.

    `epoch` returns the wall-clock time at loop time 0.
    """

    def __init__(
        self, seed: int, dice: Dice, disk: Disk, trace: Trace, folder: Path,
        epoch: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._rng = Random(f"{seed} process machine")
        self._dice = dice
        self._trace = trace
        self._folder = folder / "supervisor"
        self._epoch = epoch
        self.timeline = Timeline()
        trace.now = lambda: self.timeline.now
        self.kernel = Kernel(seed, dice, self.timeline)
        self.kernel.on_child_ended = self._child_ended
        self._files = Files(seed, dice, lambda: disk.full)
        self._calls = SystemCalls(self.kernel, self._files, dice, self._wall_time)
        self._supervisor: RunningSupervisor | None = None
        self._wires: list[Wire] = []
        self.launches: list[Launch] = []
        #: Attempts whose exit code may be lost.
        self.unknowable: set[AttemptRef] = set()
        #: Whether containers have PID namespaces.
        self.isolates = self._rng.random() < 0.5

    @property
    def ran(self) -> dict[AttemptRef, Run]:
        return self.kernel.ran

    @property
    def problems(self) -> list[str]:
        return self.kernel.problems

    @contextmanager
    def installed(self) -> Iterator[None]:
        with self._calls.installed():
            yield

    def attach(self) -> None:
        self.timeline.attach(asyncio.get_running_loop())

    def detach(self) -> None:
        self.timeline.detach()

    async def reach(self, directory: Path) -> tuple[Conversation, None]:
        """Connect to the supervisor like `reach_by_socket`. Raises SupervisorGone."""
        await asyncio.sleep(0.001)
        if self._dice.happens("no supervisor"):
            raise SupervisorGone("the simulation has no process for it")
        supervisor = self._supervisor
        if supervisor is None:
            supervisor = self._supervisor = self._new_supervisor()
        conversation = Conversation()
        wire = Wire(
            supervisor.table,
            self.timeline,
            self._dice,
            self._rng,
            conversation,
            supervisor,
            self._note_repeated,
        )
        self._wires.append(wire)
        supervisor.listener.sock.waiting.append(wire.socket)
        supervisor.wake()
        return conversation, None

    def crash(self) -> bool:
        """Kill the control plane, and perhaps the machine. Return whether the machine rebooted."""
        for wire in self._wires:
            wire.cut()
        self._wires.clear()
        rebooted = self._dice.happens("reboot")
        if rebooted:
            self._reboot()
        return rebooted

    def left_over(self) -> list[str]:
        return [f"{text} still runs" for text in self.kernel.survivors()]

    def _reboot(self) -> None:
        self._trace.note("the machine goes down")
        before = recorded(self._folder).claimed
        self._files.lose_power()
        lost = before - recorded(self._folder).claimed
        # Never removed: the machine may go down again before the first loss is resolved.
        self.kernel.restarts_without_record |= {ref for ref in lost if ref.attempt}
        self.kernel.reboot()
        if self._supervisor is not None:
            self._supervisor.end("goes down with the machine")
        self._note_unknowable()

    def _new_supervisor(self) -> RunningSupervisor:
        supervisor = RunningSupervisor(
            self._folder,
            self._calls,
            self.timeline,
            self._dice,
            self._trace,
            lambda: self._supervisor_ended(supervisor),
            self.problems.append,
        )
        delay = _START_SECONDS + self._rng.random() * _SLOWEST_START_SECONDS

        def start() -> None:
            # A child of the last supervisor may have begun its program after that one died.
            self._note_unknowable()
            supervisor.start()

        self.timeline.after(delay, start)
        return supervisor

    def _supervisor_ended(self, supervisor: RunningSupervisor) -> None:
        self._files.close_all()
        self.kernel.orphan(supervisor)
        if self._supervisor is supervisor:
            self._supervisor = None
        self._note_unknowable()

    def _note_unknowable(self) -> None:
        """Add the attempts without an end in the journal.

        They were running, or their end was not written yet.
        """
        self.unknowable |= self.kernel.ran.keys() - recorded(self._folder).ended

    def _note_repeated(self, request: bytes) -> None:
        """Note the claims of a request that arrives twice, which today's server does not send.

        If the first spawn is hindered and the second is not, the server gets both reports, and
        takes the container of a Pod that is being deleted for never started.
        """
        for item in json.loads(request)["items"]:
            self.unknowable.add(AttemptRef(*item["claim"]))

    def _child_ended(self, parent: object) -> None:
        if parent is self._supervisor and self._supervisor is not None:
            self._supervisor.child_ended()

    def _wall_time(self) -> float:
        return (self._epoch() + timedelta(seconds=self.timeline.now)).timestamp()
