"""Simulated system calls for the modules of the supervisor.

They are patched in from outside, as mutants are: production code has no branch for them, and a
renamed target raises an error. A call that is not simulated raises; only calls that read, and calls
on the supervisor's own files, reach the real machine.
"""

import errno
import json
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from onejob.node.runtime import AttemptRef
from onejob.node.supervisor import (
    capture,
    commands,
    connections,
    event_batching,
    init,
    journal,
    linux,
    loop,
    main,
    pid_namespaces,
    processes,
    record_file,
    reusable_inits,
    spawn,
)
from onejob.node.supervisor.failures import SetupFailed
from onejob.node.supervisor.journal import SLOT_BYTES, Claim, Journal
from onejob.node.supervisor.pressure import PROCESSES
from onejob.node.supervisor.record_file import slot_text
from onejob.node.supervisor.usage import Usage
from sim.faults import Dice
from sim.node.descriptors import Epoll, Nothing, Pipe, PipeReader, Table
from sim.node.files import Files
from sim.node.kernel import TICKS_PER_SECOND, Kernel, Process
from sim.workloads import never_ends

_ONLY_READ = frozenset({"path", "strerror", "waitstatus_to_exitcode", "geteuid"})
#: Seconds in which a forked child records its start: fewer than a new supervisor takes to begin.
_SLOWEST_CHILD_SECONDS = 0.01
_DESCRIPTOR_LIMIT = 1 << 20
_SUPERVISOR_PID = 0
#: Memory of the supervisor, and usage of every other process.
_SUPERVISOR_USAGE = Usage(8_000, 10)
_USAGE = Usage(50_000, 10)
_RUSAGE = SimpleNamespace(ru_maxrss=_USAGE.peak_kib, ru_utime=0.01, ru_stime=0.0)


class SupervisorKilled(BaseException):
    """Raised out of a system call of a supervisor that was killed."""


class Caller(Protocol):
    """The supervisor whose code runs."""

    table: Table
    epoll: Epoll

    def at_call(self) -> None:
        """Kill the supervisor at this call, with some probability. Raises SupervisorKilled."""

    def said(self, text: str) -> None:
        """Record a line of its output."""


class SystemCalls:
    """System calls of the supervisor whose code runs (`caller`).

    `wall_time` returns the time of its clock.
    """

    def __init__(
        self, kernel: Kernel, files: Files, dice: Dice, wall_time: Callable[[], float]
    ) -> None:
        self._kernel = kernel
        self._files = files
        self._dice = dice
        self._wall_time = wall_time
        self._caller: Caller | None = None
        self.os = _Os(self, kernel, files)

    @property
    def caller(self) -> Caller:
        assert self._caller is not None, "only a supervisor calls"
        return self._caller

    @contextmanager
    def running(self, caller: Caller) -> Iterator[None]:
        self._caller = caller
        try:
            yield
        finally:
            self._caller = None

    def enter(self) -> Table:
        self.caller.at_call()
        return self.caller.table

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as undo:
            for module in (
                capture, commands, connections, init, journal, loop, main, processes, record_file,
                reusable_inits,
            ):  # fmt: skip
                _put(undo, module, "os", self.os)
            time = SimpleNamespace(
                monotonic=lambda: self._kernel.timeline.now,
                time_ns=lambda: int(self._wall_time() * 1e9),
                sleep=lambda seconds: None,
                strftime=lambda text: "",
            )
            for module in (loop, main):
                _put(undo, module, "time", time)
            _put(undo, loop, "select", SimpleNamespace(epoll=self._epoll, EPOLLIN=select.EPOLLIN,
                                                       EPOLLOUT=select.EPOLLOUT))  # fmt: skip
            _put(undo, connections, "socket", _Sockets(self))
            limit = SimpleNamespace(RLIMIT_NOFILE=0, getrlimit=lambda kind: (_DESCRIPTOR_LIMIT, 0))
            _put(undo, main, "resource", limit)
            _put(undo, main, "wait_until_gone", self._wait_until_gone)
            _put(undo, main, "sample", _sample)
            # Few containers start at a time here.
            _put(undo, event_batching, "MIN_BATCH", 1)
            for name, call in self._of_spawn().items():
                _put(undo, spawn, name, call)
            for name, call in self._of_linux().items():
                _put(undo, linux, name, call)
            _put(undo, pid_namespaces, "problem", lambda: "")
            _put(undo, reusable_inits, "fork_init", self._fork_reusable_init)
            # A request is not decoded here: only its claim matters.
            _put(undo, main, "encoded", _encoded)
            yield

    def _epoll(self) -> Epoll:
        caller = self.caller
        caller.epoll = Epoll(caller.table)
        return caller.epoll

    def _wait_until_gone(self, pid: int) -> None:
        assert self._kernel.alive(pid) is None, "what is killed dies at once here"

    # --- replacements of functions of `linux`

    def _of_linux(self) -> dict[str, Callable[..., Any]]:
        kernel = self._kernel
        return {
            "boot_id": lambda: kernel.boot_id,
            "ticks_now": kernel.ticks_now,
            "processes": lambda: list(kernel.processes),
            "began_at": self._began_at,
            "session_of": self._session_of,
            "children": self._children,
        }

    def _began_at(self, pid: int, ticks: int) -> bool:
        process = self._kernel.alive(pid)
        return process is not None and abs(process.ticks - ticks) < 10 * TICKS_PER_SECOND

    def _session_of(self, pid: int) -> int:
        process = self._kernel.processes.get(pid)
        return 0 if process is None else process.session

    def _children(self, pid: int = 0) -> list[int]:
        if not pid:
            return self._kernel.children(self.caller)
        process = self._kernel.processes.get(pid)
        return [] if process is None else self._kernel.children(process)

    # --- replacements of functions of `spawn`

    def _of_spawn(self) -> dict[str, Callable[..., Any]]:
        return {
            "spawn_plain": self._spawn_plain,
            "fork_init": self._fork_init,
            "find_marked": self._find_marked,
            "hostname_of": self._hostname_of,
            "can_isolate": lambda: True,
        }

    def _find_marked(self, wanted: int) -> int:
        for process in self._kernel.processes.values():
            alive = process.status is None and process.session == process.pid
            if process.mark == wanted and alive:
                return process.pid
        return 0

    def _hostname_of(self, pid: int) -> str | None:
        process = self._kernel.processes.get(pid)
        return None if process is None else process.hostname

    def _spawn_plain(self, request: spawn.Request, streams: spawn.Streams) -> int:
        table = self.enter()
        self._kernel.refuse_fork()
        if self._dice.happens("failed start"):
            raise SetupFailed("StartError", "the simulation says so")
        process = self._kernel.make("command", self.caller)
        process.mark = spawn.mark(request)
        process.hostname = request["env"].get("HOSTNAME", "")
        _give(table, process, streams.output, streams.errors)
        self._kernel.run_program(process, AttemptRef(*request["claim"]))
        if not never_ends(process.hostname) and self._dice.happens("quick end"):
            # Before the supervisor goes on to the next request.
            self._kernel.end(process, 0)
        self.enter()
        return process.pid

    def _fork_init(
        self, request: spawn.Request, streams: spawn.Streams, journal: Journal, status: int
    ) -> int:
        table = self.enter()
        self._kernel.refuse_fork()
        child = _InitChild(self._kernel, self._dice, table, self.caller, request, streams, status)
        child.open_journal(journal)
        delay = self._dice.up_to("slow start", _SLOWEST_CHILD_SECONDS)
        self._kernel.timeline.after(delay, child.begin)
        self.enter()
        return child.process.pid

    def _fork_reusable_init(self, reports: int) -> tuple[int, "_ReusableInit"]:
        table = self.enter()
        self._kernel.refuse_fork()
        made = _ReusableInit(self._kernel, self._dice, table, self.caller, reports)
        self.enter()
        return made.process.pid, made


def _sample(pid: int) -> Usage:
    return _SUPERVISOR_USAGE if pid == _SUPERVISOR_PID else _USAGE


def _encoded(request: spawn.Request) -> bytes | None:
    """Return what an init needs of a request here; None if it needs an init of its own."""
    if request.get("pids") != "container" or spawn.changes_init(request):
        return None
    return json.dumps([request["claim"], request["env"].get("HOSTNAME", "")]).encode()


class _ReusableInit:
    """An init that runs one container after the other; also the supervisor's channel to it."""

    def __init__(
        self, kernel: Kernel, dice: Dice, table: Table, parent: Caller, reports: int
    ) -> None:
        self._kernel = kernel
        self._dice = dice
        self._table = table
        self.process = kernel.make("init", parent)
        self.process.dies_with_parent = True
        self.process.on_end = self._ended
        _give(table, self.process, reports)
        self._reports = table.pipe_of(reports)
        self._command: Process | None = None
        self._closed = False

    def send(self, number: int, request: bytes, streams: spawn.Streams) -> None:
        if self.process.status is not None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        claim, hostname = json.loads(request)
        _give(self._table, self.process, streams.output)
        output = self._table.pipe_of(streams.output)
        delay = self._dice.up_to("slow start", _SLOWEST_CHILD_SECONDS)
        begin = partial(self._begin, number, AttemptRef(*claim), hostname, output)
        self._kernel.timeline.after(delay, begin)

    def close(self) -> None:
        assert not self._closed, "a channel is closed once"
        self._closed = True

    def _begin(self, number: int, ref: AttemptRef, hostname: str, output: Pipe | None) -> None:
        if self.process.status is not None:
            return
        problem: list[str] | None = None
        if self._dice.happens("failed start"):
            problem = ["StartError", "the simulation says so", ""]
        else:
            try:
                self._kernel.refuse_fork()
                self._command = self._kernel.make("command", self.process)
            except OSError:
                problem = ["ContainerCannotRun", "no more processes", PROCESSES]
        if problem is not None:
            self._report(b"F", number, text=json.dumps(problem).encode())
            self._kernel.end(self.process, spawn.NOT_BEGUN << 8)
            return
        assert self._command is not None
        if output is not None:
            # Init closes its own copy.
            self.process.pipes.remove(output)
            self._command.pipes.append(output)
        self._command.hostname = hostname
        self._command.on_end = partial(self._command_ended, number)
        if never_ends(hostname) or not self._dice.happens("quick end"):
            self._report(b"B", number)
        self._kernel.run_program(self._command, ref)

    def _command_ended(self, number: int, status: int) -> None:
        self._command = None
        if self.process.status is not None:
            return
        left = self._dice.happens("left a stray")
        self._report(b"L" if left else b"E", number, status)
        if left:
            self._kernel.end(self.process, 0)

    def _report(self, kind: bytes, number: int, status: int = 0, text: bytes = b"") -> None:
        assert self._reports is not None
        at = int(self._kernel.timeline.now * 1e9)
        self._reports.data += reusable_inits._REPORT.pack(kind, number, status, at, 0, 0, len(text))
        self._reports.data += text
        # Wake the supervisor, which polls the pipe.
        self._kernel.on_child_ended(self.process.parent)

    def _ended(self, status: int) -> None:
        if self._command is not None:
            self._kernel.end(self._command, 9)


class _InitChild:
    """A forked child, with its copies of the supervisor's memory and descriptors."""

    def __init__(
        self,
        kernel: Kernel,
        dice: Dice,
        table: Table,
        parent: Caller,
        request: spawn.Request,
        streams: spawn.Streams,
        status: int,
    ) -> None:
        self._kernel = kernel
        self._dice = dice
        self._ref = AttemptRef(*request["claim"])
        self._output = table.pipe_of(streams.output)
        self._report = table.pipe_of(streams.report)
        self._status = table.pipe_of(status)
        self.process = kernel.make("init", parent)
        self.process.hostname = request["env"].get("HOSTNAME", "")
        _give(table, self.process, streams.output, streams.report, status)
        self.process.on_end = self._ended
        self._command: Process | None = None
        self._file = -1
        self._slot = self._number = 0

    def open_journal(self, journal: Journal) -> None:
        attempt = journal.find(Claim(*self._ref))
        assert attempt is not None, "only what is claimed is started"
        self._slot, self._number = attempt.slot, attempt.number
        self._file = os.dup(journal.descriptor)

    def begin(self) -> None:
        try:
            if self.process.status is None:
                self._record_start()
                self._become_init()
        finally:
            os.close(self._file)

    def _record_start(self) -> None:
        kernel = self._kernel
        start = {"k": "start", "n": self._number, "pid": self.process.pid,
                 "ticks": kernel.ticks_now(), "at": kernel.timeline.now}  # fmt: skip
        text = slot_text(json.dumps(start).encode(), SLOT_BYTES)
        os.pwrite(self._file, text, self._slot)

    def _become_init(self) -> None:
        problem: list[str] | None = None
        if self._dice.happens("failed start"):
            problem = ["StartError", "the simulation says so", ""]
        elif self._dice.happens("failed fork"):
            problem = ["ContainerCannotRun", "no more processes", PROCESSES]
        if problem is None:
            try:
                self._command = self._kernel.make("command", self.process)
            except OSError:
                problem = ["ContainerCannotRun", "no more pids", PROCESSES]
        assert self._report is not None
        if problem is not None:
            self._report.data += json.dumps(problem).encode()
            self._kernel.end(self.process, spawn.NOT_BEGUN << 8)
            return
        # The report pipe closes when the program begins.
        self.process.pipes.remove(self._report)
        self._report.writers -= 1
        assert self._command is not None
        if self._output is not None:
            self._output.writers += 1
            self._command.pipes.append(self._output)
        self._command.hostname = self.process.hostname
        self._command.on_end = self._command_ended
        self._kernel.run_program(self._command, self._ref)
        # Wake the supervisor, which polls the report pipe.
        self._kernel.on_child_ended(self.process.parent)

    def _command_ended(self, status: int) -> None:
        if self._status is not None and self.process.status is None:
            self._status.data += init._END.pack(status, *_USAGE)
        self._kernel.end(self.process, 0)

    def _ended(self, status: int) -> None:
        if self._command is not None:
            self._kernel.end(self._command, 9)


class _Os:
    """The functions of `os` that the supervisor uses."""

    def __init__(self, calls: SystemCalls, kernel: Kernel, files: Files) -> None:
        self._calls = calls
        self._kernel = kernel
        self._files = files

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name in _ONLY_READ or isinstance(found, (int, str)):
            return found
        raise AttributeError(f"os.{name} is not simulated")

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        table = self._calls.enter()
        if path == os.devnull:
            return table.add(Nothing())
        return self._files.open(path, flags, mode)

    def close(self, fd: int) -> None:
        table = self._calls.enter()
        if fd in self._files:
            self._files.close(fd)
        else:
            table.close(fd)

    def pipe2(self, flags: int) -> tuple[int, int]:
        return self._calls.enter().pipe()

    def read(self, fd: int, size: int) -> bytes:
        reader = self._calls.enter().get(fd)
        assert isinstance(reader, PipeReader)
        return reader.read(size)

    def write(self, fd: int, data: bytes) -> int:
        assert fd == 2, "only to its output"
        self._calls.caller.said(data.decode())
        return len(data)

    def stat(self, path: str) -> Any:
        """Return fixed numbers for its folder and its PID namespace.

        Numbers that differ from run to run would change the length of records.
        """
        return SimpleNamespace(st_dev=1, st_ino=len(path) if path.startswith("/proc") else 1)

    def fstat(self, fd: int) -> Any:
        assert fd == 2, "only of its output"
        return SimpleNamespace(st_size=0)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._calls.enter()
        return os.pread(fd, size, offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._calls.enter()
        written = self._files.pwrite(fd, data, offset)
        self._calls.enter()
        return written

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        self._calls.enter()
        self._files.allocate(fd, offset, size)

    def fsync(self, fd: int) -> None:
        self._calls.enter()
        self._files.sync(fd)

    def rename(self, source: str, target: str) -> None:
        self._calls.enter()
        self._files.rename(source, target)
        self._calls.enter()

    def unlink(self, path: str) -> None:
        self._calls.enter()
        os.unlink(path)

    def kill(self, pid: int, number: int) -> None:
        self._calls.enter()
        self._kernel.kill(pid, number)

    def killpg(self, group: int, number: int) -> None:
        self._calls.enter()
        self._kernel.kill_group(group, number)

    def getpid(self) -> int:
        return _SUPERVISOR_PID

    def wait4(self, pid: int, options: int) -> tuple[int, int, Any]:
        assert pid == -1, "any child"
        self._calls.enter()
        found = self._kernel.wait(self._calls.caller)
        self._calls.enter()
        return *found, _RUSAGE

    def set_blocking(self, fd: int, wanted: bool) -> None:
        """Do nothing: no call blocks here."""

    def set_inheritable(self, fd: int, wanted: bool) -> None:
        """Do nothing: programs here inherit no descriptors."""


class _Sockets:
    SOL_SOCKET, SO_PEERCRED = socket.SOL_SOCKET, socket.SO_PEERCRED

    def __init__(self, calls: SystemCalls) -> None:
        self._calls = calls

    def recv_fds(self, sock: Any, size: int, most: int) -> tuple[bytes, list[int], int, None]:
        self._calls.enter()
        return sock.receive(size), [], 0, None


def _give(table: Table, process: Process, *descriptors: int) -> None:
    """Give a process the write ends of these pipes."""
    for fd in descriptors:
        pipe = table.pipe_of(fd)
        if pipe is not None:
            pipe.writers += 1
            process.pipes.append(pipe)


def _put(undo: ExitStack, target: Any, name: str, replacement: Any) -> None:
    original = getattr(target, name)
    setattr(target, name, replacement)
    undo.callback(setattr, target, name, original)
