"""Injectable clock: the only reader of real time. All other code receives a `Clock`.

Waiting uses the event loop's own timers (`asyncio.sleep`, `loop.call_at`), so a virtual loop
(`onejob.virtual_time`) controls both the result of `now()` and the duration of sleeps.
"""

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_ZONES = "zoneinfo/"


def local_zone() -> str:
    """Return the name of this machine's time zone; "UTC" if it has none."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if name:
        return name
    _, found, zone = os.path.realpath("/etc/localtime").partition(_ZONES)
    return zone if found else "UTC"


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall-clock time in UTC. May jump."""

    def monotonic(self) -> float:
        """Return seconds that never decrease; for durations and timers."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class LoopClock:
    """Wall clock derived from a loop's time: `epoch` is the wall-clock time at loop time 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: datetime) -> None:
        self._loop = loop
        self.epoch = epoch

    def now(self) -> datetime:
        return self.epoch + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()
