"""Pilot: the program of an allocation. It runs a supervisor on its node, and passes messages
between the supervisor's socket and the allocation's files.

Limited to the standard library and `node.supervisor`. If the supervisor dies, another one takes
over its journal, as on one machine. The pilot is the supervisor's owner: if the pilot dies, the
supervisor ends all Pods and records that in its journal. The batch script then starts `settle`,
which waits for that, or does it if the supervisor is dead, too. If the script dies, the pilot ends
all Pods.

Lines of the file `requests`, besides the requests to the supervisor:
    {"pilot": "end"}          end all Pods and the allocation
    {"pilot": "alive"}        the server lives; expected every few seconds
Lines of the file `events`, besides the supervisor's answers:
    {"up": {...}}             first line of a pilot: its node, job and processors
    {"beat": n, "now": t}     heartbeat, with the time of the node's clock
    {"closing": o, "why": w}  requests beyond the offset `o` are not executed; the allocation ends
                              with all Pods if `why` is not empty, and soon otherwise
    {"bye": o}                last line: nothing runs any more
"""

import gc
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from onejob.node.slurm.mailbox import Inbox, Outbox
from onejob.node.slurm.settling import record_supervisor, settle_allocation
from onejob.node.supervisor.listener import Listener, address, bind
from onejob.node.supervisor.loop import report, report_exception
from onejob.node.supervisor.main import Supervisor

#: Seconds between heartbeats; the server compares their numbers, not their times.
BEAT_SECONDS = 2.0
#: Poll intervals: after recent activity, and the longest.
_MIN_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.25
#: Seconds for which ends by a signal that no request explains are held back: if Slurm has sent the
#: signal to all processes, the pilot receives it, too, and has to report that first.
_EXPLANATION_SECONDS = 0.5
#: Signals by which Slurm ends processes.
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
#: Seconds without a line of the server after which it counts as dead. The allocation then ends once
#: it has been idle, or at once with all Pods if it ends with the server.
_SERVER_SECONDS = 60.0
#: Variables of the allocation that Pods get, unless they have them already.
_PASSED_PREFIXES = ("SLURM_", "SLURMD_", "CUDA_VISIBLE", "ROCR_VISIBLE", "GPU_DEVICE_ORDINAL")
_PACKAGES = str(pathlib.Path(__file__).resolve().parents[3])
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from onejob.node.slurm.pilot import supervise; supervise()"
)


class Pilot:
    """Relay between the files of an allocation and the supervisor on this node."""

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
            self._settings: dict[str, Any] = json.load(file)
        self._folder = folder
        self._inbox = Inbox(os.path.join(folder, "requests"))
        self._outbox = Outbox(os.path.join(folder, "events"))
        #: Lines that are not written yet, because the file system refused them or they are held.
        self._unwritten: list[bytes] = []
        self._held: list[bytes] = []
        self._held_since = 0.0
        self._beat = 0
        self._next_beat = 0.0
        self._heard_server = time.monotonic()
        self._idle_since = time.monotonic()
        self._running: set[tuple[Any, ...]] = set()
        #: Start requests that the supervisor has not answered; repeated for another one.
        self._asked: dict[tuple[Any, ...], dict[str, Any]] = {}
        #: Attempts that requests have stopped.
        self._stopped: set[tuple[Any, ...]] = set()
        self._closed = False
        self._ending = False
        self._signals: list[int] = []
        self._parent = os.getppid()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._received = b""
        self._local = tempfile.mkdtemp(prefix="onejob-pilot-")
        self._passed = {
            name: value for name, value in os.environ.items() if name.startswith(_PASSED_PREFIXES)
        }

    def run(self) -> None:
        """Relay until the allocation ends."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda number, _: self._signals.append(number))
        try:
            self._say({"up": self._description()})
            self._start_supervisor()
            pause = _MIN_POLL_SECONDS
            while not self._turn(pause):
                busy = self._active
                pause = _MIN_POLL_SECONDS if busy else min(1.5 * pause, _MAX_POLL_SECONDS)
            self._flush_held()
            self._say({"bye": self._inbox.offset})
            self._write()
        finally:
            shutil.rmtree(self._local, ignore_errors=True)

    def _turn(self, pause: float) -> bool:
        """Pass on what has arrived; return whether the allocation is over."""
        self._active = False
        if self._sock is not None:
            readable, _, _ = select.select([self._sock], [], [], pause)
            if readable:
                self._active = True
                self._receive(self._sock)
        else:
            if self._ending and self._has_ended_in_order():
                return True
            self._start_supervisor()
        self._heed_signals()
        if os.getppid() != self._parent:
            # The script, and with it the job.
            self._end("the batch script was killed")
        self._read_requests()
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._beat += 1
            self._say({"beat": self._beat, "now": time.time_ns() / 1e9})
        if self._held and now - self._held_since > _EXPLANATION_SECONDS:
            self._flush_held()
        self._write()
        self._check_reasons_to_end(now)
        return False

    def _heed_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGUSR1:
                self._close("")
            else:
                self._end("Slurm ended the allocation")

    def _check_reasons_to_end(self, now: float) -> None:
        """End an allocation that nobody uses."""
        if self._ending:
            return
        if self._running:
            self._idle_since = now
        silent = now - self._heard_server > _SERVER_SECONDS
        if silent and self._settings["ends_with_server"]:
            self._end("the run of onejob has ended")
        elif not self._running and (self._closed or (silent and self._was_idle(now))):
            self._end("")

    def _was_idle(self, now: float) -> bool:
        return now - self._idle_since > float(self._settings["idle_seconds"])

    def _close(self, why: str) -> None:
        """Execute no further requests for starts."""
        if not self._closed or why:
            self._closed = True
            self._say({"closing": self._inbox.offset, "why": why})

    def _end(self, why: str) -> None:
        """End all Pods, then the allocation."""
        if self._ending:
            return
        self._ending = True
        self._close(why)
        self._flush_held()
        self._send({"do": "end"})

    # --- files

    def _read_requests(self) -> None:
        try:
            lines = self._inbox.read()
        except OSError as error:
            report(f"cannot read requests: {error}")
            return
        for line, _ in lines:
            self._active = True
            self._heard_server = time.monotonic()
            try:
                message = json.loads(line)
                self._handle(message)
            except ValueError:
                # The server was killed while it wrote this line, and repeats it.
                report(f"skipped an incomplete request of {len(line)} bytes")
            except Exception:
                report_exception()

    def _handle(self, message: dict[str, Any]) -> None:
        """Handle a message of the server."""
        if message.get("pilot") == "end":
            self._end("")
            return
        if "pilot" in message:
            return
        match message["do"]:
            case "spawn" if self._closed:
                # The server takes them back when it reads the line "closing".
                return
            case "spawn":
                for item in message["items"]:
                    item["env"] = {**self._passed, **item["env"]}
                    self._running.add(tuple(item["claim"]))
                    self._asked[tuple(item["claim"])] = item
            case "stop":
                self._stopped.update((uid, name, n) for uid, name, n, _ in message["items"])
            case "forget":
                forgotten = set(message["uids"])
                self._running = {claim for claim in self._running if claim[0] not in forgotten}
                self._asked = {
                    claim: item for claim, item in self._asked.items() if claim[0] not in forgotten
                }
                self._stopped = {claim for claim in self._stopped if claim[0] not in forgotten}
            case _:
                pass
        self._send(message)

    def _say(self, line: dict[str, Any]) -> None:
        self._unwritten.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _write(self) -> None:
        """Write pending lines; on failure they are kept."""
        if not self._unwritten:
            return
        try:
            self._outbox.append(b"".join(self._unwritten))
        except OSError as error:
            report(f"cannot write events: {error}")
            return
        self._unwritten.clear()

    # --- supervisor

    def _start_supervisor(self) -> None:
        """Start a supervisor that takes over the journal, and connect to it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            local = os.open(self._local, os.O_RDONLY | os.O_DIRECTORY)
            bind(local, listener)
            # Of earlier supervisors, none is alive: the pilot has been connected to each.
            process = subprocess.Popen(
                [sys.executable, "-S", "-I", "-c", _BOOTSTRAP, _PACKAGES,
                 self._folder, str(local), str(listener.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(listener.fileno(), local),
                start_new_session=True,
                cwd="/",
            )  # fmt: skip
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(address(local))
            os.close(local)
        self._supervisor, self._sock, self._received = process, sock, b""
        record_supervisor(self._folder, process.pid)
        namespaces = bool(self._settings["pid_namespaces"])
        self._send({"do": "hello", "owner": True, "pid_namespaces": namespaces})
        if self._ending:
            self._send({"do": "end"})

    def _has_ended_in_order(self) -> bool:
        """Return whether the supervisor has ended all Pods; False if it was killed, and another has
        to."""
        return self._supervisor is not None and self._supervisor.wait() == 0

    def _send(self, message: dict[str, Any]) -> None:
        if self._sock is None:
            return
        try:
            self._sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            # The end of the connection is handled when it is read.
            report(f"cannot reach the supervisor: {error}")

    def _receive(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            sock.close()
            self._sock = None
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        """Queue a line of the supervisor for the server."""
        message = json.loads(line)
        unexplained = False
        for event in message.get("known", message.get("events", ())):
            claim = tuple(event[1:4])
            self._asked.pop(claim, None)
            if event[0] in ("exited", "refused", "lost", "hindered"):
                self._running.discard(claim)
                killed = event[0] == "exited" and event[7] in _ENDING_SIGNALS
                unexplained = unexplained or (killed and claim not in self._stopped)
        if "known" in message and self._asked:
            self._send({"do": "spawn", "items": list(self._asked.values())})
        if self._held or (unexplained and not self._closed):
            if not self._held:
                self._held_since = time.monotonic()
            self._held.append(line + b"\n")
        else:
            self._unwritten.append(line + b"\n")

    def _flush_held(self) -> None:
        self._unwritten += self._held
        self._held.clear()

    def _description(self) -> dict[str, Any]:
        """Return the facts about this allocation that the server needs."""
        return {
            "job": os.environ.get("SLURM_JOB_ID", ""),
            "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "now": time.time_ns() / 1e9,
        }


def supervise() -> None:
    """Run the supervisor with its journal in the allocation's folder, and its socket in a folder of
    this node."""
    folder, local, listener = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for fd in (local, listener):
        os.set_inheritable(fd, False)
    gc.freeze()
    gc.disable()
    Supervisor(folder, Listener(local, socket.socket(fileno=listener))).run()


def main() -> None:
    if claim_folder(sys.argv[1]):
        Pilot(sys.argv[1]).run()


def claim_folder(folder: str) -> bool:
    """Return whether this is the first pilot of an allocation.

    A slurmctld that was killed may start a job again that it had just started: the second pilot
    would execute all requests again.
    """
    try:
        os.close(os.open(os.path.join(folder, "claimed"), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        report("the allocation has had a pilot before: it was started twice")
        return False
    return True


def settle() -> None:
    """Settle what a dead pilot has left."""
    settle_allocation(sys.argv[1], BEAT_SECONDS)
