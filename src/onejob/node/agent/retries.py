"""Exponential back-off for refused writes and blocked starts."""

from datetime import timedelta

FIRST_RETRY = timedelta(seconds=1)


def retry_delay(times: int, longest: timedelta) -> timedelta:
    """Return the delay after `times` consecutive refusals: doubled each time, up to `longest`."""
    return min(FIRST_RETRY * (1 << min(times, 16)), longest)
