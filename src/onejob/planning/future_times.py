"""Recorded times that lie in the future, because the clock was set back.

Or another machine's clock wrote them. Waiting until the clock gets there again could take for ever,
so such a time counts as the moment at which it was first noticed: a wait that starts from it lasts
as long as was meant, and not longer.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field


class FutureTimes(Struct, frozen=True):
    """Moments that lie in the future, each with the time at which that was noticed."""

    times: Mapping[datetime, datetime] = field(default_factory=dict)

    def counts_from(self, moment: datetime) -> datetime:
        """When to begin to count what is to be counted from this moment on."""
        return self.times.get(moment, moment)

    def after(self, moments: Iterable[datetime | None], now: datetime) -> "FutureTimes":
        """What is to be remembered of these moments; all others are forgotten."""
        ahead = {moment for moment in moments if moment is not None and moment > now}
        if not ahead:
            return NO_FUTURE_TIMES
        # The clock may be set back more than once: then what was noticed lies ahead as well.
        return FutureTimes({moment: min(self.times.get(moment, now), now) for moment in ahead})


NO_FUTURE_TIMES = FutureTimes()
