"""Event loop stalls: longest callback, and longest delay of a short sleep.

Both are reported in CPU time of the loop's thread, which is the cost of our own code. Delays are
also reported in wall-clock time: on a shared machine that includes times when the process was not
scheduled.
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
    """Event loop of `onejob serve` that times every callback and every step of a task.

    Excludes the loop's own work when a socket is ready.
    """

    #: CPU seconds of the loop's thread, including garbage collection meanwhile.
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
    """Excess duration of short sleeps on the event loop, in seconds."""

    longest: float = 0.0
    #: Maximum CPU time of the loop's thread during such a sleep, in seconds.
    longest_cpu: float = 0.0

    async def watch(self, end: "asyncio.Future[Any]") -> None:
        while not end.done():
            clock, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - clock - _TICK_SECONDS)
            self.longest_cpu = max(self.longest_cpu, time.thread_time() - cpu)
