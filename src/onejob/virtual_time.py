"""Virtual-time event loop: time jumps to the next timer as soon as no callback is ready.

A test or a simulation that waits for an hour takes microseconds, and two runs with the same seed do
the same things in the same order: callbacks run in the order in which they were due.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from onejob.clock import LoopClock

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
#: Far more turns than legitimate work takes at one instant; a busy loop reaches it within a minute.
_MAX_TURNS = 3_000_000


class Stuck(RuntimeError):
    """The program under test would hang.

    Either no callback is ready and no timer is set, or callbacks are always ready and time does not
    advance.
    """


class _JumpingSelector(selectors.DefaultSelector):
    """Selector that polls real file descriptors, but advances virtual time instead of blocking."""

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

    def __init__(self, *, waits_for_threads: bool = False, most_turns: int = _MAX_TURNS) -> None:
        """`most_turns` is the number of loop iterations allowed at one instant of virtual time."""
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
            # Cancelling the tasks needs some turns, too.
            self._turns = 0
            raise Stuck(f"no time passes: {self._most_turns} turns within one moment")

    def advance(self, seconds: float) -> None:
        self._turns = 0
        self._virtual_now += seconds
        # A timer is due if it is less than this ahead. After half a year of virtual time, a
        # nanosecond is below the resolution of the float, and no timer would ever be due.
        self._clock_resolution = max(1e-9, math.ulp(self._virtual_now))

    def set_default_executor(self, executor: Executor) -> None:
        """Ignore the executor, which is never used.

        asyncio would wait for a thread that shuts it down, and virtual time waits for no thread.
        """
        if self.waits_for_threads:
            super().set_default_executor(cast("ThreadPoolExecutor", executor))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run the function at once.

        Work in other threads takes no virtual time, and happens in order.
        """
        if self.waits_for_threads:
            return super().run_in_executor(executor, func, *args)
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time and return its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_clock(epoch: datetime = NOON) -> LoopClock:
    """Return the clock of the running virtual loop."""
    return LoopClock(asyncio.get_running_loop(), epoch)
