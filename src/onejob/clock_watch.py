"""Detection of wall-clock jumps: the clock was set, or the machine was suspended.

Timers run on monotonic time, which does not follow the wall clock and stops during a suspend.
Therefore components with deadlines at a wall-clock time must re-evaluate them after a jump; they
register a callback with `on_jump`.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onejob.clock import Clock, SystemClock

log = logging.getLogger(__name__)

#: Seconds within which a jump is detected if the kernel does not report it.
LOOK_EVERY_SECONDS = 5.0
#: Smaller steps than this, in sum, are ordinary clock synchronisation.
TOLERATED_SECONDS = 1.0

# From <sys/timerfd.h>; Python has them from 3.13 on.
_CLOCK_REALTIME = 0
_ABSOLUTE, _CANCEL_ON_SET = 1, 2
#: Never reached, and still representable: the year 2242.
_NEVER = 2**33


class ClockWatch:
    def __init__(
        self,
        clock: Clock,
        open_alarm: Callable[[], int] | None = None,
        *,
        look_every_seconds: float = LOOK_EVERY_SECONDS,
    ) -> None:
        """`open_alarm` opens a descriptor that becomes readable when the clock is set.

        The default is a timerfd, if `clock` is the system's clock.
        """
        self._clock = clock
        if open_alarm is None and isinstance(clock, SystemClock):
            open_alarm = open_clock_alarm
        self._open_alarm = open_alarm
        self._look_every_seconds = look_every_seconds
        self._listeners: list[Callable[[], None]] = []
        self._distance = self._measure()

    def on_jump(self, jumped: Callable[[], None]) -> None:
        """Call `jumped` after each jump, forward or back."""
        self._listeners.append(jumped)

    async def run(self) -> None:
        """Watch until cancelled."""
        with self._watch_alarm():
            while True:
                self._check()
                await asyncio.sleep(self._look_every_seconds)

    def _check(self) -> None:
        """Compare both clocks, and report a jump of the wall clock."""
        distance = self._measure()
        seconds = distance - self._distance
        if abs(seconds) <= TOLERATED_SECONDS:
            return
        self._distance = distance
        way = "forward" if seconds > 0 else "back"
        log.warning(
            "system clock was set %s by %.1f s, or the machine was suspended", way, abs(seconds)
        )
        for jumped in self._listeners:
            jumped()

    def _measure(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    @contextmanager
    def _watch_alarm(self) -> Iterator[None]:
        """Check at once when the kernel reports a clock change (timerfd), where supported."""
        if self._open_alarm is None:
            yield
            return
        try:
            alarm = self._open_alarm()
        except OSError as error:
            log.info("cannot receive clock changes from the kernel (%s): polling instead", error)
            yield
            return
        loop = asyncio.get_running_loop()

        def rang() -> None:
            try:
                os.read(alarm, 8)
            except OSError as error:
                # ECANCELED reports that the clock was set; the timer stays armed.
                if error.errno != errno.ECANCELED:
                    log.warning("the kernel stopped reporting clock changes: %s", error)
                    loop.remove_reader(alarm)
            self._check()

        loop.add_reader(alarm, rang)
        try:
            yield
        finally:
            loop.remove_reader(alarm)
            os.close(alarm)


def open_clock_alarm() -> int:
    """Return a Linux timerfd that becomes readable when the clock is set, also by a resume.

    Raises OSError.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timerfd_create"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    descriptor: int = libc.timerfd_create(_CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise _error(ctypes.get_errno())
    # Interval and first expiry, each in seconds and nanoseconds.
    times = (ctypes.c_long * 4)(0, 0, _NEVER, 0)
    if libc.timerfd_settime(descriptor, _ABSOLUTE | _CANCEL_ON_SET, times, None) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise _error(number)
    return descriptor


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
