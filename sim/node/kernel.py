"""Simulated kernel: processes, pids and signals.

Pids are few and therefore reused, also by foreign processes that must not receive signals. A
process runs independently of its parent: it ends by itself, by a signal, or with the machine.
"""

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from onejob.node.runtime import AttemptRef
from sim.faults import Dice
from sim.node.descriptors import Pipe
from sim.node.timeline import Timeline
from sim.workloads import EXIT_CODES, never_ends

TICKS_PER_SECOND = 100
_PIDS = range(300, 420)
#: Seconds before a pid is reused, as the supervisor assumes.
_PID_RESTS_SECONDS = 21.0
_MAX_STRAY_SECONDS = 60.0
_MAX_UNRELATED_PROCESS_SECONDS = 120.0

Kind = Literal["command", "init", "stray", "stranger"]


@dataclass(eq=False)
class Process:
    """A simulated process, also a zombie."""

    pid: int
    kind: Kind
    began_at: float
    ticks: int
    #: Pid of the session leader.
    session: int
    #: Parent: a supervisor, another process, or None for init.
    parent: object | None
    ref: AttemptRef | None = None
    mark: int = 0
    hostname: str = ""
    #: Pipes that it can write to.
    pipes: list[Pipe] = field(default_factory=list)
    #: Status that `waitpid` returns; None while the process lives.
    status: int | None = None
    on_end: Callable[[int], None] = lambda status: None
    terminating: bool = False
    #: Killed when its parent ends.
    dies_with_parent: bool = False


@dataclass
class Run:
    """One attempt whose program was started."""

    ref: AttemptRef
    process: Process
    #: Exit code as in a container status; None until it has ended.
    code: int | None = None

    def state(self, now: float) -> str:
        return "ended" if self.code is not None else "running"


class Kernel:
    """Process table, pids and signals of the machine."""

    def __init__(self, seed: int, dice: Dice, timeline: Timeline) -> None:
        self._rng = Random(f"{seed} kernel")
        self._dice = dice
        self.timeline = timeline
        self._failing = self._rng.choice((0.0, 0.1, 0.4))
        self._longest = self._rng.choice((0.5, 4.0, 20.0))
        self._next_pid = 0
        #: Time of the last use of each pid.
        self._used: dict[int, float] = {}
        self.processes: dict[int, Process] = {}
        #: All attempts that ran.
        self.ran: dict[AttemptRef, Run] = {}
        #: Restarted containers without a record: the number of their next attempt is derived from
        #: the records, and may therefore be used again.
        self.restarts_without_record: set[AttemptRef] = set()
        self.problems: list[str] = []
        self.boots = 1
        #: Called with the parent when a child of a supervisor has ended.
        self.on_child_ended: Callable[[object], None] = lambda parent: None
        self._strangers()

    # --- creating and finding processes

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def ticks_now(self) -> int:
        return int(self.timeline.now * TICKS_PER_SECOND)

    def make(self, kind: Kind, parent: object | None, *, session: int = 0) -> Process:
        """Create a process. Raises OSError."""
        pid = self._free_pid()
        now = self.timeline.now
        process = Process(pid, kind, now, self.ticks_now(), session or pid, parent)
        self.processes[pid] = process
        self._used[pid] = now
        return process

    def refuse_fork(self) -> None:
        """Raise OSError on some calls: the process limit or the memory is exhausted."""
        if self._dice.happens("failed fork"):
            number = self._rng.choice((errno.EAGAIN, errno.ENOMEM))
            raise OSError(number, os.strerror(number))

    def alive(self, pid: int) -> Process | None:
        process = self.processes.get(pid)
        return process if process is not None and process.status is None else None

    def children(self, parent: object) -> list[int]:
        return [one.pid for one in self.processes.values() if one.parent is parent]

    def wait(self, parent: object) -> tuple[int, int]:
        """Reap a child like `waitpid(-1, WNOHANG)`. Raises ChildProcessError."""
        own = [one for one in self.processes.values() if one.parent is parent]
        if not own:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        for process in own:
            if process.status is not None:
                del self.processes[process.pid]
                return process.pid, process.status
        return 0, 0

    def _free_pid(self) -> int:
        now = self.timeline.now
        for _ in _PIDS:
            self._next_pid = (self._next_pid + 1) % len(_PIDS)
            pid = _PIDS[self._next_pid]
            if pid not in self.processes and now - self._used.get(pid, -1e9) > _PID_RESTS_SECONDS:
                return pid
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    # --- programs

    def run_program(self, process: Process, ref: AttemptRef) -> None:
        """Start the program of an attempt in this process."""
        if ref in self.ran and ref not in self.restarts_without_record:
            self.problems.append(f"{ref} was started a second time")
        for other in self.ran.values():
            same = (other.ref.uid, other.ref.container) == (ref.uid, ref.container)
            if same and other.code is None:
                self.problems.append(f"{ref} was started while {other.ref} runs")
        process.ref = ref
        self.ran[ref] = Run(ref, process)
        if never_ends(process.hostname):
            return
        duration = self._rng.choice((0.0, self._rng.random() * self._longest))
        code = 0
        if not self._dice.calm and self._rng.random() < self._failing:
            code = self._rng.choice(EXIT_CODES)
        self.timeline.after(duration, lambda: self.end(process, code << 8))

    def end(self, process: Process, status: int) -> None:
        """End the process with a status as returned by `waitpid`."""
        if process.status is not None:
            return
        process.status = status
        ref = process.ref
        if ref is not None and self.ran[ref].process is process:
            self.ran[ref].code = _code(status)
        for pipe in process.pipes:
            pipe.writers -= 1
        process.pipes = []
        process.on_end(status)
        if process.kind == "command" and isinstance(process.parent, Process) is False:
            self._leave_stray(process)
        if process.parent is None or isinstance(process.parent, Process):
            self.processes.pop(process.pid, None)
        else:
            self.on_child_ended(process.parent)

    def _leave_stray(self, process: Process) -> None:
        """Leave a child of the process running in its session, in some cases."""
        if process.parent is None or not self._dice.happens("left a stray"):
            return
        try:
            stray = self.make("stray", process.parent, session=process.session)
        except OSError:
            return
        stray.hostname = process.hostname
        lives = self._rng.random() * _MAX_STRAY_SECONDS
        self.timeline.after(lives, lambda: self.end(stray, 0))

    def _strangers(self) -> None:
        """Create a foreign process, now and again every few seconds."""
        self.timeline.after(self._rng.random() * 10, self._strangers)
        try:
            stranger = self.make("stranger", None)
        except OSError:
            return
        lives = self._rng.random() * _MAX_UNRELATED_PROCESS_SECONDS
        self.timeline.after(lives, lambda: self.end(stranger, 0))

    # --- signals

    def kill(self, pid: int, number: int) -> None:
        """Send a signal. Raises ProcessLookupError."""
        process = self.processes.get(pid)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        self._signal(process, number)

    def kill_group(self, group: int, number: int) -> None:
        """Send a signal to a process group, which equals a session here.

        Raises ProcessLookupError.
        """
        members = [one for one in list(self.processes.values()) if one.session == group]
        if not members:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        for process in members:
            self._signal(process, number)

    def _signal(self, process: Process, number: int) -> None:
        if process.kind == "stranger":
            self.problems.append(f"a stranger was sent signal {number}")
        if process.status is not None:
            return
        if number == signal.SIGKILL:
            self.end(process, signal.SIGKILL)
        elif process.kind == "init":
            # Init forwards signals to its command.
            for other in list(self.processes.values()):
                if other.parent is process:
                    self._signal(other, number)
        elif not process.terminating:
            process.terminating = True
            if not self._dice.happens("ignored SIGTERM"):
                delay = self._rng.choice((0.0, 0.1))
                self.timeline.after(delay, lambda: self.end(process, number))

    # --- the machine and the supervisors

    def orphan(self, parent: object) -> None:
        """Reparent the children of a dead supervisor to init, which reaps them."""
        for process in list(self.processes.values()):
            if process.parent is parent:
                process.parent = None
                if process.status is not None:
                    del self.processes[process.pid]
                elif process.dies_with_parent:
                    self.end(process, signal.SIGKILL)

    def reboot(self) -> None:
        self.boots += 1
        for process in list(self.processes.values()):
            process.parent = None
            process.on_end = lambda status: None
            self.end(process, signal.SIGKILL)
        self.processes.clear()
        self._used.clear()

    def survivors(self) -> list[str]:
        """Return descriptions of all running processes except foreign ones."""
        return [
            f"{one.ref or one.kind} (pid {one.pid})"
            for one in self.processes.values()
            if one.kind != "stranger" and one.status is None
        ]


def _code(status: int) -> int:
    number = os.waitstatus_to_exitcode(status)
    return number if number >= 0 else 128 - number
