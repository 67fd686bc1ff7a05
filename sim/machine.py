"""Simulated machine that runs containers; its processes survive the control plane.

`Machine` outlives the control plane, and `MachineRuntime` is the view that one process of the
control plane has of it. Every started process is recorded, so that the status in the API can be
compared with the programs that really ran.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Literal

from onejob.clock import Clock
from onejob.node.runtime import (
    AttemptRef,
    CommandResult,
    Deliver,
    Ended,
    Fetch,
    Lost,
    RecoveredState,
    Runtime,
    RuntimeEvent,
    RuntimeTraits,
    StartBlocked,
    Started,
    Starting,
)
from onejob.objects.meta import Key
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.lifecycle import Exit
from sim.faults import Dice
from sim.workloads import EXIT_CODES, never_ends

_SLOWEST_START_SECONDS = 3.0
_LATEST_REPORT_SECONDS = 2.0
#: Probability that a reboot loses the record of a running process.
_UNRECORDED = 0.3
_SIGTERM, _SIGKILL = 15, 9


@dataclass
class Process:
    """One attempt of a container. Times are those of the event loop."""

    ref: AttemptRef
    begins_at: float
    ends_at: float
    code: int
    #: The program could not be started.
    failed_start: bool = False
    #: The exit status is lost for good.
    lost: bool = False
    #: Killed for lack of memory (OOM).
    starves: bool = False
    #: Ends because it was stopped.
    stopping: bool = False

    def state(self, now: float) -> Literal["asked", "running", "ended"]:
        if now < self.begins_at:
            return "asked"
        return "running" if now < self.ends_at else "ended"


@dataclass(frozen=True)
class Launch:
    """Request to start a container, checked once the whole history is available."""

    ref: AttemptRef
    key: Key
    at: float
    #: Newest durable revision at that time.
    revision: int
    #: The node had already seen the deletion of the Pod.
    deletion_known: bool


class Machine:
    """Simulated machine: the containers that run, or ever ran, on it."""

    def __init__(self, seed: int, dice: Dice) -> None:
        self._dice = dice
        self._rng = Random(f"{seed} machine")
        self._failing = self._rng.choice((0.0, 0.1, 0.4))
        self._longest = self._rng.choice((0.5, 4.0, 20.0))
        #: Attempts in the machine's records, until they are released.
        self.processes: dict[AttemptRef, Process] = {}
        #: All attempts that ever ran.
        self.ran: dict[AttemptRef, Process] = {}
        self.launches: list[Launch] = []
        self._restarts_without_record: set[AttemptRef] = set()
        self.problems: list[str] = []
        #: The record keeper survives a reboot and reports it to each process of the control plane.
        self.rebooted = False

    @property
    def unknowable(self) -> set[AttemptRef]:
        return {ref for ref, process in self.ran.items() if process.lost}

    def left_over(self) -> Sequence[str]:
        return ()

    def crash(self) -> bool:
        """Kill the control plane, and perhaps the machine. Return whether the machine rebooted.

        Requests in flight may be lost.
        """
        now = asyncio.get_running_loop().time()
        for process in list(self.processes.values()):
            if process.state(now) == "asked" and self._dice.happens("lost request"):
                del self.processes[process.ref]
                del self.ran[process.ref]
        rebooted = self._dice.happens("reboot")
        if rebooted:
            self._reboot(now)
        return rebooted

    def _reboot(self, now: float) -> None:
        """End all processes and lose the records that were not on disk yet."""
        self.rebooted = True
        running = [one for one in self.processes.values() if one.state(now) != "ended"]
        for process in running:
            process.begins_at = min(process.begins_at, now)
            process.ends_at, process.lost = now, True
        # Records are written in order: if one is missing, all later ones are.
        while running and self._rng.random() < _UNRECORDED:
            ref = running.pop().ref
            del self.processes[ref]
            if ref.attempt:
                # The number of a restarted container's next attempt is derived from the records,
                # and may therefore be this one again.
                self._restarts_without_record.add(ref)

    def begin(self, ref: AttemptRef, now: float, *, never_ends: bool) -> Process:
        if ref in self.ran and ref not in self._restarts_without_record:
            self.problems.append(f"{ref} was started a second time")
        for other in self.processes.values():
            same = (other.ref.uid, other.ref.container) == (ref.uid, ref.container)
            if same and other.state(now) != "ended":
                self.problems.append(f"{ref} was started while {other.ref} runs")
        begins_at = now
        if self._dice.happens("slow start"):
            begins_at += self._dice.up_to("slow start", _SLOWEST_START_SECONDS)
        duration = math.inf if never_ends else self._duration()
        process = Process(ref, begins_at, begins_at + duration, self._exit_code())
        if self._dice.happens("failed start"):
            process.failed_start, process.code, process.ends_at = True, 128, begins_at
        elif self._dice.happens("out of memory"):
            process.starves, process.code = True, 128 + _SIGKILL
        process.lost = self._dice.happens("lost end")
        self.processes[ref] = self.ran[ref] = process
        return process

    def stop(self, process: Process, grace_seconds: float, now: float) -> None:
        if process.state(now) == "ended" or process.stopping or process.failed_start:
            return
        # A process that has not begun yet begins first: requests are carried out in their order.
        from_now = max(now, process.begins_at)
        code, ends_at = 128 + _SIGTERM, from_now + self._rng.choice((0.0, 0.1))
        if self._dice.happens("ignored SIGTERM"):
            code, ends_at = 128 + _SIGKILL, from_now + grace_seconds
        if ends_at < process.ends_at:
            process.code, process.ends_at, process.stopping = code, ends_at, True
            process.starves = False

    def forget(self, uid: str, now: float) -> None:
        for ref in [ref for ref in self.processes if ref.uid == uid]:
            process = self.processes.pop(ref)
            if process.begins_at > now:
                del self.ran[ref]
            process.ends_at = min(process.ends_at, now)

    def _duration(self) -> float:
        return self._rng.choice((0.0, self._rng.random() * self._longest))

    def _exit_code(self) -> int:
        if self._dice.calm or self._rng.random() >= self._failing:
            return 0
        return self._rng.choice(EXIT_CODES)


class MachineRuntime(Runtime):
    """Connection of one process of the control plane to its machine."""

    name = "machine"
    traits = RuntimeTraits()

    def __init__(
        self,
        machine: Machine,
        dice: Dice,
        clock: Clock,
        revision: Callable[[], int],
        deletion_known: Callable[[str], bool],
    ) -> None:
        self._machine = machine
        self._dice = dice
        self._clock = clock
        self._revision = revision
        self._deletion_known = deletion_known
        self._deliver: Deliver
        self._disconnected = False
        self._reported: set[AttemptRef] = set()

    def disconnect(self) -> None:
        """Cut off a dead control plane: it sends and receives nothing more."""
        self._disconnected = True

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        self._deliver = deliver
        events: list[RuntimeEvent] = []
        for process in self._machine.processes.values():
            state = process.state(self._now())
            if state == "ended":
                events.append(self._end(process))
                self._reported.add(process.ref)
            else:
                running = state == "running"
                events.append(self._start(process) if running else Starting(process.ref))
                self._follow(process)
        return RecoveredState(events, self._machine.rebooted)

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        if self._disconnected:
            return
        ref = AttemptRef(pod.uid, container.name, attempt)
        known = self._machine.processes.get(ref)
        if known is not None:
            return
        self._machine.launches.append(
            Launch(ref, pod.key, self._now(), self._revision(), self._deletion_known(pod.uid))
        )
        if self._dice.happens("hindered start"):
            event = StartBlocked(ref, "ContainerCreating", "the simulation hinders it")
            asyncio.get_running_loop().call_soon(self._tell, event)
            return
        self._follow(self._machine.begin(ref, self._now(), never_ends=never_ends(pod.key.name)))

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        process = self._machine.processes.get(ref)
        if process is not None and not self._disconnected:
            self._machine.stop(process, grace_seconds, self._now())
            self._follow(process)

    def release(self, uid: str) -> None:
        if not self._disconnected:
            self._machine.forget(uid, self._now())

    def discard(self, uid: str) -> None:
        if not self._disconnected:
            self._machine.forget(uid, self._now())

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        return CommandResult(0, "")

    def is_silent(self, ref: AttemptRef) -> bool:
        return True

    def running(self, ref: AttemptRef) -> bool:
        process = self._machine.processes.get(ref)
        return process is not None and process.state(self._now()) == "running"

    async def close(self, *, end_pods: bool) -> None:
        self._disconnected = True

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _follow(self, process: Process) -> None:
        """Schedule the reports of the attempt's start and end.

        May be called again after the times have changed: each report is sent once.
        """
        loop = asyncio.get_running_loop()
        delay = 0.0
        if self._dice.happens("late report"):
            delay = self._dice.up_to("late report", _LATEST_REPORT_SECONDS)
        if not process.failed_start and process.begins_at >= loop.time():
            loop.call_at(process.begins_at + delay, self._report_start, process)
        if process.ends_at < math.inf:
            loop.call_at(process.ends_at + delay, self._report_end, process)

    def _report_start(self, process: Process) -> None:
        if process.ref not in self._reported and process.ref in self._machine.processes:
            self._tell(self._start(process))

    def _report_end(self, process: Process) -> None:
        if process.ref in self._reported or process.state(self._now()) != "ended":
            return
        if process.ref in self._machine.processes:
            self._reported.add(process.ref)
            self._tell(self._end(process))

    def _tell(self, event: RuntimeEvent) -> None:
        if not self._disconnected:
            self._deliver([event])

    def _start(self, process: Process) -> RuntimeEvent:
        return Started(process.ref, self._moment(process.begins_at))

    def _end(self, process: Process) -> RuntimeEvent:
        ended_at = self._moment(process.ends_at)
        if process.failed_start:
            return Ended(
                process.ref,
                Exit(128, ended_at, reason="ContainerCannotRun", message="the simulation says so"),
            )
        if process.lost:
            return Lost(process.ref, ended_at)
        signal = process.code - 128 if process.code > 128 else 0
        began_at = self._moment(process.begins_at)
        reason = "OOMKilled" if process.starves else ""
        return Ended(process.ref, Exit(process.code, ended_at, began_at, signal, reason))

    def _moment(self, at: float) -> datetime:
        return self._clock.now() + timedelta(seconds=at - self._now())
