"""Leader election with a Lease: acquire, renew, release. Decisions are in `planning.leadership`."""

import asyncio
import logging
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Client, Create, Replace
from onejob.clock import Clock
from onejob.objects.meta import Key
from onejob.planning.leadership import (
    Lease,
    Sighting,
    Term,
    Timing,
    read_lease,
    released,
    seconds_until_free,
    sighted,
    taken,
)
from onejob.wire.errors import AlreadyExists, ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

LEASES = "leases.coordination.k8s.io"
#: At most one renewal can be in flight; further conflicts are manual edits of the lease.
_RELEASE_TRIES = 3


class NotLeading(Conflict):
    """A write was not sent: another replica may be leading."""


class Leadership:
    """Write permit that lasts as long as the term."""

    def __init__(self, term: Term, clock: Clock) -> None:
        self.term = term
        self._clock = clock

    def seconds(self) -> float:
        """Return the seconds for which a write is permitted. Raises NotLeading."""
        seconds = self.term.seconds_for_write(self._clock.monotonic())
        if seconds <= 0:
            raise NotLeading("this replica is no longer the leader")
        return seconds


class Elector:
    """Participant in the election, for one replica."""

    def __init__(
        self, client: Client, lease: Key, identity: str, timing: Timing, clock: Clock, rng: Random
    ) -> None:
        """Requests of `client` must time out well before the renew deadline."""
        self._client = client
        self._key = lease
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._rng = rng
        self._sighting: Sighting | None = None

    async def acquire(self) -> Leadership:
        """Wait until this replica leads."""
        while True:
            try:
                leadership = await self._try_to_acquire()
            except (ApiError, OSError) as error:
                log.warning("cannot acquire the lease %s: %s", self._key, error)
                leadership = None
            if leadership is not None:
                return leadership
            await asyncio.sleep(self._retry_seconds())

    async def hold(self, leadership: Leadership) -> str:
        """Renew the lease until it is lost; return the reason."""
        trouble = "renewal timed out"
        while True:
            await asyncio.sleep(self._retry_seconds())
            now = self._clock.monotonic()
            if now >= leadership.term.ends_at:
                return trouble
            try:
                async with asyncio.timeout(leadership.term.ends_at - now):
                    holder = await self._renew(leadership, now)
            except TimeoutError:
                return trouble
            except (ApiError, OSError) as error:
                log.warning("cannot renew the lease %s: %s", self._key, error)
                trouble = f"renewal timed out: {error}"
                continue
            if holder:
                return f"{holder} holds it"

    async def release(self) -> None:
        """Give up the lease, so that another replica can take it at once.

        Call only after the last write has ended.
        """
        lease = self._sighting.lease if self._sighting is not None else None
        try:
            for _ in range(_RELEASE_TRIES):
                if lease is None or lease.spec.holder_identity != self._identity:
                    return
                try:
                    await self._write(lease, released(lease, self._clock.now()))
                except Conflict:
                    # The renewal that was cancelled at the end of the term has arrived, or is
                    # arriving.
                    lease = await self._read()
                else:
                    return
            log.warning("cannot release the lease %s: too many conflicts", self._key)
        except (ApiError, OSError) as error:
            log.warning("cannot release the lease %s: %s", self._key, error)

    async def _try_to_acquire(self) -> Leadership | None:
        """Return the leadership if the Lease was free and is acquired now; None otherwise."""
        lease = await self._read()
        # Taken after the read: reading may take long, and the record may be new.
        now = self._clock.monotonic()
        self._sighting = sighted(self._sighting, lease, now)
        if seconds_until_free(self._sighting, self._identity, now):
            return None
        sent_at = self._clock.monotonic()
        try:
            await self._write(lease, self._taken(lease))
        except (AlreadyExists, Conflict):
            # Another replica was faster.
            return None
        return Leadership(Term(sent_at, self._timing), self._clock)

    async def _renew(self, leadership: Leadership, sent_at: float) -> str:
        """Renew the lease. Return "" on success, or the holder if it is not this replica."""
        lease = self._sighting.lease if self._sighting is not None else None
        try:
            await self._write(lease, self._taken(lease))
        except (Conflict, NotFound, AlreadyExists):
            # Another client changed it, or the response to our last renewal was lost.
            lease = await self._read()
            self._sighting = Sighting(lease, self._clock.monotonic())
            if lease is not None and lease.spec.holder_identity != self._identity:
                return lease.spec.holder_identity or "nobody"
            sent_at = self._clock.monotonic()
            await self._write(lease, self._taken(lease))
        leadership.term = leadership.term.renewed(sent_at)
        return ""

    def _taken(self, lease: Lease | None) -> dict[str, Any]:
        """Return the spec of the Lease as taken by this replica."""
        return taken(lease, self._identity, self._timing, self._clock.now())

    async def _read(self) -> Lease | None:
        """Return the Lease; None if it does not exist."""
        try:
            return read_lease(await self._client.get(self._key))
        except NotFound:
            return None

    async def _write(self, lease: Lease | None, spec: dict[str, Any]) -> None:
        """Create the Lease, or replace this version of it. Raises ApiError."""
        metadata = {"name": self._key.name, "namespace": self._key.namespace}
        if lease is not None:
            metadata["resourceVersion"] = lease.metadata.resource_version
        document = msgspec.json.encode(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
        )
        if lease is None:
            written = await self._client.write(Create(LEASES, self._key.namespace, document))
        else:
            written = await self._client.write(Replace(self._key, document))
        self._sighting = Sighting(read_lease(written.document), self._clock.monotonic())

    def _retry_seconds(self) -> float:
        return self._timing.retry_seconds * self._rng.uniform(1.0, 1.2)
