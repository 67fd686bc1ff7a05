"""Mutants of leader election: terms that last too long, leases taken too early."""

from collections.abc import Mapping

from onejob.client.http import HttpClient
from onejob.cluster import manager
from onejob.cluster.election import Elector, Leadership
from onejob.planning import leadership
from sim.mutants.planting import Plant, edit

MUTANTS: Mapping[str, Plant] = {
    "renewal counted from its answer": edit(
        Elector._renew,
        ("leadership.term.renewed(sent_at)", "leadership.term.renewed(self._clock.monotonic())"),
    ),
    "acquisition counted from its answer": edit(
        Elector._try_to_acquire,
        ("Term(sent_at, self._timing)", "Term(self._clock.monotonic(), self._timing)"),
    ),
    "write permitted for a whole lease": edit(
        Leadership.seconds,
        (
            "if seconds <= 0:",
            "seconds = seconds and self.term.timing.lease_seconds\n    if not seconds:",
        ),
    ),
    "write not limited by the term": edit(
        HttpClient._seconds,
        (
            "min(self._request_seconds, permit.seconds())",
            "(permit.seconds() and self._request_seconds)",
        ),
    ),
    "lease expired by the holder's clock": edit(
        Elector._try_to_acquire,
        (
            "if seconds_until_free(self._sighting, self._identity, now):",
            "from datetime import datetime\n"
            "    if seconds_until_free(self._sighting, self._identity, now) and (\n"
            "        self._clock.now() - datetime.fromisoformat(lease.spec.renew_time)\n"
            "    ).total_seconds() < lease.spec.lease_duration_seconds:",
        ),
    ),
    "lease read again just before it is taken": edit(
        Elector._try_to_acquire,
        (
            "await self._write(lease, self._taken(lease))",
            "lease = await self._read()\n        await self._write(lease, self._taken(lease))",
        ),
    ),
    "renewals of the holder not noticed": edit(
        leadership._version,
        (
            "lease.metadata.resource_version if lease is not None",
            "lease.spec.holder_identity if lease is not None",
        ),
    ),
    "sighting dated before the lease was read": edit(
        Elector._try_to_acquire,
        (
            "lease = await self._read()",
            "now = self._clock.monotonic()\n    lease = await self._read()",
        ),
        ("    now = self._clock.monotonic()\n    self._sighting", "    self._sighting"),
    ),
    "lease released before the last writes": edit(
        manager._Controllers.finish, ("await self.client.no_writes()", "pass")
    ),
    "lease of another replica released": edit(
        Elector.release, ("or lease.spec.holder_identity != self._identity", "")
    ),
}
