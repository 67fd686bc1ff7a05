"""Production supervisors, driven by the simulated kernel until they exit or are killed."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from onejob.node.runtime import AttemptRef
from onejob.node.supervisor.connections import Connection
from onejob.node.supervisor.main import Supervisor
from onejob.node.supervisor.record_file import records_in
from sim.faults import Dice, Trace
from sim.node.descriptors import Epoll, Listener, PipeReader, Table
from sim.node.system_calls import SupervisorKilled, SystemCalls
from sim.node.timeline import Timeline

#: Fields added to the handshake since its first version.
_ADDED = frozenset({"version", "settles", "folders", "limits_rights", "pid_namespace_problem"})
#: Maximum delay until a woken supervisor runs, in seconds.
_SLOWEST_TURN_SECONDS = 0.005


class RunningSupervisor:
    """One process of the supervisor.

    `on_end` is called when it exits or is killed; `complain` gets violations of its guarantees.
    """

    def __init__(
        self,
        folder: Path,
        calls: SystemCalls,
        timeline: Timeline,
        dice: Dice,
        trace: Trace,
        on_end: Callable[[], None],
        complain: Callable[[str], None],
    ) -> None:
        self.table = Table()
        self.listener = Listener(self.table)
        self.epoll = Epoll(self.table)
        self._folder = folder
        self._calls = calls
        self._timeline = timeline
        self._dice = dice
        self._trace = trace
        self._on_end = on_end
        self._complain = complain
        wake, self._wake_writer = self.table.pipe()
        self._wake_fd = wake
        self._supervisor: Supervisor | None = None
        self.ended = False
        self._turn_due = False
        #: Time of the next wake-up for its timers. One wake-up is enough, the earliest.
        self._timer_at = math.inf

    def start(self) -> None:
        """Begin the main program, a while after exec."""
        if not self.ended:
            self._run(self._begin)

    def wake(self) -> None:
        """Schedule a turn of its loop, because a descriptor is ready."""
        if not self._turn_due and not self.ended and self._supervisor is not None:
            self._turn_due = True
            self._timeline.after(self._dice.up_to("slow start", _SLOWEST_TURN_SECONDS), self._turn)

    def child_ended(self) -> None:
        reader = self.table.get(self._wake_fd)
        assert isinstance(reader, PipeReader)
        reader.pipe.data += b"\0"
        self.wake()

    def end(self, why: str) -> None:
        """End the process: the kernel releases its resources."""
        if self.ended:
            return
        self.ended = True
        self._trace.note(f"the supervisor {why}")
        self.table.close_all()
        self._on_end()

    # --- its view of the kernel

    def at_call(self) -> None:
        if self.ended or self._dice.happens("supervisor killed"):
            self.end("is killed")
            raise SupervisorKilled

    def said(self, text: str) -> None:
        self._trace.note(f"the supervisor says: {text.strip()}")
        if "Traceback" in text and "OSError" not in text:
            self._complain(f"a supervisor made a mistake: {text}")

    def check_told(self, line: bytes) -> None:
        """Complain about a reported end that the journal does not have.

        Lost attempts are exempt: the loss follows from a claim without an end, so the next
        supervisor would report the same.
        """
        message = json.loads(line)
        ends = [
            AttemptRef(*record[1:4])
            for record in (*message.get("events", ()), *message.get("known", ()))
            if record[0] in ("exited", "refused")
        ]
        if ends:
            on_record = recorded(self._folder).ended
            for ref in ends:
                if ref not in on_record:
                    self._complain(f"the end of {ref} was told before it was recorded")

    # --- execution

    def _begin(self) -> None:
        # In production the folder is passed on as a descriptor, and the listener by the parent.
        listener: Any = self.listener
        self._supervisor = Supervisor(str(self._folder), listener)
        if self._dice.happens("old supervisor"):
            speak_as_before(self._supervisor)
        self._supervisor.begin(self._wake_fd)

    def _turn(self) -> None:
        self._turn_due = False
        if not self.ended:
            assert self._supervisor is not None
            self._run(self._supervisor.turn)

    def _run(self, part: Callable[[], None]) -> None:
        try:
            with self._calls.running(self):
                part()
        except SupervisorKilled:
            return
        supervisor = self._supervisor
        assert supervisor is not None
        if supervisor.done:
            self.end("leaves")
        elif self.epoll.poll():
            self.wake()
        elif (delay := supervisor.next_timer_in) >= 0:
            self._turn_within(delay)

    def _turn_within(self, delay: float) -> None:
        # Rounded up as epoll does: never too early, when the timer would not be due yet.
        seconds = math.ceil(delay * 1000) / 1000
        due = self._timeline.now + seconds
        if due < self._timer_at:
            self._timer_at = due
            self._timeline.after(seconds, lambda: self._turn_for_timer(due))

    def _turn_for_timer(self, due: float) -> None:
        if due != self._timer_at:
            return
        self._timer_at = math.inf
        if not self._turn_due:
            self._turn()


def speak_as_before(supervisor: Supervisor) -> None:
    """Make the supervisor behave like one of an earlier version that survived an upgrade.

    It omits the fields that were added to the protocol since.
    """
    connections = supervisor._connections
    send = connections.send

    def send_less(connection: Connection, message: dict[str, Any]) -> None:
        less = {name: part for name, part in message.items() if name not in _ADDED}
        for name in less.keys() & {"known", "events"}:
            less[name] = [
                event[:-1] if event[0] in ("exited", "refused", "lost") else event
                for event in less[name]
            ]
        send(connection, less)

    connections.send = send_less  # type: ignore[method-assign]


class Recorded(NamedTuple):
    """Attempts in a journal: claims, and claims with an end."""

    claimed: set[AttemptRef]
    ended: set[AttemptRef]


def recorded(folder: Path) -> Recorded:
    """Return the attempts in the journal of a supervisor's folder."""
    path = folder / "claims"
    claims: dict[int, AttemptRef] = {}
    ended: set[AttemptRef] = set()
    for record in records_in(path.read_bytes() if path.exists() else b""):
        fields = json.loads(record.payload)
        if fields["k"] == "claim":
            claims[fields["n"]] = AttemptRef(fields["uid"], fields["container"], fields["attempt"])
        elif fields["k"] == "end" and fields["n"] in claims:
            ended.add(claims[fields["n"]])
    return Recorded(set(claims.values()), ended)
