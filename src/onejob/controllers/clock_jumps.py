"""Notices when the wall clock jumps: set by hand, or the machine was asleep.

Timers run on monotonic time, so what is due at a time of day would come early or late.
"""

import asyncio
import logging
from collections.abc import Callable

from onejob.clock import Clock

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 60.0
#: Slower drift than this is what clock synchronisation does all the time.
_TOLERATED_SECONDS = 1.0


async def watch_clock(clock: Clock, jumped: Callable[[], None]) -> None:
    """Call `jumped` after each jump, until cancelled."""
    distance = clock.now().timestamp() - clock.monotonic()
    while True:
        await asyncio.sleep(_LOOK_EVERY_SECONDS)
        newest = clock.now().timestamp() - clock.monotonic()
        if abs(newest - distance) > _TOLERATED_SECONDS:
            log.warning("the clock jumped by %.1f s", newest - distance)
            jumped()
        distance = newest
