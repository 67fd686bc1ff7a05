"""Connection between a control plane and a supervisor: bytes in order, split anywhere, delayed."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from onejob.node.process.supervisor_client import Conversation
from sim.faults import Dice
from sim.node.descriptors import Socket, Table
from sim.node.timeline import Timeline

_LATEST_SECONDS = 2.0


class Listening(Protocol):
    """The supervisor at the other end."""

    def wake(self) -> None: ...

    def check_told(self, line: bytes) -> None:
        """Check a line that the supervisor sends."""


class Wire:
    """One connection: `conversation` is the control plane's end, `socket` the supervisor's.

    As with real sockets, bytes that one side sent arrive after its death, too.
    """

    def __init__(
        self,
        table: Table,
        timeline: Timeline,
        dice: Dice,
        rng: Random,
        conversation: Conversation,
        supervisor: "Listening",
        on_repeated: Callable[[bytes], None],
    ) -> None:
        """Connect both ends. `on_repeated` gets the requests that arrive twice."""
        self._timeline = timeline
        self._dice = dice
        self._rng = rng
        self._conversation: Conversation | None = conversation
        self._supervisor = supervisor
        self._on_repeated = on_repeated
        self.socket = Socket(table, self._say)
        self.socket.on_close = self._hang_up_supervisor
        #: Arrival times of the last data in each direction, which later data never overtakes.
        self._to_plane_at = self._to_supervisor_at = 0.0
        self._under_way: list[bytes] = []
        self._said = b""
        self._closing = False
        conversation.connection_made(self)  # type: ignore[arg-type]

    # --- the control plane's end: the methods of `asyncio.Transport` that it uses

    def write(self, data: bytes) -> None:
        # Servers of earlier versions repeat their requests after replacing a supervisor.
        twice = b'"spawn"' in data and self._dice.happens("repeated request")
        if twice:
            self._on_repeated(data)
        for _ in range(2 if twice else 1):
            self._under_way.append(data)
            self._to_supervisor_at = self._moment(self._to_supervisor_at, "late request")
            self._timeline.at(self._to_supervisor_at, self._deliver)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._end_supervisor_side()
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            conversation.connection_lost(None)

    def cut(self) -> None:
        """Cut the connection of a dead control plane. Its last bytes may be lost."""
        self._conversation = None
        self._closing = True
        if self._under_way and self._dice.happens("lost request"):
            data = b"".join(self._under_way)
            kept = data[: self._rng.randrange(len(data))]
            # As many pieces as there are pending deliveries.
            self._under_way = [kept, *[b""] * (len(self._under_way) - 1)]
        self._end_supervisor_side()

    def _deliver(self) -> None:
        self.socket.arrived += self._under_way.pop(0)
        self._supervisor.wake()

    def _end_supervisor_side(self) -> None:
        def end() -> None:
            self.socket.ended = self.socket.broken = True
            self._supervisor.wake()

        self._to_supervisor_at = max(self._to_supervisor_at, self._timeline.now)
        self._timeline.at(self._to_supervisor_at, end)

    # --- the supervisor's end

    def _say(self, data: bytes) -> int:
        size = len(data)
        if size > 1 and self._dice.happens("short send"):
            size = self._rng.randrange(1, size)
        *lines, self._said = (self._said + data[:size]).split(b"\n")
        for line in lines:
            self._supervisor.check_told(line)
        self._to_plane_at = self._moment(self._to_plane_at, "late report")
        arriving = bytes(data[:size])
        self._timeline.at(self._to_plane_at, lambda: self._arrive(arriving))
        return size

    def _arrive(self, data: bytes) -> None:
        if self._conversation is not None:
            self._conversation.data_received(data)

    def _hang_up_supervisor(self) -> None:
        self._to_plane_at = max(self._to_plane_at, self._timeline.now)
        self._timeline.at(self._to_plane_at, self._end_plane_side)

    def _end_plane_side(self) -> None:
        self._closing = True
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            conversation.connection_lost(None)

    def _moment(self, last: float, fault: str) -> float:
        delay = self._dice.up_to(fault, _LATEST_SECONDS) if self._dice.happens(fault) else 0.0
        return max(last, self._timeline.now + delay)
