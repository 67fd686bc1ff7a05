"""Supervisor main loop: requests in, processes started and stopped, events out.

Children are reaped with SIGCHLD and `waitpid`, not with a pidfd each: a subreaper also inherits
processes it never started, and must reap those, too. As their parent it is the only process that
reaps them, so a PID that it signals always refers to the intended process.

`Supervisor._requests` lists the requests and `news.describe` the reports; the client is
`onejob.node.process.supervisor_client`.
"""

import contextlib
import errno
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from onejob.node.supervisor import init, journal, linux, pid_namespaces, spawn
from onejob.node.supervisor.capture import Capture, Input, LogFile
from onejob.node.supervisor.commands import Command, Commands
from onejob.node.supervisor.connections import Connection, Connections
from onejob.node.supervisor.event_batching import EventBatcher, describe
from onejob.node.supervisor.failures import SetupFailed
from onejob.node.supervisor.journal import Attempt, Claim, Journal, Outcome, identity_of
from onejob.node.supervisor.listener import Listener
from onejob.node.supervisor.loop import Loop, report, report_exception
from onejob.node.supervisor.pressure import DISK, pressure_of
from onejob.node.supervisor.processes import kill, kill_session, kill_survivors, wait_until_gone
from onejob.node.supervisor.reusable_inits import InitPool, Report, ReusableInit, encoded
from onejob.node.supervisor.usage import (
    FIRST_SAMPLE_SECONDS,
    MAX_SAMPLE_SECONDS,
    NEGLIGIBLE_CPU_MS,
    UNKNOWN,
    Usage,
    sample,
    usage_of,
)
from onejob.node.supervisor.versions import PROTOCOL, NewerVersion

#: Seconds without connections and workloads after which the supervisor exits.
_IDLE_SECONDS = 5.0
#: Seconds before a failed journal write is retried.
_RETRY_SECONDS = 1.0
_SPARE_DESCRIPTORS = 64
_PEAK_TOLERANCE_KIB = 512
#: Seconds between attempts to add notes about lost lines, and the most logs that wait for one.
_NOTE_SECONDS = 5.0
_MAX_OWED_NOTES = 1000


class Child:
    """First process of a container."""

    __slots__ = ("attempt", "capture", "grace", "hostname", "init", "init_is_reusable", "isolated",
                 "pid", "pids", "report", "sampled", "started_at", "status", "stdin",
                 "stopping", "usage", "wait_status")  # fmt: skip

    def __init__(self, pid: int, attempt: Attempt, capture: Capture, stdin: Input) -> None:
        self.pid = pid
        self.attempt = attempt
        self.capture = capture
        self.stdin = stdin
        #: Read end of its start-up report, which contains the error if it could not begin; -1 after
        #: that.
        self.report = -1
        #: Owner of its PID namespace: "container", "pod", or "" for the host's.
        self.pids = ""
        #: Pipe on which the init of a container's own PID namespace writes the command's wait
        #: status, unless it is a reusable one.
        self.status = -1
        #: Reusable init of its PID namespace; `pid` is its PID.
        self.init: ReusableInit | None = None
        #: Whether only the container itself can have affected the init.
        self.init_is_reusable = True
        #: Reported by a reusable init that is about to end.
        self.wait_status: int | None = None
        self.usage = UNKNOWN
        #: Last sample while it ran.
        self.sampled = UNKNOWN
        self.grace = 30.0
        self.hostname = ""
        self.isolated = False
        self.stopping = False
        self.started_at = 0.0

    def kill(self) -> None:
        """Kill it and all processes that it started."""
        if self.pids == "container":
            # The kernel kills a namespace with its first process.
            kill([self.pid])
        else:
            kill_session(self.pid)


class Supervisor:
    """Parent process of all containers in the process runtime; outlives the server.

    Guarantees: an attempt is recorded in the journal before its process exists, and its end before
    it is reported to clients. Processes of a dead predecessor are killed and reported as lost. The
    supervisor exits after `_IDLE_SECONDS` without connections and workloads; SIGTERM, an `end`
    request or the disconnection of an owner ends all workloads first.

    Concurrency: single-threaded; `run` blocks until `done`.
    """

    def __init__(self, directory: str, listener: Listener) -> None:
        self._journal = Journal(os.path.join(directory, journal.NAME), identity_of(directory))
        self._null = os.open(os.devnull, os.O_RDWR)
        self._loop = Loop()
        self._connections = Connections(self._loop, listener, self._requests, self._hung_up)
        self._commands = Commands(self._loop, self._connections, self._null)
        self._children: dict[int, Child | Command] = {}
        self._running: dict[Claim, Child] = {}
        self._pod_namespaces = pid_namespaces.PodNamespaces()
        self._inits = InitPool(self._loop, self._hear)
        #: Containers of reusable inits, by the number of their attempt.
        self._inside: dict[int, Child] = {}
        self._news = EventBatcher(self._send_events, self._loop.after, _now)
        #: HOSTNAMEs of containers that ended while processes of unknown origin existed.
        self._left_behind: set[str] = set()
        #: Readable when a child may have ended.
        self._wake = -1
        self._ending = False
        self.done = False
        self._idle_timer = False
        self._retry_timer = False
        self._owed_notes: list[LogFile] = []

    def run(self) -> None:
        """Handle requests and ends until all is done."""
        linux.become_subreaper()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.begin(wake_read)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end_all())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        while not self.done:
            self.turn()

    def begin(self, wake: int) -> None:
        """Recover from the journal and start watching. `wake` is readable when a child may have
        ended."""
        if self._journal.damaged:
            report("the journal was damaged: some records are lost")
        self._settle_past()
        self._wake = wake
        self._loop.watch(wake, lambda _: self._reap())
        self._watch_for_idleness()

    def turn(self) -> None:
        """Run one iteration: wait for events, handle and report them."""
        try:
            self._loop.turn()
            self._write_down()
            self._news.tell()
        except Exception:
            report_exception()
            time.sleep(_RETRY_SECONDS)

    @property
    def next_timer_in(self) -> float:
        """Seconds until the next timer; -1 if there is none."""
        return self._loop.until_next_timer()

    def _settle_past(self) -> None:
        """Kill the surviving processes of a dead supervisor, and record all its open attempts as
        lost."""
        survivors = kill_survivors(self._journal, _now())
        self._write_down()
        for pid in survivors:
            wait_until_gone(pid)

    # --- requests

    def _requests(self, connection: Connection, message: dict[str, Any]) -> None:
        """Handle a message of a client."""
        match message["do"]:
            case "hello":
                self._answer_hello(connection, message)
            case "spawn":
                self._spawn_all(message["items"])
                self._write_down()
            case "stop":
                for uid, container, attempt, grace in message["items"]:
                    self._stop(Claim(uid, container, attempt), grace)
            case "forget":
                for uid in message["uids"]:
                    self._forget(uid)
            case "settled":
                self._journal.settle()
                self._write_down()
            case "run":
                self._run_command(connection, message)
            case "try":
                problem = spawn.try_out(message["request"])
                event = ["ran", message["id"], 1 if problem else 0, problem]
                self._connections.send(connection, {"events": [event]})
            case "attach":
                self._attach(connection, Claim(*message["claim"]), once=message["once"])
            case "processes":
                running = [[*claim, child.pid] for claim, child in self._running.items()]
                self._connections.send(connection, {"processes": running})
            case "end":
                self._end_all()
            case unknown:
                raise AssertionError(f"unknown request {unknown!r}")

    def _answer_hello(self, connection: Connection, message: dict[str, Any]) -> None:
        self._connections.hang_up_predecessors(connection)
        self._write_down()
        attempts = list(self._journal.each())
        try:
            handshake = {
                "version": PROTOCOL,
                # An end that is not recorded yet is reported later, with other events.
                "known": [
                    describe(attempt, with_end=self._journal.is_reportable(attempt))
                    for attempt in attempts
                ],
                "folders": {attempt.claim.uid: attempt.folder for attempt in attempts},
                "rebooted": self._journal.rebooted,
                "settles": True,
                "isolates": spawn.can_isolate(),
                "pid_namespace_problem": (
                    pid_namespaces.problem() if message.get("pid_namespaces") else ""
                ),
                "limits_rights": True,
                "joins_groups": True,
            }
        except OSError as error:
            # No process could be forked: the machine's abilities are unknown, and the server has to
            # retry.
            report(f"closing a connection, the server has to reconnect: {error}")
            self._connections.hang_up(connection)
            return
        connection.subscribed = True
        connection.owner = bool(message.get("owner"))
        self._connections.send(connection, handshake)

    def _stop(self, claim: Claim, grace: float) -> None:
        """Stop a running attempt by SIGTERM, and by SIGKILL after `grace` seconds."""
        child = self._running.get(claim)
        if child is None:
            return
        if grace <= 0:
            child.kill()
            return
        if not child.stopping:
            child.stopping = True
            # The signal may reach init only after the end of its command.
            child.init_is_reusable = False
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
        self._loop.after(grace, lambda: self._kill_if_running(claim, child))

    def _kill_if_running(self, claim: Claim, child: Child) -> None:
        if self._running.get(claim) is child:
            child.kill()

    def _forget(self, uid: str) -> None:
        """Drop a Pod that is deleted or whose end is stored; kill processes that still run."""
        claims = [attempt.claim for attempt in self._journal.of(uid)]
        running = [self._running[claim] for claim in claims if claim in self._running]
        for child in running:
            child.kill()
        self._pod_namespaces.end(uid)
        if not running:
            self._journal.forget(uid)

    def _attach(self, connection: Connection, claim: Claim, *, once: bool) -> None:
        """Pass the write end of a container's stdin to the client; permanently if `once`. Terminal
        input has no end, so a terminal can be requested again."""
        child = self._running.get(claim)
        if child is None or child.stdin.ours < 0:
            self._connections.send(connection, {"events": [["no stdin"]]})
            return
        socket.send_fds(connection.sock, [b'{"events":[["attached"]]}\n'], [child.stdin.ours])
        if once and not child.stdin.terminal:
            child.stdin.close()

    def _run_command(self, connection: Connection, request: spawn.Request) -> None:
        beside = self._running.get(Claim(*request["claim"]))
        if beside is None or not beside.started_at:
            self._commands.refuse(connection, request["id"], "the container is not running")
            return
        # The command may leave processes in the namespace.
        beside.init_is_reusable = False
        command = self._commands.run(
            connection, request, beside.pid, isolated=beside.isolated, pids=beside.pids
        )
        if command is not None:
            self._children[command.pid] = command

    def _end_all(self) -> None:
        """Stop every workload with its own grace period, then exit."""
        self._ending = True
        for claim, child in list(self._running.items()):
            self._stop(claim, child.grace)
        if not self._running:
            self._news.tell()
            self.done = True

    def _hung_up(self, connection: Connection) -> None:
        self._commands.end_asked_by(connection)
        if connection.owner:
            self._end_all()
        self._watch_for_idleness()

    # --- start of a container

    def _spawn_all(self, requests: list[spawn.Request]) -> None:
        """Start containers; between two starts, report accumulated ends if there are enough for a
        batch."""
        left = len(requests)
        for request in requests:
            self._spawn_or_refuse(request)
            left -= 1
            heard = self._inits.listen()
            if self._news.may_be_enough(left + len(self._running)):
                if self._was_woken():
                    self._reap_and_report(left)
                elif heard:
                    self._news.flush_partial(left + len(self._running))

    def _reap_and_report(self, about_to_start: int) -> None:
        try:
            self._reap()
            self._news.flush_partial(about_to_start + len(self._running))
        except Exception:
            # Starts that follow must not suffer from a bug in reporting.
            report_exception()

    def _was_woken(self) -> bool:
        """Return whether children may have ended since the last call."""
        try:
            return bool(os.read(self._wake, 4096))
        except BlockingIOError:
            return False

    def _spawn_or_refuse(self, request: spawn.Request) -> None:
        """Start a container; a bug must not leave this attempt, or the next one, unanswered."""
        try:
            self._spawn(request)
        except Exception as error:
            report_exception()
            claim = Claim(*request["claim"])
            attempt = self._journal.find(claim)
            if attempt is not None and claim not in self._running and attempt.outcome is None:
                self._not_started(attempt, "ContainerCannotRun", f"onejob: {error!r}", "")

    def _spawn(self, request: spawn.Request) -> None:
        claim = Claim(*request["claim"])
        known = self._journal.find(claim)
        if known is not None:
            # Repeated request, possibly by a new server after one that was killed before the
            # answer.
            self._news.add(known)
            return
        if self._ending:
            return
        inside = encoded(request)
        init = self._take_init() if inside is not None else None
        forks = init is None and spawn.needs_fork(request)
        mark = 0 if init is not None or forks else spawn.mark(request)
        try:
            attempt = self._journal.claim(
                claim,
                mark,
                request["cwd"],
                by_child=forks,
                init=None if init is None else (init.pid, init.ticks),
            )
        except OSError as error:
            if init is not None:
                self._inits.release(init)
            self._report_hindered(claim, DISK, f"cannot write the journal: {error.strerror}")
            return
        try:
            if init is not None and inside is not None:
                child = self._start_inside(init, request, inside, attempt)
            else:
                child = self._start(request, attempt, forks)
        except OSError as error:
            why = f"cannot start a process: {error.strerror}"
            self._not_started(attempt, "ContainerCannotRun", why, pressure_of(error))
            return
        except SetupFailed as failure:
            pressure = pressure_of(failure)
            self._not_started(attempt, failure.reason, failure.message, pressure)
            return
        child.grace = float(request.get("grace", 30))
        child.hostname = request["env"].get("HOSTNAME", "")
        child.isolated = "mounts" in request
        attempt.pid = child.pid
        self._children[child.pid] = child
        self._running[claim] = child
        if init is None and not forks:
            self._on_began(child, _now())
            self._journal.began(attempt)

    def _take_init(self) -> ReusableInit | None:
        """Return a reusable init; None if there is none for lack of resources."""
        try:
            return self._inits.take()
        except OSError:
            # The attempt to fork an init for this container alone will report the error.
            return None

    def _start_inside(
        self, init: ReusableInit, request: spawn.Request, encoded: bytes, attempt: Attempt
    ) -> Child:
        """Have a reusable init start the process of an attempt. Raises OSError."""
        stdin = Input(self._null, wanted="stdin" in request)
        ours: list[int] = []
        theirs: list[int] = []
        try:
            read, write = stdin.output()
            ours.append(read)
            theirs.append(write)
            self._leave_spare_descriptors(write)
            capture = Capture(read, LogFile(request["log"]))
            self._loop.watch(read, lambda _: self._drain(capture))
            streams = spawn.Streams(stdin.theirs, write, write, -1)
            try:
                init.channel.send(attempt.number, encoded, streams)
            except OSError as error:
                # It was killed: another attempt will get another init.
                raise BlockingIOError(errno.EAGAIN, "the init has ended") from error
        except BaseException:
            for fd in ours:
                self._loop.unwatch(fd)
                os.close(fd)
            stdin.close()
            self._inits.end(init)
            raise
        finally:
            close_all(*theirs)
            stdin.close_child_end()
        child = Child(init.pid, attempt, capture, stdin)
        child.pids, child.init = "container", init
        self._inside[attempt.number] = child
        return child

    def _hear(self, report: Report) -> None:
        """Handle the report of a reusable init."""
        child = self._inside.get(report.number)
        if child is None:
            return
        if not child.started_at and not report.failed:
            self._on_began(child, report.at)
        if report.began:
            self._record_command(child)
            return
        if not report.failed and not report.left_nothing:
            # The end is reported when init has ended, too.
            child.wait_status, child.usage = report.status, report.usage
            return
        init = child.init
        assert init is not None
        del self._inside[report.number]
        del self._children[child.pid]
        if report.failed:
            self._release(child)
            self._not_started(child.attempt, *json.loads(report.text))
        else:
            code = os.waitstatus_to_exitcode(report.status)
            self._on_ended(child, code, report.usage, alone=True)
        if report.left_nothing and child.init_is_reusable:
            self._inits.release(init)
        else:
            self._inits.end(init)
        self._finish_turn()

    def _start(self, request: spawn.Request, attempt: Attempt, forks: bool) -> Child:
        """Start the process of an attempt. Creating it is the last step, so that after any failure
        no unrecorded process is running."""
        stdin = Input(self._null, wanted="stdin" in request, terminal="tty" in request)
        # `ours` are closed on failure; `theirs` in any case, since the process has its own copies.
        ours: list[int] = []
        theirs: list[int] = []
        # Not with `ExitStack`s, which take thirty function calls for each start.
        try:
            read, write = stdin.output()
            ours.append(read)
            theirs.append(write)
            self._leave_spare_descriptors(write)
            capture = Capture(read, LogFile(request["log"]))
            child = Child(0, attempt, capture, stdin)
            self._loop.watch(read, lambda _: self._drain(capture))
            if not forks:
                streams = spawn.Streams(stdin.theirs, write, write, -1)
                child.pid = spawn.spawn_plain(request, streams)
                return child
            child.report, report_write = os.pipe2(os.O_CLOEXEC)
            ours.append(child.report)
            theirs.append(report_write)
            self._loop.watch(child.report, lambda _: self._settle_beginning(child))
            streams = spawn.Streams(stdin.theirs, write, write, report_write)
            child.pids = request.get("pids", "")
            if child.pids == "container":
                child.status, status_write = os.pipe2(os.O_CLOEXEC)
                ours.append(child.status)
                theirs.append(status_write)
                child.pid = spawn.fork_init(request, streams, self._journal, status_write)
            else:
                beside = self._pod_namespaces.of(attempt.claim.uid) if child.pids else 0
                child.pid = spawn.fork(request, streams, self._journal, pids_of=beside)
            return child
        except BaseException:
            for fd in ours:
                self._loop.unwatch(fd)
                os.close(fd)
            stdin.close()
            raise
        finally:
            close_all(*theirs)
            stdin.close_child_end()

    def _leave_spare_descriptors(self, newest: int) -> None:
        """Raise OSError (EMFILE) if only spare descriptors are left for a new container: running
        ones may yet open their logs, and ending them takes descriptors, too."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if newest + len(self._running) + min(_SPARE_DESCRIPTORS, limit // 8) > limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _drain(self, capture: Capture) -> None:
        """Read available output; stop watching at its end."""
        if not capture.drain():
            self._loop.unwatch(capture.fd)

    def _settle_beginning(self, child: Child) -> bool:
        """Process the end of the start-up report: return True if the program runs, else record its
        error."""
        problem = os.read(child.report, 65536)
        self._loop.unwatch(child.report)
        os.close(child.report)
        child.report = -1
        self._journal.child_settled(child.attempt)
        if not problem:
            self._on_began(child, _now())
            if child.pids == "container":
                self._record_command(child)
            return True
        reason, message, pressure = json.loads(problem)
        self._release(child)
        self._not_started(child.attempt, reason, message, pressure)
        return False

    def _record_command(self, child: Child) -> None:
        """Record the command of a container's init, if it has not ended yet."""
        if started := linux.children(child.pid):
            self._journal.command_began(child.attempt, started[0])

    def _on_began(self, child: Child, at: float) -> None:
        """Record the start of a child, and sample its memory later."""
        child.started_at = child.attempt.started_at = at
        self._news.began(child.attempt)
        self._loop.after(
            FIRST_SAMPLE_SECONDS, lambda: self._sample_memory(child, FIRST_SAMPLE_SECONDS)
        )

    def _sample_memory(self, child: Child, age: float) -> None:
        """Sample the peak memory of a container, until it exceeds what the kernel reports anyway
        at its end, as a process starts as a copy of ours."""
        if self._running.get(child.attempt.claim) is not child:
            return
        pid = child.pid
        if child.pids == "container":
            pid = next(iter(linux.children(pid) or ()), 0)
        child.sampled = sample(pid) if pid else UNKNOWN
        if child.sampled.peak_kib <= self._least_peak_kib():
            interval = min(age, MAX_SAMPLE_SECONDS)
            self._loop.after(interval, lambda: self._sample_memory(child, age + interval))

    @staticmethod
    def _least_peak_kib() -> int:
        # Not `ru_maxrss`, which includes the process that started us. The kernel counts pages of
        # each CPU separately, so a copy may seem slightly larger.
        return sample(os.getpid()).peak_kib + _PEAK_TOLERANCE_KIB

    def _corrected(self, child: Child, usage: Usage) -> Usage:
        """Return the usage without the memory of our copy that the process was at first, if a
        sample shows it."""
        peak, cpu_ms = child.sampled
        stable = 0 < peak < usage.peak_kib and usage.cpu_ms - cpu_ms <= NEGLIGIBLE_CPU_MS
        if stable and usage.peak_kib <= self._least_peak_kib():
            return usage._replace(peak_kib=peak)
        return usage

    def _not_started(self, attempt: Attempt, reason: str, message: str, pressure: str) -> None:
        """Record a failed start: as final if the request is at fault, or withdrawn if the node is
        under pressure, so that it can be requested again."""
        if pressure:
            self._journal.withdraw(attempt)
            self._report_hindered(attempt.claim, pressure, message)
            return
        outcome = Outcome("refused", _now(), 128, 0, reason, message, alone=True)
        self._journal.end(attempt, outcome)
        self._news.add(attempt)

    def _report_hindered(self, claim: Claim, pressure: str, message: str) -> None:
        self._news.add_event(["hindered", *claim, pressure, message])

    # --- end of a container

    def _reap(self) -> None:
        """Process all ended children."""
        self._was_woken()
        ended: list[tuple[Child | Command, int, Usage]] = []
        while True:
            try:
                pid, status, rusage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._inits:
                self._inits.reaped(pid)
                # Reports that it wrote before it ended.
                self._inits.listen()
            child = self._children.pop(pid, None)
            if child is None:
                self._pod_namespaces.reaped(pid)
                continue
            usage = UNKNOWN
            if isinstance(child, Child):
                own = self._own_end(child)
                status, usage = (status, usage_of(rusage)) if own is None else own
            ended.append((child, os.waitstatus_to_exitcode(status), usage))
        strays = self._strays()
        for child, code, usage in ended:
            alone = self._clean_up_after(child, strays)
            if isinstance(child, Command):
                self._commands.ended(child, code)
            else:
                self._on_ended(child, code, usage, alone=alone)
        self._kill_daemons(strays)
        self._finish_turn()

    def _finish_turn(self) -> None:
        """Check for the end of all containers."""
        if not self._running:
            self.done = self.done or self._ending
        self._watch_for_idleness()

    def _own_end(self, child: Child) -> tuple[int, Usage] | None:
        """Return wait status and usage of the command whose init has ended; None if there is no
        init, or if it was killed before the command ended."""
        if child.init is not None:
            del self._inside[child.attempt.number]
            if not child.started_at:
                self._on_began(child, _now())
            return None if child.wait_status is None else (child.wait_status, child.usage)
        return init.end_of_command(child.status) if child.status >= 0 else None

    def _clean_up_after(self, child: Child | Command, strays: list[int] | None) -> bool:
        """Kill the processes left by an ended one; return whether it cannot have left any."""
        if child.pids == "container":
            # The kernel has killed the rest of a container's namespace, or will when its command
            # ends.
            return True
        if not child.pids and strays is not None and not strays:
            return True
        kill_session(child.pid)
        if isinstance(child, Child):
            self._left_behind.add(child.hostname)
        return False

    def _kill_daemons(self, strays: list[int] | None) -> None:
        """Kill daemons of ended containers. Processes that left their container's session are
        identified by the HOSTNAME in their environment, the Pod's name; without it, only once
        nothing else runs."""
        if not strays:
            # Only a container that ends while there are strays can have left any.
            self._left_behind.clear()
        elif not self._running:
            kill(strays)
        else:
            names = self._left_behind - {child.hostname for child in self._running.values()}
            kill(pid for pid in strays if spawn.hostname_of(pid) in names)

    def _strays(self) -> list[int] | None:
        """Return children that we did not start; None if the kernel does not provide them.

        A container ends with its first process, and nothing of its session may remain. Processes
        that it leaves become our children before its end is visible, so without strays there are
        none.
        """
        children = linux.children()
        if children is None:
            return None
        ours = self._pod_namespaces.pids
        return [
            pid
            for pid in children
            if pid not in self._children and pid not in ours and pid not in self._inits
        ]

    def _on_ended(self, child: Child, code: int, usage: Usage, *, alone: bool) -> None:
        if child.report >= 0 and not self._settle_beginning(child):
            return
        attempt = child.attempt
        if self._running.get(attempt.claim) is not child:
            # It never began, which was reported before.
            return
        self._release(child)
        if self._commands.kill_commands_of(child.pid):
            alone = False
        number = -code if code < 0 else 0
        peak, cpu = self._corrected(child, usage)
        code = 128 + number if number else code
        outcome = Outcome("exited", _now(), code, number, alone=alone, peak_kib=peak, cpu_ms=cpu)
        self._journal.end(attempt, outcome)
        self._news.add(attempt)

    def _release(self, child: Child) -> None:
        del self._running[child.attempt.claim]
        child.capture.drain(all_of_it=True)
        self._loop.unwatch(child.capture.fd)
        if not child.capture.close():
            self._owe_note(child.capture.log)
        child.stdin.close()
        close_all(child.status)
        child.status = -1

    def _owe_note(self, log: LogFile) -> None:
        """Queue the log of an ended container, to be completed when the disk has space."""
        if not self._owed_notes:
            self._loop.after(_NOTE_SECONDS, self._write_notes)
        if len(self._owed_notes) < _MAX_OWED_NOTES:
            self._owed_notes.append(log)

    def _write_notes(self) -> None:
        owed, self._owed_notes = self._owed_notes, []
        for log in owed:
            if log.note_losses() or not os.path.isdir(os.path.dirname(log.path)):
                log.close()
            else:
                self._owe_note(log)

    # --- reports

    def _send_events(self, events: list[list[Any]]) -> bool:
        """Write the journal, then send events to subscribers: clients must not be ahead of the
        journal. Return False if the journal cannot be written yet."""
        if not self._write_down():
            return False
        self._connections.notify_subscribers(events)
        return True

    def _write_down(self) -> bool:
        """Flush the journal; on failure, schedule a retry and return False."""
        done = self._journal.flush()
        if not done and not self._retry_timer:
            self._retry_timer = True
            self._loop.after(_RETRY_SECONDS, self._retry)
        return done

    def _retry(self) -> None:
        """Write the journal again."""
        self._retry_timer = False
        self._write_down()

    def _watch_for_idleness(self) -> None:
        if not self._idle_timer and not self._connections and not self._running:
            self._idle_timer = True
            self._loop.after(_IDLE_SECONDS, self._exit_if_idle)

    def _exit_if_idle(self) -> None:
        self._idle_timer = False
        if not self._connections and not self._running:
            self.done = True


def close_all(*descriptors: int) -> None:
    for fd in descriptors:
        if fd >= 0:
            os.close(fd)


def _now() -> float:
    """Return the time in seconds since the epoch."""
    return time.time_ns() / 1e9


def main() -> None:
    listener, lock, folder = map(int, sys.argv[2:5])
    # Kept open, and thereby locked, for our lifetime; not inherited by children. The folder is
    # locked, too.
    for fd in (listener, lock, folder):
        os.set_inheritable(fd, False)
    # Children share our memory until they exec; garbage collection would touch and thereby copy it.
    gc.freeze()
    gc.disable()
    try:
        # By its descriptor, the folder remains the same if it is moved.
        place = f"/proc/self/fd/{folder}"
        supervisor = Supervisor(place, Listener(folder, socket.socket(fileno=listener)))
    except NewerVersion as newer:
        # Our parent has made the same check and reported it.
        report(str(newer))
        sys.exit(1)
    supervisor.run()
