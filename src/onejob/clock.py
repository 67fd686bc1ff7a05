"""The only reader of real time. Everything else is handed a `Clock`.

Waiting is done with the event loop's own timers (`asyncio.sleep`, `loop.call_at`), so a
virtual loop (`onejob.virtual_time`) moves both what `now()` says and what sleepers wait for.
"""

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_ZONES = "zoneinfo/"


def local_zone() -> str:
    """The name of this machine's time zone; UTC where it has none."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if name:
        return name
    _, found, zone = os.path.realpath("/etc/localtime").partition(_ZONES)
    return zone if found else "UTC"


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC. May jump."""

    def monotonic(self) -> float:
        """Seconds that only grow; for durations and timers."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class LoopClock:
    """Wall time derived from a loop's time: `epoch` is what the clock said at loop time 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: datetime) -> None:
        self._loop = loop
        self.epoch = epoch

    def now(self) -> datetime:
        return self.epoch + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()
