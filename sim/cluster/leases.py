"""Invariants of leader election: no lease is taken early, and only the holder writes."""

import asyncio
from dataclasses import dataclass, field

from onejob.cluster.election import LEASES
from onejob.planning.leadership import read_lease
from onejob.store.log import LogStore
from sim.checks.problems import Problems
from sim.network.links import ORIGIN, Arrival

EARLY = "no lease is taken before it has expired"
ONE = "only the holder of the lease writes"
MARGIN = "a write ends before anybody else may take the lease"
_EPSILON = 1e-6
#: Nodes have leases, too, in another namespace.
_NAMESPACE = "default"


@dataclass
class LeaseCheck:
    """Check of one lease and of the writes of all replicas."""

    problems: Problems
    #: Identity of the replica on each host.
    identities: dict[str, str] = field(default_factory=dict)
    holder: str = ""
    #: Time of the last write of the lease, and its duration in seconds.
    _stored_at: float = 0.0
    _seconds: float = 0.0
    #: Time of the last stored record that names this identity as the holder.
    _renewed_at: dict[str, float] = field(default_factory=dict)
    terms: int = 0
    #: Host whose write to the lease arrived last.
    _releasing: str = ""

    async def follow(self, store: LogStore) -> None:
        async for batch in store.watch(LEASES, after=0):
            for change in batch:
                if change.value is not None and change.key.namespace == _NAMESPACE:
                    self._see(change.value)

    def _see(self, document: bytes) -> None:
        now, spec = asyncio.get_running_loop().time(), read_lease(document).spec
        before, self.holder = self.holder, spec.holder_identity
        if before and self.holder != before:
            left = self._stored_at + self._seconds - now
            if self.holder and left > _EPSILON:
                text = f"{_short(self.holder)} took it from {_short(before)}"
                self.problems.add(EARLY, f"{text} {left:.3f} s before its end")
            if not self.holder and self._host_of(before) != self._releasing:
                self.problems.add(EARLY, f"the lease of {_short(before)} was released by another")
        if self.holder != before:
            self.terms += 1
        self._stored_at, self._seconds = now, float(spec.lease_duration_seconds)
        if self.holder:
            self._renewed_at[self.holder] = now

    def see_arrival(self, arrival: Arrival) -> None:
        identity = self.identities.get(arrival.origin)
        if identity is None or not arrival.is_write or "selfsubject" in arrival.target:
            return
        if "/leases" in arrival.target:
            self._releasing = arrival.origin
        elif self.holder != identity:
            who = _short(self.holder) or "nobody"
            text = f"{arrival.origin} sends {arrival.method} {arrival.target.partition('?')[0]}"
            self.problems.add(ONE, f"{text} while {who} holds the lease")

    def see_permit(self, seconds: float, lease_seconds: float) -> None:
        """Check a write that this replica starts and that may take `seconds`."""
        identity = self.identities.get(ORIGIN.get())
        renewed_at = self._renewed_at.get(identity or "")
        if identity is None or renewed_at is None:
            return
        beyond = asyncio.get_running_loop().time() + seconds - (renewed_at + lease_seconds)
        if beyond > _EPSILON:
            text = f"{ORIGIN.get()} may write until {beyond:.3f} s after the end of its lease"
            self.problems.add(MARGIN, text)

    def _host_of(self, identity: str) -> str:
        return next((host for host, one in self.identities.items() if one == identity), "")


def _short(identity: str) -> str:
    return identity[-4:]
