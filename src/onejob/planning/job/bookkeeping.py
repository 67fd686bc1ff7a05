"""The two ways to keep a Job's counters, behind one shape.

`planning.job.tracking` counts by finalizers, `planning.job.legacy` by existence; a sync chooses
one at its beginning and never asks again.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.job import Job, JobStatus
from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.counting import Census, Tally
from onejob.planning.job.plan import Accounting, Event, Fate, Ledger, Metric, Observed, Plan


class Draft(Struct, frozen=True):
    """A status that is complete but for the counting of ended Pods."""

    status: JobStatus
    fate: Fate | None = None
    terminating: int = 0
    #: Whether it differs from what is stored already.
    dirty: bool = False
    #: Told once the status is written; metrics are recorded at once.
    events: tuple[Event, ...] = ()
    metrics: tuple[Metric, ...] = ()
    #: From the changes made to Pods.
    error: str | None = None


OpenLedger: TypeAlias = Callable[[Job, Census, Tally, Fate | None], Ledger]


class Bookkeeping(Struct, frozen=True):
    count: Callable[[Job, Census], Tally]
    #: The backoff record, given what was remembered and what is new.
    remember: Callable[[Observed, Tally], BackoffRecord]
    #: The counters as the backoff limit is to see them.
    against_limit: Callable[[Job, Tally], Tally]
    open_ledger: OpenLedger
    account: Callable[[Plan, Draft], Accounting]
