"""Common interface of the two ways to count a Job's Pods.

`planning.job.tracking` counts by finalizers, `planning.job.legacy` by existence. A sync selects one
at its start and keeps it.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.job import Job, JobStatus
from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.counting import JobCounters, JobPods
from onejob.planning.job.plan import (
    Accounting,
    Event,
    Increment,
    JobOutcome,
    Ledger,
    Observed,
    Plan,
)


class Draft(Struct, frozen=True):
    """Job status that is complete except for the counting of ended Pods."""

    status: JobStatus
    fate: JobOutcome | None = None
    terminating: int = 0
    #: True if the status differs from the stored one.
    dirty: bool = False
    #: Events are emitted once the status is written; metrics are recorded immediately.
    events: tuple[Event, ...] = ()
    metrics: tuple[Increment, ...] = ()
    #: Error of the Pod creations or deletions.
    error: str | None = None


OpenLedger: TypeAlias = Callable[[Job, JobPods, JobCounters, JobOutcome | None], Ledger]


class TrackingMode(Struct, frozen=True):
    count: Callable[[Job, JobPods], JobCounters]
    #: Return the new backoff record, given the observed one and the newly ended Pods.
    remember: Callable[[Observed, JobCounters], BackoffRecord]
    #: Return the counters that are compared with the backoff limit.
    against_limit: Callable[[Job, JobCounters], JobCounters]
    open_ledger: OpenLedger
    account: Callable[[Plan, Draft], Accounting]
