"""How long the loop is held: by one callback, and between two looks of whoever waits for it.

Both are given in CPU time of the loop's thread, which is what our code asks of it, and pauses also
as they passed on the clock: on a shared machine those hold the times when we were not let run.
"""

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVarTuple

import uvloop

_TICK_SECONDS = 0.002

Ts = TypeVarTuple("Ts")


class TimedLoop(uvloop.Loop):
    """The loop that `onejob serve` runs on, with a clock around every callback and step of a task.

    Not around what the loop itself does when a socket is ready.
    """

    #: CPU seconds of its thread; whatever Python's garbage collector took meanwhile included.
    longest_callback = 0.0

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon(self._timed(callback), *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._timed(callback), *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_later(delay, self._timed(callback), *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._timed(callback), *args, context=context)

    def _timed(self, callback: Callable[[*Ts], object]) -> Callable[[*Ts], object]:
        def run(*args: *Ts) -> None:
            start = time.thread_time()
            try:
                callback(*args)
            finally:
                self.longest_callback = max(self.longest_callback, time.thread_time() - start)

        return run


@dataclass(slots=True)
class Pauses:
    """By how much a short sleep took longer than it should have."""

    longest: float = 0.0
    #: The most CPU time that the loop's thread spent while somebody slept so.
    longest_cpu: float = 0.0

    async def watch(self, end: "asyncio.Future[Any]") -> None:
        while not end.done():
            clock, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - clock - _TICK_SECONDS)
            self.longest_cpu = max(self.longest_cpu, time.thread_time() - cpu)
