"""Reusable PID namespaces: an init that runs one container after the other.

A namespace needs an init of its own, and forking the interpreter takes longer than a short
container runs. An init therefore stays for the next container if the last one left nothing in the
namespace: no process, no pending signal, and no changed attribute of init that its children
inherit. Otherwise it ends, and with it the namespace. Each container has a new mount namespace in
any case.

Only containers that need no irreversible setup of their first process share an init (`encoded`):
init would have to give up its user, privileges or limits for good. These containers have all rights
of the supervisor, so they gain nothing by tampering with their init.
"""

import contextlib
import json
import marshal
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol

from onejob.node.supervisor import init, linux, mounting, pid_namespaces, spawn
from onejob.node.supervisor.loop import Loop
from onejob.node.supervisor.spawn import Request, Streams
from onejob.node.supervisor.usage import UNKNOWN, Usage

#: Seconds after which unused inits are ended.
_TRIM_SECONDS = 5.0
#: Largest request that is passed to an init: below every default size of a socket's buffer.
_REQUEST_BYTES = 32 * 1024
#: Seconds for which init delays the report of a start: most short containers are reported once.
_BRIEF_SECONDS = 0.005
#: Size of the attempt's number in front of a request; stdin and output are sent with it.
_NUMBER_BYTES = 8
_DESCRIPTORS = struct.Struct("ii")
#: Parts of a request that init needs.
_PARTS = ("argv", "env", "cwd", "program", "mounts", "root")

_BEGAN, _ENDED, _LEFT, _FAILED = b"B", b"E", b"L", b"F"
#: Kind, number of the attempt, wait status, start time in nanoseconds, peak memory in KiB, CPU time
#: in milliseconds, and length of the text that follows.
_REPORT = struct.Struct("<cQIQQQH")
#: A report of at most that size is written to a pipe at once.
_PIPE_BUF = 4096

#: Attributes of init that children inherit and that processes of the same user can change; and
#: those of the namespace that root can change in it.
_INHERITED_FILES = (
    "/proc/self/limits",
    "/proc/self/oom_score_adj",
    "/proc/self/coredump_filter",
    "/proc/self/timerslack_ns",
    "/proc/self/cgroup",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/memfd_noexec",
)


class Report(NamedTuple):
    """Report of an init about an attempt, by the attempt's number in the journal.

    The attempt began, ended and left nothing (`status`), ended and left something, so that init
    ends as well (`status`), or could not be started (`text`). `at` is the time of its start, which
    is not reported separately if it ends at once.
    """

    kind: bytes
    number: int
    status: int = 0
    at: float = 0.0
    text: str = ""
    usage: Usage = UNKNOWN

    @property
    def began(self) -> bool:
        """Whether the container's program has started."""
        return self.kind == _BEGAN

    @property
    def failed(self) -> bool:
        """Whether the container could not be started."""
        return self.kind == _FAILED

    @property
    def left_nothing(self) -> bool:
        """Whether the container has ended, and no process of it is left."""
        return self.kind == _ENDED


class Channel(Protocol):
    """Sends requests to an init."""

    def send(self, number: int, request: bytes, streams: Streams) -> None:
        """Start a container for the attempt of that number. Raises OSError."""

    def close(self) -> None: ...


class ReusableInit(NamedTuple):
    pid: int
    #: Kernel start time.
    ticks: int
    channel: Channel


class InitPool:
    """Inits of the supervisor: running a container, or waiting for one."""

    def __init__(self, loop: Loop, on_report: Callable[[Report], None]) -> None:
        self._loop = loop
        self._on_report = on_report
        self._inits: dict[int, ReusableInit] = {}
        #: Unused inits, the one used last at the end.
        self._idle: list[ReusableInit] = []
        #: Least number of unused inits since the last trimming.
        self._surplus = 0
        self._timer = False
        #: Pipe of all reports, made with the first init.
        self._read = self._write = -1

    def __contains__(self, pid: int) -> bool:
        return pid in self._inits

    def take(self) -> ReusableInit:
        """Return an unused init, forking one if there is none. Raises OSError."""
        if not self._idle:
            self.listen()
        if self._idle:
            found = self._idle.pop()
            self._surplus = min(self._surplus, len(self._idle))
            return found
        if self._read < 0:
            self._read, self._write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._read, False)
            self._loop.watch(self._read, lambda _: self.listen())
        pid, channel = fork_init(self._write)
        made = self._inits[pid] = ReusableInit(pid, linux.ticks_now(), channel)
        return made

    def release(self, used: ReusableInit) -> None:
        """Keep an init whose container left nothing, unless it has ended."""
        if self._inits.get(used.pid) is used:
            self._idle.append(used)
            self._schedule_trim()

    def end(self, used: ReusableInit) -> None:
        """End an init, if it has not ended, and all processes of its namespace."""
        # Until it is reaped, no other process has its PID.
        if self._inits.get(used.pid) is used:
            os.kill(used.pid, signal.SIGKILL)

    def reaped(self, pid: int) -> None:
        """Forget an init that has ended."""
        ended = self._inits.pop(pid, None)
        if ended is not None:
            ended.channel.close()
            if ended in self._idle:
                self._idle.remove(ended)
                self._surplus = min(self._surplus, len(self._idle))

    def listen(self) -> bool:
        """Handle all reports that have arrived; return whether there were any."""
        if self._read < 0:
            return False
        data = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._read, 1 << 16):
                data += piece
        for report in _parse_reports(data):
            self._on_report(report)
        return bool(data)

    def _schedule_trim(self) -> None:
        if not self._timer:
            self._timer = True
            self._surplus = len(self._idle)
            self._loop.after(_TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        """End the inits that were not needed since the last time."""
        self._timer = False
        for unused in self._idle[: self._surplus]:
            self.end(unused)
        del self._idle[: self._surplus]
        if self._idle:
            self._schedule_trim()


def encoded(request: Request) -> bytes | None:
    """Return the request for a reusable init; None if it needs an init of its own."""
    if request.get("pids") != "container" or spawn.changes_init(request):
        return None
    parts = {name: request[name] for name in _PARTS if name in request}
    # Both ends are the same interpreter.
    data = marshal.dumps(parts)
    return data if len(data) <= _REQUEST_BYTES else None


# --- supervisor's side of a channel


class _Socket:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, number: int, request: bytes, streams: Streams) -> None:
        parts = [number.to_bytes(_NUMBER_BYTES, "little"), request]
        socket.send_fds(self._sock, parts, [streams.stdin, streams.output])

    def close(self) -> None:
        self._sock.close()


def fork_init(reports: int) -> tuple[int, Channel]:
    """Fork an init that writes its reports to `reports`. Raises OSError."""
    # Computed in the parent, where the results stay cached.
    pid_namespaces.spacing()
    arguments = linux.argument_area()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = pid_namespaces.fork_first()
        if pid == 0:
            try:
                _run_init(theirs, reports, arguments)
            finally:
                os._exit(spawn.NOT_BEGUN)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return pid, _Socket(ours)


def _parse_reports(data: bytes) -> Iterator[Report]:
    start = 0
    while start < len(data):
        kind, number, status, at, peak_kib, cpu_ms, size = _REPORT.unpack_from(data, start)
        start += _REPORT.size
        text = data[start : start + size].decode()
        start += size
        yield Report(kind, number, status, at / 1e9, text, Usage(peak_kib, cpu_ms))


# --- init


def _run_init(requests: socket.socket, reports: int, arguments: tuple[int, int]) -> NoReturn:
    linux.die_with_parent()
    os.setsid()
    linux.call_process(init.NAME, arguments)
    init.hide()
    os.umask(0o022)
    init.close_others(requests.fileno(), reports)
    _serve(requests, reports)


def _serve(requests: socket.socket, reports: int) -> NoReturn:
    """Run one container after the other, until one leaves something behind or the supervisor is
    gone."""
    prepared: _Prepared | None = None
    while True:
        # Not `recv_fds`, which ignores the flag: programs would inherit the descriptors.
        data, ancillary, _, _ = requests.recvmsg(
            _NUMBER_BYTES + _REQUEST_BYTES,
            socket.CMSG_LEN(_DESCRIPTORS.size),
            socket.MSG_CMSG_CLOEXEC,
        )
        if not data:
            os._exit(0)
        number = int.from_bytes(data[:_NUMBER_BYTES], "little")
        try:
            if prepared is None:
                prepared = _Prepared()
            ((_, _, descriptors),) = ancillary
            command = _start(marshal.loads(data[_NUMBER_BYTES:]), *_DESCRIPTORS.unpack(descriptors))
        except BaseException as error:
            _report_failure(reports, number, error)
            os._exit(spawn.NOT_BEGUN)
        at = time.time_ns()
        end = init.until_ended(command, _BRIEF_SECONDS)
        if end is None:
            os.write(reports, _REPORT.pack(_BEGAN, number, 0, at, 0, 0, 0))
            end = init.until_ended(command)
            assert end is not None
        status, usage = end
        clean = prepared.is_clean()
        kind = _ENDED if clean else _LEFT
        os.write(reports, _REPORT.pack(kind, number, status, at, *usage, 0))
        if not clean:
            os._exit(0)


def _report_failure(reports: int, number: int, error: BaseException) -> None:
    reason, message, pressure = spawn.problem_of(error)
    text = json.dumps([reason, message, pressure]).encode()
    if len(text) > _PIPE_BUF - _REPORT.size:
        # In the worst case, each character takes six bytes.
        text = json.dumps([reason, message[:512], pressure]).encode()
    os.write(reports, _REPORT.pack(_FAILED, number, 0, 0, 0, 0, len(text)) + text)


def _start(request: dict[str, Any], stdin: int, output: int) -> int:
    """Start the command of a container in a new mount namespace; return its PID."""
    mounting.mount_all(request["mounts"], request.get("root", ""))
    spawn.enter(request["cwd"])
    command = spawn.start_below(request, Streams(stdin, output, output, -1))
    os.close(stdin)
    os.close(output)
    return command


class _Prepared:
    """State of an init between two containers. Raises OSError if it cannot be prepared."""

    def __init__(self) -> None:
        pid_namespaces.spread_pids(linux.own_pid())
        # The supervisor's: each container finds the mounts of the host at its start.
        self._mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files: list[int] = []
        for name in _INHERITED_FILES:
            with contextlib.suppress(FileNotFoundError):
                self._files.append(os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        self._inherited = self._read_inherited()

    def is_clean(self) -> bool:
        """Leave the mount namespace of the last container; return whether it left nothing in the
        PID namespace."""
        try:
            # Only root can return: for other users, it belongs to the host's user namespace.
            linux.setns(self._mounts, linux.CLONE_NEWNS)
            os.fchdir(self._root)
            os.chroot(".")
            left_nothing = self._read_inherited() == self._inherited and _is_alone()
        except OSError:
            return False
        if left_nothing:
            init.drop_signals()
        return left_nothing

    def _read_inherited(self) -> list[object]:
        values: list[object] = [os.pread(fd, 8192, 0) for fd in self._files]
        values += [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)]
        values.append(os.sched_getaffinity(0))
        return values


def _is_alone() -> bool:
    """Kill all other processes of the namespace; return whether there were none."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return True
    return False
