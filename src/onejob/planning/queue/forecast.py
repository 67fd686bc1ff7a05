"""Queue overview for users: running and waiting Jobs, reasons, and estimated start times.

The estimate assumes that a Job lasts as long as the median of the finished Jobs under the same
limits, of those that lasted longer than it has already, and no longer than its deadline. A Job that
has outlasted all of them, or of which no Pod runs, ends at an unknown time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from statistics import median
from typing import Final

from onejob.objects.job import Job
from onejob.planning.queue.limits import Limits
from onejob.planning.queue.membership import Priorities, QueueState, entered_at, queue_state
from onejob.planning.queue.order import JobQueue, Rank, Scopes, rank

#: Time within which a Pod of a started Job runs, unless something prevents it.
_STARTS_WITHIN: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Scope:
    """A limit and its current usage."""

    name: str
    limit: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A Job in the queue."""

    job: Job
    state: QueueState
    priority: int
    #: Limits that apply to the Job.
    scopes: Scopes
    #: Position among waiting Jobs, from 1; 0 for a running Job.
    place: int = 0
    #: A limit that is reached; "" if other Jobs under the same limits start first.
    waits_for: str = ""
    #: Estimated start; None if it is unknown.
    may_start_at: datetime | None = None
    #: Whether it holds its place although none of its Pods runs.
    stuck: bool = False


def scopes(entries: Iterable[Entry], limits: Limits) -> Sequence[Scope]:
    """Return the state of each queue scope."""
    entries = list(entries)

    def count(name: str, state: QueueState) -> int:
        return sum(entry.state == state and name in entry.scopes for entry in entries)

    return [
        Scope(name, limit, count(name, "running"), count(name, "waiting"))
        for name, limit in limits.by_scope.items()
    ]


def forecast(
    jobs: Iterable[Job], limits: Limits, priorities: Priorities, now: datetime
) -> Sequence[Entry]:
    """Return the running Jobs, followed by the waiting ones in queue order."""
    jobs = [*jobs]
    in_queue = {job.metadata.uid: job for job in jobs if _is_in_queue(job, limits)}
    line, ranks = JobQueue(limits), dict[str, Rank]()
    running: list[Entry] = []
    for uid, job in in_queue.items():
        subject_to = limits.scopes_of(job)
        priority = priorities.of_job(job)
        if _state_of(job) == "running":
            line.put_running(uid, subject_to)
            stuck = _is_stuck(job, now)
            running.append(Entry(job, "running", priority, subject_to, stuck=stuck))
        else:
            ranks[uid] = rank(priority, entered_at(job))
            line.put_waiting(uid, ranks[uid], subject_to)
    causes = {uid: line.full_scope(uid) for uid in ranks}
    starts = _starts(line, running, _Durations(jobs, limits), in_queue, now)
    waiting = [
        Entry(
            in_queue[uid],
            "waiting",
            ranks[uid].priority,
            limits.scopes_of(in_queue[uid]),
            place,
            causes[uid],
            starts.get(uid),
        )
        for place, uid in enumerate(sorted(ranks, key=ranks.__getitem__), 1)
    ]
    running.sort(key=lambda entry: entry.job.status.start_time or now)
    return [*running, *waiting]


def _is_in_queue(job: Job, limits: Limits) -> bool:
    """Return whether the Job is in the queue.

    This includes Jobs held by a limit that no longer exists, which are about to be released.
    """
    return _state_of(job) != "absent" and (job.spec.suspend or bool(limits.scopes_of(job)))


def _state_of(job: Job) -> QueueState:
    """Return the queue state as far as the Job's own status shows it."""
    return queue_state(job, has_pods=lambda job: job.status.active > 0)


def _is_stuck(job: Job, now: datetime) -> bool:
    """Return whether the Job was started a while ago, and none of its Pods runs or has ended."""
    status, begin = job.status, job.status.start_time
    if begin is None or status.active == 0 or status.ready or status.succeeded or status.failed:
        return False
    return now - begin >= _STARTS_WITHIN


class _Durations:
    """Durations of finished Jobs, by the limits that apply."""

    def __init__(self, jobs: Iterable[Job], limits: Limits) -> None:
        self._limits = limits
        lasted: dict[Scopes, list[float]] = {}
        everything: list[float] = []
        for job in jobs:
            end, begin = job.finished_condition, job.status.start_time
            if end is not None and end.last_transition_time is not None and begin is not None:
                seconds = (end.last_transition_time - begin).total_seconds()
                lasted.setdefault(limits.scopes_of(job), []).append(seconds)
                everything.append(seconds)
        self._by_scopes: Mapping[Scopes, Sequence[float]] = lasted
        self._all: Sequence[float] = everything

    def of(self, job: Job, elapsed: timedelta) -> timedelta | None:
        """Return the expected duration of a Job that has run for a while; None if unknown."""
        known = self._by_scopes.get(self._limits.scopes_of(job), self._all)
        longer = [seconds for seconds in known if seconds > elapsed.total_seconds()]
        deadline = job.spec.active_deadline_seconds
        if not longer:
            return None if deadline is None else timedelta(seconds=deadline)
        expected = max(median(longer), 1.0)
        return timedelta(seconds=expected if deadline is None else min(expected, deadline))


def _starts(
    line: JobQueue,
    running: Sequence[Entry],
    durations: _Durations,
    jobs: Mapping[str, Job],
    now: datetime,
) -> Mapping[str, datetime]:
    """Return the expected start of each waiting Job, by a simulation of the queue in which each Job
    ends at its expected time."""
    starts: dict[str, datetime] = {}
    ends: list[tuple[datetime, str]] = []

    def expect_end(uid: str, begin: datetime) -> None:
        lasts = durations.of(jobs[uid], max(now - begin, timedelta(0)))
        if lasts is not None:
            heappush(ends, (max(begin + lasts, now), uid))

    for entry in running:
        if entry.stuck and entry.job.spec.active_deadline_seconds is None:
            continue
        expect_end(entry.job.metadata.uid, entry.job.status.start_time or now)
    at = now
    while True:
        for uid in line.start():
            starts[uid] = at
            expect_end(uid, at)
        if not ends:
            return starts
        at, ended = heappop(ends)
        line.drop(ended)
