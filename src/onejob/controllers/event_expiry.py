"""Event expiry: delete Events an hour after their last occurrence, to bound their number."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from onejob.client.base import Client, Delete, Result, Selection
from onejob.clock import Clock
from onejob.controllers.due_keys import DeadlineTimer
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import EVENTS, Key, Meta, View
from onejob.wire.errors import ApiError, NotFound

log = logging.getLogger(__name__)

DEFAULT_TTL = timedelta(hours=1)

#: Seconds from the start of the server until Events are listed.
FIRST_LOOK_SECONDS = 10.0
_BATCH = 500
_RETRY = timedelta(seconds=60)
_EVER = datetime(1, 1, 1, tzinfo=UTC)


class Series(View, frozen=True):
    last_observed_time: datetime | None = None


class RecordedEvent(View, frozen=True):
    """The timestamps of an Event."""

    metadata: Meta = Meta()
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: Series | None = None

    @property
    def key(self) -> Key:
        return Key(EVENTS, self.metadata.namespace, self.metadata.name)

    @property
    def last_seen_at(self) -> datetime:
        """Time of the Event's last occurrence."""
        times = (
            self.metadata.creation_timestamp,
            self.last_timestamp,
            self.event_time,
            self.series.last_observed_time if self.series else None,
        )
        return max((time for time in times if time is not None), default=_EVER)


_read_event = msgspec.json.Decoder(RecordedEvent).decode


class EventExpiry:
    """Expiry of Events, with an informer of its own that caches none of them."""

    def __init__(self, client: Client, *, clock: Clock, ttl: timedelta = DEFAULT_TTL) -> None:
        self._client = client
        self._clock = clock
        self._ttl = ttl
        self._due = DeadlineTimer(clock)
        self.informer: Informer[RecordedEvent] = Informer(
            client, Selection(EVENTS), _read_event, lambda event: event.key, keep=_never_matches
        )
        self.informer.on_change(self._changed)

    def __len__(self) -> int:
        return len(self._due)

    async def follow(self) -> None:
        """Watch Events, concurrently with `run`.

        Starts with a delay, because a restarted server may have more Events than any other objects,
        and more urgent work.
        """
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        await self.informer.run()

    async def run(self) -> None:
        """Delete expired Events until cancelled. The caller also runs `follow`."""
        while True:
            keys = await self._due.take(_BATCH)
            for key, result in zip(keys, await self._delete(keys), strict=True):
                if isinstance(result, ApiError) and not isinstance(result, NotFound):
                    self._due.set(key, self._clock.now() + _RETRY)

    async def _delete(self, keys: Sequence[Key]) -> Sequence[Result]:
        """Delete Events and return the result of each; an error of the whole batch is the result of
        all."""
        try:
            return await self._client.write_many([Delete(key) for key in keys])
        except ApiError as error:
            # All deletions share a commit: a full disk, for instance, refuses all.
            log.warning("cannot delete expired Events, retrying: %s", error)
            return [error] * len(keys)

    def clock_jumped(self) -> None:
        """Re-evaluate deadlines.

        An Event last seen in the future by the new time counts as seen now.
        """
        self._due.clock_jumped(longest=self._ttl)

    def _changed(self, deltas: Sequence[Delta[RecordedEvent]]) -> None:
        """Update the expiry of the changed Events."""
        for delta in deltas:
            if delta.new is None:
                self._due.drop(delta.key)
            else:
                # After a restart, timestamps from an earlier clock may be in the future.
                seen_at = min(delta.new.last_seen_at, self._clock.now())
                self._due.set(delta.key, seen_at + self._ttl)


def _never_matches(event: RecordedEvent) -> bool:
    """Return False: no Event is cached."""
    return False
