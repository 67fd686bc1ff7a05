"""Recorded timestamps in the future, caused by a clock that was set back.

They may also come from another machine's clock. Waiting for the clock to catch up could take
forever, so such a timestamp counts as the moment at which it was first noticed: a delay measured
from it has its intended length, and no more.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field


class FutureTimes(Struct, frozen=True):
    """Timestamps in the future, each mapped to the time at which it was first noticed."""

    times: Mapping[datetime, datetime] = field(default_factory=dict)

    def counts_from(self, moment: datetime) -> datetime:
        """Return the time from which a delay after `moment` is measured."""
        return self.times.get(moment, moment)

    def after(self, moments: Iterable[datetime | None], now: datetime) -> "FutureTimes":
        """Return a record of the `moments` that are in the future; drop all others."""
        ahead = {moment for moment in moments if moment is not None and moment > now}
        if not ahead:
            return NO_FUTURE_TIMES
        # The clock may be set back more than once: the time of noticing is then in the future, too.
        return FutureTimes({moment: min(self.times.get(moment, now), now) for moment in ahead})


NO_FUTURE_TIMES = FutureTimes()
