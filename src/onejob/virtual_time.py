"""An event loop whose time jumps to the next timer as soon as nothing else is ready.

A test or a simulation that waits for an hour takes microseconds, and two runs with the same
seed do the same things in the same order: callbacks run in the order in which they were due.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, TypeVar

from onejob.clock import LoopClock

T = TypeVar("T")

NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
#: Far more than any honest work takes in one moment; a busy loop is there within a minute.
_MOST_TURNS = 3_000_000


class Stuck(RuntimeError):
    """The program under test would go on for ever: nothing is ready and no timer is set, or
    something is always ready and no time passes."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls real file descriptors, but never blocks for a timer: it moves time instead."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self.loop.count_turn()
            return ready
        if timeout is None:
            if self.loop.waits_for_threads:
                return super().select(None)
            raise Stuck("nothing is scheduled and nothing is ready")
        self.loop.advance(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Use through `run_virtual`, or pass to `asyncio.Runner(loop_factory=VirtualTimeLoop)`."""

    def __init__(self, *, waits_for_threads: bool = False, most_turns: int = _MOST_TURNS) -> None:
        """`most_turns` is how often callbacks may make each other ready in one moment."""
        self._virtual_now = 0.0
        self._turns = 0
        self._most_turns = most_turns
        self.waits_for_threads = waits_for_threads
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual_now

    def count_turn(self) -> None:
        self._turns += 1
        if self._turns > self._most_turns:
            # What ends the tasks needs some turns, too.
            self._turns = 0
            raise Stuck(f"no time passes: {self._most_turns} turns within one moment")

    def advance(self, seconds: float) -> None:
        self._turns = 0
        self._virtual_now += seconds
        # A timer is due if it is less than this ahead. Half a year on, a nanosecond is too
        # little to make a difference to the time, and no timer would ever be due.
        self._clock_resolution = max(1e-9, math.ulp(self._virtual_now))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """At once: what another thread would do takes no virtual time, and happens in order."""
        if self.waits_for_threads:
            return super().run_in_executor(executor, func, *args)
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_clock(epoch: datetime = NOON) -> LoopClock:
    """The clock of the running virtual loop."""
    return LoopClock(asyncio.get_running_loop(), epoch)
