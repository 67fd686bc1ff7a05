"""The supervisor's loop: requests in, processes started and stopped, events out.

Children are waited for with SIGCHLD and `waitid`, not with a descriptor each: a subreaper also
inherits processes it never started, and must reap those too. As their parent it is the only
one to reap, so a pid it signals is always the process it means.

Protocol: lines of JSON over a unix socket. See `Supervisor._requests` for what is asked and
`Supervisor._emit` for what is told; `onejob.node.supervisor_client` is the other side.
"""

import contextlib
import gc
import heapq
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from onejob.node.supervisor import linux, spawn
from onejob.node.supervisor.capture import Capture, Input, LogFile
from onejob.node.supervisor.journal import Attempt, Claim, Journal, Outcome

_READ_BYTES = 1 << 18
#: With nobody connected and nothing running there is nothing to stay for.
_IDLE_SECONDS = 5.0
_PROBE_OUTPUT_BYTES = 10 * 1024


class Child:
    """A process of ours: a container's attempt, or a command run on behalf of one."""

    __slots__ = ("attempt", "beside", "capture", "grace", "isolated", "output", "pid", "report",
                 "run_id", "started_at", "stdin", "stopping", "timed_out")  # fmt: skip

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.attempt: Attempt | None = None
        #: Of a command: the container it ends with, who asked, and what it said so far.
        self.beside: Child | None = None
        self.run_id: tuple[Connection, int] | None = None
        self.output = b""
        self.timed_out = False
        self.stdin: Input | None = None
        self.capture: Capture | None = None
        self.report = -1
        self.grace = 30.0
        self.isolated = False
        self.stopping = False
        self.started_at = 0.0


class Connection:
    __slots__ = ("descriptors", "incoming", "outgoing", "owner", "sock", "subscribed")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming = b""
        #: Sent along for a command: its stdin, stdout and stderr.
        self.descriptors: list[int] = []
        self.outgoing = bytearray()
        self.subscribed = False
        #: When this connection ends, so do the workloads.
        self.owner = False


class Supervisor:
    def __init__(self, directory: str, listener: socket.socket) -> None:
        self._listener = listener
        self._journal = Journal(os.path.join(directory, "claims"), linux.boot_id())
        self._null = os.open(os.devnull, os.O_RDWR)
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._connections: dict[int, Connection] = {}
        self._children: dict[int, Child] = {}
        self._running: dict[Claim, Child] = {}
        self._commands: set[Child] = set()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = 0
        self._events: list[list[Any]] = []
        self._ending = False
        self._done = False
        self._idle_timer = False

    def run(self) -> None:
        linux.become_subreaper()
        self._settle_past()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end_all())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._watch(wake_read, lambda _: self._reap(wake_read))
        self._listener.setblocking(False)
        self._watch(self._listener.fileno(), lambda _: self._accept())
        self._watch_for_idleness()
        while not self._done:
            for fd, mask in self._epoll.poll(self._until_next_timer()):
                handler = self._ready.get(fd)
                if handler is not None:
                    self._guard(handler, mask)
            self._fire_timers()
            self._flush_events()

    def _guard(self, handler: Callable[[int], None], mask: int) -> None:
        try:
            handler(mask)
        except Exception:
            # The workloads must not pay for a mistake of ours, or for a full process table.
            traceback.print_exc()

    # --- the past

    def _settle_past(self) -> None:
        """Attempts that a dead supervisor left behind: end survivors, call all of them lost."""
        survivors = []
        for attempt in self._journal.each():
            if attempt.outcome is not None:
                continue
            pid = 0 if self._journal.rebooted else _survivor(attempt)
            if pid:
                survivors.append(pid)
                _kill_session(pid)
            self._journal.end(attempt, Outcome("lost", time.time_ns() / 1e9))
        for pid in survivors:
            _wait_until_gone(pid)

    # --- requests

    def _requests(self, connection: Connection, message: dict[str, Any]) -> None:
        match message["do"]:
            case "hello":
                connection.subscribed = True
                connection.owner = bool(message.get("owner"))
                known = [_describe(attempt) for attempt in self._journal.each()]
                greeting = {
                    "known": known,
                    "rebooted": self._journal.rebooted,
                    "isolates": spawn.can_isolate(),
                }
                self._send(connection, greeting)
            case "spawn":
                for request in message["items"]:
                    self._spawn(request)
            case "stop":
                for uid, container, attempt, grace in message["items"]:
                    self._stop(Claim(uid, container, attempt), grace)
            case "forget":
                for uid in message["uids"]:
                    self._forget(uid)
            case "run":
                self._run_command(connection, message)
            case "attach":
                self._attach(connection, Claim(*message["claim"]), once=message["once"])
            case "end":
                self._end_all()
            case unknown:
                raise AssertionError(f"asked to do {unknown!r}")

    def _spawn(self, request: spawn.Request) -> None:
        claim = Claim(*request["claim"])
        known = self._journal.find(claim)
        if known is not None:
            # Asked twice, perhaps by a server that did not live to hear the answer.
            self._events.append(_describe(known))
            return
        if self._ending:
            return
        plain = not spawn.needs_fork(request)
        attempt = self._journal.claim(claim, spawn.mark(request) if plain else 0)
        stdin = Input(self._null, wanted="stdin" in request)
        start = self._start_plain if plain else self._start_forked
        try:
            child = start(request, stdin.theirs)
        except OSError as error:
            stdin.close()
            why = f"cannot start a process: {error.strerror}"
            self._refuse(attempt, "ContainerCannotRun", why)
            return
        except spawn.SetupFailed as failure:
            stdin.close()
            self._refuse(attempt, failure.reason, failure.message)
            return
        finally:
            stdin.let_go()
        child.stdin = stdin
        child.attempt = attempt
        child.grace = float(request.get("grace", 30))
        child.isolated = "mounts" in request
        attempt.pid = child.pid
        self._children[child.pid] = child
        self._running[claim] = child
        if child.report < 0:
            self._journal.began(attempt)
            self._tell_started(child, attempt)

    def _start_plain(self, request: spawn.Request, stdin: int) -> Child:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            child = Child(spawn.spawn_plain(request, stdin=stdin, output=write))
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._capture(child, read, request["log"])
        return child

    def _start_forked(self, request: spawn.Request, stdin: int) -> Child:
        read, write = os.pipe2(os.O_CLOEXEC)
        report, report_write = os.pipe2(os.O_CLOEXEC)
        try:
            child = Child(
                spawn.fork(
                    request, stdin=stdin, output=write, report=report_write,
                    journal=self._journal,
                )
            )  # fmt: skip
        except BaseException:
            os.close(read)
            os.close(report)
            raise
        finally:
            os.close(write)
            os.close(report_write)
        self._capture(child, read, request["log"])
        child.report = report
        self._watch(report, lambda _: self._began(child))
        return child

    def _capture(self, child: Child, fd: int, log: str) -> None:
        child.capture = Capture(fd, LogFile(log))
        self._watch(fd, lambda _: self._drain(child))

    def _began(self, child: Child) -> None:
        """The report closed: the program runs, or it says why it does not."""
        assert child.attempt is not None
        problem = os.read(child.report, 65536)
        self._unwatch(child.report)
        os.close(child.report)
        child.report = -1
        if problem:
            reason, message = json.loads(problem)
            del self._running[child.attempt.claim]
            self._release(child)
            self._refuse(child.attempt, reason, message)
            child.attempt = None
            return
        self._tell_started(child, child.attempt)

    def _tell_started(self, child: Child, attempt: Attempt) -> None:
        child.started_at = attempt.started_at = time.time_ns() / 1e9
        self._events.append(["started", *attempt.claim, child.started_at])

    def _refuse(self, attempt: Attempt, reason: str, message: str) -> None:
        outcome = Outcome("refused", time.time_ns() / 1e9, 128, 0, reason, message)
        self._journal.end(attempt, outcome)
        self._events.append(_describe(attempt))

    def _stop(self, claim: Claim, grace: float) -> None:
        child = self._running.get(claim)
        if child is None:
            return
        if grace <= 0:
            _kill_session(child.pid)
            return
        if not child.stopping:
            child.stopping = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
        self._after(grace, lambda: self._kill_if_running(claim, child))

    def _kill_if_running(self, claim: Claim, child: Child) -> None:
        if self._running.get(claim) is child:
            _kill_session(child.pid)

    def _forget(self, uid: str) -> None:
        """The Pod is gone or accounted for. What still runs of it has no right to."""
        for claim, child in list(self._running.items()):
            if claim.uid == uid:
                _kill_session(child.pid)
        if not any(claim.uid == uid for claim in self._running):
            self._journal.forget(uid)

    def _attach(self, connection: Connection, claim: Claim, *, once: bool) -> None:
        """Hand over the end of a container's stdin that is written; if `once`, for good."""
        child = self._running.get(claim)
        stdin = None if child is None else child.stdin
        if stdin is None or stdin.ours < 0:
            self._send(connection, {"events": [["no stdin"]]})
            return
        socket.send_fds(connection.sock, [b'{"events":[["attached"]]}\n'], [stdin.ours])
        if once:
            stdin.close()

    def _run_command(self, connection: Connection, request: spawn.Request) -> None:
        """A command beside a container, in its view of the file system; its output goes back."""
        beside = self._running.get(Claim(*request["claim"]))
        number = request["id"]
        if beside is None or not beside.started_at:
            self._send(
                connection, {"events": [["ran", number, -1, "the container is not running"]]}
            )
            return
        if beside.isolated:
            request["join"] = beside.pid
        read, write = os.pipe2(os.O_CLOEXEC)
        streams, connection.descriptors = connection.descriptors, []
        stdin, output, errors = streams or (self._null, write, write)
        try:
            pid = spawn.fork(
                request, stdin=stdin, output=output, errors=errors, report=write, journal=None
            )
        except OSError as error:
            os.close(read)
            why = f"cannot start a process: {error.strerror}"
            self._send(connection, {"events": [["ran", number, -1, why]]})
            return
        finally:
            for fd in (write, *streams):
                os.close(fd)
        os.set_blocking(read, False)
        child = Child(pid)
        child.run_id = (connection, number)
        child.beside = beside
        self._commands.add(child)
        child.report = read
        self._children[pid] = child
        self._watch(read, lambda _: self._collect(child))
        if "timeout" in request:
            self._after(float(request["timeout"]), lambda: self._time_out(child))

    def _collect(self, child: Child) -> None:
        try:
            chunk = os.read(child.report, 65536)
        except BlockingIOError:
            return
        if chunk:
            child.output = (child.output + chunk)[:_PROBE_OUTPUT_BYTES]
        else:
            self._unwatch(child.report)

    def _time_out(self, child: Child) -> None:
        if self._children.get(child.pid) is child:
            child.timed_out = True
            _kill_session(child.pid)

    # --- processes

    def _reap(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self._children.pop(pid, None)
            if child is not None:
                self._ended(child, status)
        if not self._running:
            self._kill_strays()
            self._done = self._done or self._ending
        self._watch_for_idleness()

    def _ended(self, child: Child, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        number = -code if code < 0 else 0
        if child.run_id is not None:
            self._command_ended(child, code)
            return
        self._sweep(child.pid)
        if child.report >= 0:
            self._began(child)
        if child.attempt is None:
            return
        attempt = child.attempt
        self._release(child)
        del self._running[attempt.claim]
        self._end_commands(lambda command: command.beside is child)
        outcome = Outcome("exited", time.time_ns() / 1e9, 128 + number if number else code, number)
        self._journal.end(attempt, outcome)
        self._events.append(_describe(attempt))

    def _end_commands(self, concerned: Callable[[Child], bool]) -> None:
        for command in self._commands:
            if concerned(command):
                _kill_session(command.pid)

    def _command_ended(self, child: Child, code: int) -> None:
        assert child.run_id is not None
        self._commands.discard(child)
        if child.report in self._ready:
            with contextlib.suppress(OSError):
                child.output = (child.output + os.read(child.report, 65536))[:_PROBE_OUTPUT_BYTES]
            self._unwatch(child.report)
        os.close(child.report)
        connection, number = child.run_id
        self._sweep(child.pid)
        output = child.output.decode("utf-8", "replace")
        if child.timed_out:
            code, output = -1, "command timed out"
        if connection.sock.fileno() >= 0:
            self._send(connection, {"events": [["ran", number, code, output]]})

    def _sweep(self, leader: int) -> None:
        """A container ends with its first process: nothing of its session may stay behind.

        Its orphans are our children now, so if we have no child that we did not start, there is
        nothing to look for.
        """
        _kill_group(leader)
        children = linux.children()
        if children is None or any(pid not in self._children for pid in children):
            _kill_session(leader)

    def _kill_strays(self) -> None:
        """Daemons that left their container's session cannot be told apart while others run;
        once nothing runs, whatever is still our child is one."""
        for pid in linux.children() or ():
            if pid not in self._children:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _drain(self, child: Child) -> None:
        capture = child.capture
        if capture is not None and not capture.drain():
            self._unwatch(capture.fd)

    def _release(self, child: Child) -> None:
        capture = child.capture
        if capture is not None:
            capture.drain(all_of_it=True)
            self._unwatch(capture.fd)
            capture.close()
            child.capture = None
        if child.stdin is not None:
            child.stdin.close()

    def _end_all(self) -> None:
        """Stop every workload, each with its own grace, then leave."""
        self._ending = True
        for claim, child in list(self._running.items()):
            self._stop(claim, child.grace)
        if not self._running:
            self._flush_events()
            self._done = True

    # --- connections

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections[sock.fileno()] = connection
        self._watch(sock.fileno(), lambda mask: self._talk(connection, mask))

    def _talk(self, connection: Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._write_out(connection)
        if not mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data, descriptors, _, _ = socket.recv_fds(connection.sock, _READ_BYTES, 3)
            for fd in descriptors:
                # Alone among descriptors, received ones are handed on to programs.
                os.set_inheritable(fd, False)
            connection.descriptors.extend(descriptors)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._hang_up(connection)
            return
        *lines, connection.incoming = (connection.incoming + data).split(b"\n")
        for line in lines:
            self._requests(connection, json.loads(line))

    def _hang_up(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        if self._connections.pop(fd, None) is None:
            return
        self._unwatch(fd)
        connection.sock.close()
        for fd in connection.descriptors:
            os.close(fd)
        self._end_commands(
            lambda command: command.run_id is not None and command.run_id[0] is connection
        )
        if connection.owner:
            self._end_all()
        self._watch_for_idleness()

    def _send(self, connection: Connection, message: dict[str, Any]) -> None:
        connection.outgoing += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self._write_out(connection)

    def _write_out(self, connection: Connection) -> None:
        try:
            sent = connection.sock.send(connection.outgoing)
            del connection.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up(connection)
            return
        wanted = select.EPOLLIN | (select.EPOLLOUT if connection.outgoing else 0)
        self._epoll.modify(connection.sock.fileno(), wanted)

    def _flush_events(self) -> None:
        if not self._events:
            return
        events, self._events = self._events, []
        for connection in list(self._connections.values()):
            if connection.subscribed:
                self._send(connection, {"events": events})

    # --- waiting

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._ready[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_number, action))

    def _until_next_timer(self) -> float:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _watch_for_idleness(self) -> None:
        if not self._idle_timer and not self._connections and not self._running:
            self._idle_timer = True
            self._after(_IDLE_SECONDS, self._leave_if_idle)

    def _leave_if_idle(self) -> None:
        self._idle_timer = False
        if not self._connections and not self._running:
            self._done = True


def _describe(attempt: Attempt) -> list[Any]:
    outcome = attempt.outcome
    if outcome is None:
        return ["started", *attempt.claim, attempt.started_at]
    return [outcome.kind, *attempt.claim, attempt.started_at, *outcome[1:]]


def _survivor(attempt: Attempt) -> int:
    """The living process of an attempt; 0 if there is none."""
    if attempt.pid:
        return attempt.pid if linux.began_at(attempt.pid, attempt.start_ticks) else 0
    # Killed between starting the process and writing down its pid.
    return spawn.find_marked(attempt.mark) if attempt.mark else 0


def _kill_session(leader: int) -> None:
    """SIGKILL a session: its first group at once, then whoever made groups of their own."""
    _kill_group(leader)
    for pid in linux.processes():
        if linux.session_of(pid) == leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _wait_until_gone(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with contextlib.closing(select.epoll()) as poll:
        poll.register(fd, select.EPOLLIN)
        poll.poll(10)
    os.close(fd)


def main() -> None:
    directory, listener, lock = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Held open for as long as we live, and by nobody else.
    os.set_inheritable(listener, False)
    os.set_inheritable(lock, False)
    # Children share our memory until they exec: the collector must not touch and so copy it.
    gc.freeze()
    gc.disable()
    Supervisor(directory, socket.socket(fileno=listener)).run()
