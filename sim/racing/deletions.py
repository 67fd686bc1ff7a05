"""Invariants of deletions: each has a reason, owners wait for dependents, orphans stay."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf

import msgspec

from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key, Meta, OwnerReference, View
from onejob.planning.ownership import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from onejob.virtual_time import NOON
from sim.checks.policies import time_to_live
from sim.checks.problems import Problems
from sim.clients.log import Entry, ServerLog

REASON = "nothing is deleted without a reason"
OWNERS = "nothing is collected that has an owner"
FOREGROUND = "owners deleted in the foreground go after their dependents"
ORPHANS = "orphans stay"
#: Controllers see a change within this time; younger changes may be missed.
_SETTLED_SECONDS = 8.0
_JUST_NOW_SECONDS = 2.5


class _Any(View, frozen=True):
    metadata: Meta = Meta()


_read = msgspec.json.Decoder(_Any).decode


@dataclass
class _Object:
    key: Key
    created_at: float
    metadata: Meta
    deleted: bool = False
    #: Time at which a version in foreground deletion was last replaced by another version.
    waited_until: float = -inf
    #: Time since which it has each of its owners, by UID.
    owned_since: dict[str, float] = field(default_factory=dict)


@dataclass
class DeletionCheck:
    """Check of all deletions, fed by the log of the server."""

    problems: Problems
    log: ServerLog
    #: UIDs that users tried to delete.
    unwanted: set[str] = field(default_factory=set)
    #: The subset that they tried to delete with more than one propagation policy.
    mind_changed: set[str] = field(default_factory=set)
    #: The subset deleted without Foreground, which need not wait for its dependents.
    unwaiting: set[str] = field(default_factory=set)
    #: Returns whether the clock was never set.
    steady: Callable[[], bool] = lambda: True
    _objects: dict[str, _Object] = field(default_factory=dict)
    #: Versions of each Job with their times, by UID.
    _jobs: dict[str, list[tuple[float, Job]]] = field(default_factory=dict)
    #: UIDs of owners deleted with propagation policy Orphan, with the time of their deletion.
    _orphaning: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log.on_entry.append(self._see)

    def _see(self, key: Key, entry: Entry) -> None:
        metadata = _read(entry.document).metadata
        known = self._objects.setdefault(entry.uid, _Object(key, entry.at, metadata))
        if key.resource == JOBS:
            versions = self._jobs.setdefault(entry.uid, [])
            versions.append((entry.at, read_job(entry.document)))
        if ORPHAN_FINALIZER in metadata.finalizers:
            self._orphaning.setdefault(entry.uid, entry.at)
        if (metadata.deleting or entry.gone) and not known.deleted:
            known.deleted = True
            self._see_deleted(known, metadata, entry.at)
        if _is_waiting(known.metadata):
            known.waited_until = entry.at
        known.metadata = metadata
        for owner in metadata.owner_references:
            known.owned_since.setdefault(owner.uid, entry.at)
        if entry.gone:
            del self._objects[entry.uid]
            self._see_gone(key, metadata, entry.at)

    def _see_deleted(self, known: _Object, metadata: Meta, at: float) -> None:
        """Complain unless the deletion has a reason."""
        if metadata.uid in self.unwanted or known.key.resource == PODS:
            return
        if known.key.resource == JOBS and self._is_expired(metadata.uid, at):
            return
        owners = metadata.owner_references
        if not owners:
            self._complain(REASON, known.key, "was deleted, and nobody asked for that")
            return
        for owner in owners:
            if self._is_solid(owner, at) and owner.kind != "CronJob":
                self._complain(OWNERS, known.key, f"was collected, and {owner.name} is there")
            begun = self._orphaning.get(owner.uid)
            since = known.owned_since.get(owner.uid, at)
            if owner.uid in self.mind_changed or begun is None:
                continue
            if since < begun - _SETTLED_SECONDS:
                self._complain(ORPHANS, known.key, f"went with {owner.name}, which was to leave it")

    def _is_solid(self, owner: OwnerReference, at: float) -> bool:
        """Return whether the owner exists and did not wait for its dependents recently.

        The garbage collector reads an owner before it deletes a dependent. No precondition of that
        deletion covers the owner, so a change of its propagation policy between the two is missed.
        """
        found = self._objects.get(owner.uid)
        if found is None or _is_waiting(found.metadata):
            return False
        return found.waited_until < at - _SETTLED_SECONDS

    def _is_expired(self, uid: str, at: float) -> bool:
        """Return whether the TTL is exceeded by any version that was recently the newest."""
        if not self.steady():
            return any(self._ttl(job) is not None for _, job in self._jobs[uid])
        versions = self._jobs[uid]
        for number, (_, job) in enumerate(versions):
            replaced_at = versions[number + 1][0] if number + 1 < len(versions) else at
            ttl, ended = self._ttl(job), job.finished_condition
            if replaced_at < at - _JUST_NOW_SECONDS or ttl is None or ended is None:
                continue
            assert ended.last_transition_time is not None
            if NOON + timedelta(seconds=at) >= ended.last_transition_time + timedelta(seconds=ttl):
                return True
        return False

    def _ttl(self, job: Job) -> int | None:
        return time_to_live(job) if job.finished else None

    def _see_gone(self, key: Key, metadata: Meta, at: float) -> None:
        if metadata.uid in self.unwaiting:
            return
        expired = key.resource == JOBS and metadata.uid not in self.unwanted
        by_owner = bool(metadata.owner_references)
        if FOREGROUND_FINALIZER in metadata.finalizers or (expired and not by_owner):
            self._see_gone_first(key, metadata, at, everything=expired)

    def _see_gone_first(self, key: Key, metadata: Meta, at: float, *, everything: bool) -> None:
        for known in self._objects.values():
            for owner in known.metadata.owner_references:
                since = known.owned_since.get(owner.uid, at)
                if owner.uid != metadata.uid or since > at - _SETTLED_SECONDS:
                    continue
                if owner.block_owner_deletion and (everything or not known.metadata.deleting):
                    text = f"is gone before {known.key.name}, which it had to wait for"
                    self._complain(FOREGROUND, key, text)

    def left_over(self) -> Iterable[str]:
        for known in self._objects.values():
            owners = known.metadata.owner_references
            if owners and not any(owner.uid in self._objects for owner in owners):
                yield f"{known.key.resource} {known.key.name} has no owner any more"

    def _complain(self, check: str, key: Key, text: str) -> None:
        self.problems.add(check, f"{key.resource} {key.name} {text}")


def _is_waiting(metadata: Meta) -> bool:
    """Return whether an object is in foreground deletion."""
    return metadata.deleting and FOREGROUND_FINALIZER in metadata.finalizers
