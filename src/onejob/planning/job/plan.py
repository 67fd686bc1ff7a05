"""A sync as values: what is to be done, what that changes, what remains to be said.

The outcome of one step decides the next, so a sync has three stages, each printable and
comparable: a `Plan` (delete and create Pods), an `Accounting` (write the status, then free the
Pods it accounts for), a `Settlement` (write what their freeing changed).
"""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct, field

from onejob.objects.job import Job, JobStatus
from onejob.objects.pod import Pod
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.job.counting import Tally
from onejob.planning.job.oom import MemoryGrowth
from onejob.planning.job.settings import Settings

SyncAction: TypeAlias = Literal["reconciling", "tracking", "pods_created", "pods_deleted"]
CreationReason: TypeAlias = Literal["new", "recreate_terminating_or_failed", "recreate_failed"]
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
    """Why things are as they are, for `onejob why`. `until` is when time alone may change it."""

    kind: NoteKind
    text: str
    until: datetime | None = None


class Event(Struct, frozen=True, gc=False):
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Metric(Struct, frozen=True, gc=False):
    """An increment of a counter."""

    name: str
    labels: tuple[tuple[str, str], ...]
    amount: int = 1


class Observed(Struct, frozen=True):
    """What the controller knows of a Job beside the objects in its caches, which show all that it
    has written: it plans only once they do."""

    backoff: BackoffRecord = NO_FAILURES
    #: A terminal status was written that the cache does not show yet.
    finish_pending: bool = False
    #: As the plan before said.
    future_times: FutureTimes = NO_FUTURE_TIMES


class PodRef(Struct, frozen=True, gc=False):
    name: str
    uid: str


class PodDeletion(Struct, frozen=True, gc=False):
    name: str
    uid: str
    ready: bool
    #: Take the tracking finalizer off first, so that the Pod is never counted as failed.
    remove_finalizer_first: bool
    #: The version that was judged. One that has ended meanwhile must not be freed uncounted.
    resource_version: str


class PodSeed(Struct, frozen=True, gc=False):
    """What distinguishes a Pod to be created from its siblings."""

    index: int | None = None
    #: Failures of the index so far, for Jobs with backoffLimitPerIndex.
    failure_count: int | None = None
    ignored_failure_count: int = 0
    #: Of one that replaces a Pod which ran out of memory.
    memory: MemoryGrowth | None = None


class Fate(Struct, frozen=True):
    """How the Job will end, though it has not yet."""

    succeeds: bool
    reason: str
    message: str
    #: The interim condition (SuccessCriteriaMet or FailureTarget) is in the status already.
    recorded: bool = False


class Ledger(Struct, frozen=True):
    """What tracking needs to know of the Pods, as it was when the plan was made."""

    #: Pods holding the tracking finalizer that may lose it in this sync, in order.
    held: tuple[Pod, ...] = ()
    #: UIDs listed as uncounted whose Pod no longer holds the finalizer, or is gone.
    released: frozenset[str] = frozenset()
    tally: Tally = field(default_factory=Tally)


class Plan(Struct, frozen=True):
    """Stage one. Delete `prunings`; then delete `deletions` or create `creations`.

    `skipped` says why there is nothing to sync at all; then no accounting follows.
    """

    job: Job
    now: datetime
    settings: Settings
    skipped: Note | None = None
    #: Told at once.
    events: tuple[Event, ...] = ()
    notes: tuple[Note, ...] = ()
    #: Failed Pods beyond the number to be kept; counted long ago, so no outcome matters.
    prunings: tuple[PodRef, ...] = ()
    deletions: tuple[PodDeletion, ...] = ()
    creations: tuple[PodSeed, ...] = ()
    creation_reason: CreationReason = "new"
    action: SyncAction = "reconciling"
    #: Decided before looking at what Pods to run; recorded only if all deletions succeed.
    fate: Fate | None = None
    pods_managed: bool = False
    start_time: datetime | None = None
    #: To be remembered once the status that counts these failures is written.
    backoff: BackoffRecord = NO_FAILURES
    #: To be remembered for the next plan, whatever becomes of this one.
    future_times: FutureTimes = NO_FUTURE_TIMES
    ledger: Ledger = field(default_factory=Ledger)
    #: Pods are counted by existence, not by finalizers.
    legacy: bool = False
    #: Legacy only: the Job still carries the tracking annotation, which must go.
    drop_annotation: bool = False

    @property
    def look_again_at(self) -> datetime | None:
        """When to sync again though nothing changes; None: only a change can matter."""
        return min((note.until for note in self.notes if note.until is not None), default=None)


class PodOutcomes(Struct, frozen=True):
    """What became of the plan's Pod changes. A Pod that was not found counts as deleted."""

    deleted: AbstractSet[str] = frozenset()
    created: int = 0
    #: Creations that were tried and refused; ones given up after a failure are neither.
    create_failures: int = 0
    error: str | None = None


class StatusWrite(Struct, frozen=True):
    """A status to write, and what may be said and remembered once it is stored."""

    status: JobStatus
    events: tuple[Event, ...] = ()
    metrics: tuple[Metric, ...] = ()
    backoff: BackoffRecord | None = None
    #: The Job is finished by this write: do not sync it again before the cache shows it.
    finishes: bool = False


class Accounting(Struct, frozen=True):
    """Stage two. Do the `write`, if any; if it fails, stop and retry the sync. Then remove the
    tracking finalizer from `removals`, telling `settle` which removals succeeded."""

    plan: Plan
    #: The status as it stands after the write.
    status: JobStatus
    terminating: int
    write: StatusWrite | None = None
    removals: tuple[PodRef, ...] = ()
    fate: Fate | None = None
    #: More Pods have ended than one status may list; the rest is for the next sync.
    capped: bool = False
    metrics: tuple[Metric, ...] = ()
    #: From the Pod changes; ends the sync in a retry, but only after all has been accounted for.
    error: str | None = None


class RemovalOutcomes(Struct, frozen=True):
    """Which finalizers are gone. A Pod that was not found counts as removed."""

    removed: AbstractSet[str] = frozenset()
    error: str | None = None


class Settlement(Struct, frozen=True):
    """Stage three. Do the `write`, if any; then, if there is an `error`, retry the sync."""

    write: StatusWrite | None = None
    error: str | None = None
