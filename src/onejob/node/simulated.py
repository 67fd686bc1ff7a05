"""Simulated runtime: Pods without processes, whose duration and exit code come from annotations.

For benchmarks, demonstrations and the simulator. One heap holds all scheduled ends, so that a
hundred thousand Pods need no tasks or timers of their own.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from onejob.clock import Clock
from onejob.node.options import NodeOptions
from onejob.node.runtime import (
    AttemptRef,
    CommandResult,
    Deliver,
    Ended,
    Fetch,
    NodeContext,
    RecoveredState,
    Runtime,
    RuntimeEvent,
    RuntimeKind,
    RuntimeTraits,
    Started,
)
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.lifecycle import Exit

log = logging.getLogger(__name__)

#: Annotation: duration in seconds, 0 if absent.
DURATION = "onejob.dev/simulated-duration"
#: Annotation: exit code, or one per attempt, comma-separated; the last repeats for further
#: attempts.
EXIT_CODE = "onejob.dev/simulated-exit-code"

_SIGTERM = 15


class SimulatedRuntime(Runtime):
    """Runtime without processes, for benchmarks, demonstrations and the simulator.

    Guarantees: each attempt ends after the annotated duration with the annotated exit code; `stop`
    ends it at once with 143, whatever the grace period. Containers have no output, and commands
    succeed. Nothing survives the process: `start` returns no attempts.
    """

    name = "simulated"
    traits = RuntimeTraits(runs_programs=False, uses_images=True, boundless=True)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deliver: Deliver
        self._ends: list[tuple[float, int, AttemptRef, int]] = []
        self._running: dict[AttemptRef, float] = {}
        #: Attempts by Pod UID, so that none is made twice.
        self._made: dict[str, set[AttemptRef]] = {}
        self._started: list[RuntimeEvent] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._flush_due = False

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        self._deliver = deliver
        return RecoveredState()

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        uid = pod.metadata.uid
        ref = AttemptRef(uid, container.name, attempt)
        made = self._made.setdefault(uid, set())
        if ref in made:
            return
        made.add(ref)
        seconds, code = 0.0, 0
        if annotations := pod.metadata.annotations:
            seconds = _duration(annotations.get(DURATION, ""))
            code = _exit_code(annotations.get(EXIT_CODE, ""), attempt)
        now = self._clock.monotonic()
        self._running[ref] = now
        self._started.append(Started(ref, self._clock.now()))
        heapq.heappush(self._ends, (now + seconds, next(self._order), ref, code))
        self._flush_soon()

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        if ref in self._running:
            now = self._clock.monotonic()
            heapq.heappush(self._ends, (now, next(self._order), ref, 128 + _SIGTERM))
            self._flush_soon()

    def release(self, uid: str) -> None:
        """End the Pod without further events, and forget its attempts."""
        for ref in self._made.pop(uid, ()):
            self._running.pop(ref, None)

    def discard(self, uid: str) -> None:
        """Do the same as `release`: a simulated Pod has no data."""
        self.release(uid)

    def limits_problem(self, container: Container, ref: AttemptRef) -> str:
        """Return "": simulated containers have no limits that could be exceeded."""
        return ""

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        return CommandResult(0, "")

    def running(self, ref: AttemptRef) -> bool:
        return ref in self._running

    async def close(self, *, end_pods: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if end_pods:
            for ref in list(self._running):
                self.stop(ref, 0)
            self._flush()

    def _flush_soon(self) -> None:
        """Schedule one `_flush` for the next iteration of the event loop."""
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Deliver all starts and all ends that are due, and set a timer for the next end."""
        self._flush_due = False
        events, self._started = self._started, []
        now, moment = self._clock.monotonic(), self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            _, _, ref, code = heapq.heappop(self._ends)
            began = self._running.pop(ref, None)
            if began is not None:
                signal = _SIGTERM if code == 128 + _SIGTERM else 0
                started_at = moment - timedelta(seconds=now - began)
                events.append(Ended(ref, Exit(code, moment, started_at, signal)))
        if events:
            self._deliver(events)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._ends[0][0] - now, self._flush)


def _duration(text: str) -> float:
    """Return the annotated seconds; 0, with a warning in the log, if they are malformed."""
    if not text:
        return 0.0
    try:
        return max(float(text), 0.0)
    except ValueError:
        log.warning("annotation %s: %r is not a number of seconds", DURATION, text)
        return 0.0


def _exit_code(text: str, attempt: int) -> int:
    """Return the annotated exit code of an attempt; 0, with a warning in the log, if it is
    malformed."""
    if not text:
        return 0
    codes = text.split(",")
    try:
        return int(codes[min(attempt, len(codes) - 1)])
    except ValueError:
        log.warning("annotation %s: %r is not a list of numbers", EXIT_CODE, text)
        return 0


def _make(options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext) -> Runtime:
    return SimulatedRuntime(clock)


KIND: Final = RuntimeKind(SimulatedRuntime.traits, _make)
