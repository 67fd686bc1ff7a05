"""Leader election among replicas, by a Lease that all of them read and write.

A replica never compares another replica's clock with its own. It notes when, by its own monotonic
clock, it first observed a record, and takes over once it has observed no newer one for the duration
in the record. A leader counts from the moment at which its last renewal was sent, which is before
any replica observed it: its own term ends before the lease expires for any observer.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from onejob.objects.meta import Meta, View

#: Safety margin between the end of a write and the earliest takeover by another replica.
_MARGIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of leader election."""

    #: Validity of a lease after its last renewal.
    lease_seconds: float = 15.0
    #: Time after its last renewal during which a leader may still start writes.
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    @property
    def problem(self) -> str:
        """Reason why the values are invalid; "" if they are valid."""
        if self.retry_seconds <= 0:
            return "the retry period must be greater than 0"
        if self.renew_seconds <= self.retry_seconds:
            return "the renew deadline must be longer than the retry period"
        if self.lease_seconds < self.renew_seconds + 2 * _MARGIN_SECONDS:
            return "the lease must last at least a second longer than the renew deadline"
        if self.lease_seconds != int(self.lease_seconds):
            return "the lease must last whole seconds"
        return ""


class LeaseSpec(View, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(View, frozen=True):
    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


read_lease = msgspec.json.Decoder(Lease).decode


@dataclass(frozen=True, slots=True)
class Sighting:
    """Last observed lease, and since when it has been unchanged, by the observer's clock."""

    lease: Lease | None
    since: float


def sighted(before: Sighting | None, lease: Lease | None, now: float) -> Sighting:
    """Return the lease with the local time since which it is unchanged."""
    if before is not None and _version(before.lease) == _version(lease):
        return before
    return Sighting(lease, now)


def seconds_until_free(sighting: Sighting, identity: str, now: float) -> float:
    """Return the seconds until another replica's lease expires; 0 if it may be taken now."""
    lease = sighting.lease
    if lease is None or lease.spec.holder_identity in ("", identity):
        return 0.0
    return max(0.0, sighting.since + lease.spec.lease_duration_seconds - now)


def taken(lease: Lease | None, identity: str, timing: Timing, now: datetime) -> dict[str, Any]:
    """Return the spec that `identity` writes to acquire or renew the lease."""
    before = lease.spec if lease is not None else LeaseSpec()
    mine = before.holder_identity == identity
    stamp = micro_time(now)
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(timing.lease_seconds),
        "acquireTime": before.acquire_time if mine and before.acquire_time else stamp,
        "renewTime": stamp,
        "leaseTransitions": before.lease_transitions + (0 if mine or lease is None else 1),
    }


def released(lease: Lease, now: datetime) -> dict[str, Any]:
    """Return the spec of a released lease.

    It has no holder, so that other replicas need not wait.
    """
    stamp = micro_time(now)
    return {
        "leaseDurationSeconds": 1,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": lease.spec.lease_transitions,
    }


@dataclass(frozen=True, slots=True)
class Term:
    """Term of a leader, by its own monotonic clock."""

    #: Time at which the last successful renewal request was sent.
    renewed_at: float
    timing: Timing

    def renewed(self, sent_at: float) -> "Term":
        """Return the term as of a renewal sent at this time; times never go back."""
        return replace(self, renewed_at=max(self.renewed_at, sent_at))

    @property
    def ends_at(self) -> float:
        """Time from which no write may be started."""
        return self.renewed_at + self.timing.renew_seconds

    def seconds_for_write(self, now: float) -> float:
        """Return how many seconds a write starting now may take; 0 if none may start."""
        if now >= self.ends_at:
            return 0.0
        return self.renewed_at + self.timing.lease_seconds - _MARGIN_SECONDS - now


def micro_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _version(lease: Lease | None) -> str:
    """Return the resourceVersion of a Lease; "" if there is none."""
    return lease.metadata.resource_version if lease is not None else ""
