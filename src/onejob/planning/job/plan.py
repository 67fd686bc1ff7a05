"""Result types of a Job sync: Pod changes, status writes, Events and metrics as values.

The outcome of each step decides the next, so a sync has three stages, each printable and
comparable: a `Plan` (delete and create Pods), an `Accounting` (write the status, then remove the
finalizers of the Pods it accounts for) and a `Settlement` (write the counters that the removals
changed).
"""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct, field

from onejob.metrics import CreationReason, JobCounterLabels, SyncAction
from onejob.objects.job import Job, JobStatus
from onejob.objects.pod import Pod
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.job.counting import JobCounters
from onejob.planning.job.oom import MemoryGrowth
from onejob.planning.job.operator_settings import Settings

NoteKind: TypeAlias = Literal[
    "finished",
    "managed-elsewhere",
    "unknown-mode",
    "being-deleted",
    "suspended",
    "no-parallelism",
    "backoff",
    "index-backoff",
    "deadline",
    "failure-policy",
    "fate",
    "oom-memory",
    "waiting-for-pods",
]


class Note(Struct, frozen=True, gc=False):
    """Explanation of the Job's current state, for `onejob why`.

    `until` is the time at which the state may change without any event.
    """

    kind: NoteKind
    text: str
    until: datetime | None = None


class Event(Struct, frozen=True, gc=False):
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Increment(Struct, frozen=True, gc=False):
    """Increment of the counter that the labels belong to."""

    labels: JobCounterLabels
    amount: int = 1


class Observed(Struct, frozen=True):
    """Controller state of a Job that is not in the cached objects.

    The caches must include every write of the controller: it plans only after they have caught up.
    """

    backoff: BackoffRecord = NO_FAILURES
    #: True if a terminal status was written that the cache does not show yet.
    finish_pending: bool = False
    #: Taken over from the previous plan.
    future_times: FutureTimes = NO_FUTURE_TIMES
    #: Names of nodes whose ending Pods are replaced at once.
    nodes_in_maintenance: frozenset[str] = frozenset()


class PodRef(Struct, frozen=True, gc=False):
    name: str
    uid: str


class PodDeletion(Struct, frozen=True, gc=False):
    name: str
    uid: str
    ready: bool
    #: True to remove the tracking finalizer first, so that the Pod is never counted as failed.
    remove_finalizer_first: bool
    #: Version that the decision is based on. A Pod that ended since must not be released uncounted.
    resource_version: str


class PodSeed(Struct, frozen=True, gc=False):
    """Per-Pod parameters of a Pod to create."""

    index: int | None = None
    #: Failures of the index so far, for Jobs with backoffLimitPerIndex.
    failure_count: int | None = None
    ignored_failure_count: int = 0
    #: Set for the replacement of an OOM-killed Pod.
    memory: MemoryGrowth | None = None


class JobOutcome(Struct, frozen=True):
    """Decided outcome of a Job that has not finished yet."""

    succeeds: bool
    reason: str
    message: str
    #: True if the interim condition (SuccessCriteriaMet or FailureTarget) is in the status already.
    recorded: bool = False


class Ledger(Struct, frozen=True):
    """Snapshot of the Pods for finalizer tracking, taken when the plan was made."""

    #: Pods whose tracking finalizer may be removed in this sync, in order.
    held: tuple[Pod, ...] = ()
    #: UIDs listed as uncounted whose Pod no longer holds the finalizer, or no longer exists.
    released: frozenset[str] = frozenset()
    tally: JobCounters = field(default_factory=JobCounters)


class Plan(Struct, frozen=True):
    """Stage one: delete `prunings`; then delete `deletions` or create `creations`.

    If `skipped` is set, the Job is not synced for that reason, and no accounting follows.
    """

    job: Job
    now: datetime
    settings: Settings
    skipped: Note | None = None
    #: Events to emit immediately.
    events: tuple[Event, ...] = ()
    notes: tuple[Note, ...] = ()
    #: Failed Pods beyond the number to keep. All are counted, so failed deletions are harmless.
    prunings: tuple[PodRef, ...] = ()
    deletions: tuple[PodDeletion, ...] = ()
    creations: tuple[PodSeed, ...] = ()
    creation_reason: CreationReason = "new"
    action: SyncAction = "reconciling"
    #: Decided before Pods are scaled; recorded only if all deletions succeed.
    fate: JobOutcome | None = None
    pods_managed: bool = False
    start_time: datetime | None = None
    #: To be stored once the status that counts these failures is written.
    backoff: BackoffRecord = NO_FAILURES
    #: To be passed to the next plan, even if this one fails.
    future_times: FutureTimes = NO_FUTURE_TIMES
    ledger: Ledger = field(default_factory=Ledger)
    #: True if Pods are counted by existence, not by finalizers.
    legacy: bool = False
    #: Legacy only: the Job still has the tracking annotation, which must be removed.
    drop_annotation: bool = False

    @property
    def look_again_at(self) -> datetime | None:
        """Time of the next sync if nothing changes before; None if only a change can matter."""
        return min((note.until for note in self.notes if note.until is not None), default=None)


class PodOutcomes(Struct, frozen=True):
    """Outcome of the plan's Pod creations and deletions. NotFound counts as deleted."""

    deleted: AbstractSet[str] = frozenset()
    created: int = 0
    #: Number of creations the server rejected. Creations not attempted after a failure count
    #: neither here nor in `created`.
    create_failures: int = 0
    error: str | None = None


class StatusWrite(Struct, frozen=True):
    """Status to write; its events, metrics and backoff record take effect once it is stored."""

    status: JobStatus
    events: tuple[Event, ...] = ()
    metrics: tuple[Increment, ...] = ()
    backoff: BackoffRecord | None = None
    #: True if this write finishes the Job: do not sync it again before the cache shows the write.
    finishes: bool = False


class Accounting(Struct, frozen=True):
    """Stage two: do the `write`, if any, then remove the tracking finalizer from `removals`.

    If the write fails, stop and retry the sync. Pass the successful removals to `settle`.
    """

    plan: Plan
    #: Status after the write.
    status: JobStatus
    terminating: int
    write: StatusWrite | None = None
    removals: tuple[PodRef, ...] = ()
    fate: JobOutcome | None = None
    #: True if more Pods have ended than one status may list; the next sync accounts for the rest.
    capped: bool = False
    metrics: tuple[Increment, ...] = ()
    #: Error of the Pod changes. The sync is retried, but only after accounting for all Pods.
    error: str | None = None


class RemovalOutcomes(Struct, frozen=True):
    """UIDs whose finalizer was removed. NotFound counts as removed."""

    removed: AbstractSet[str] = frozenset()
    error: str | None = None


class Settlement(Struct, frozen=True):
    """Stage three: do the `write`, if any; then retry the sync if there is an `error`."""

    write: StatusWrite | None = None
    error: str | None = None
