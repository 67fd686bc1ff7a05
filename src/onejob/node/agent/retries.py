"""How long what was refused waits to be tried again."""

from datetime import timedelta

FIRST_RETRY = timedelta(seconds=1)


def retry_delay(times: int, longest: timedelta) -> timedelta:
    """After so many refusals in a row: twice as long each time."""
    return min(FIRST_RETRY * (1 << min(times, 16)), longest)
