"""Queue overview for users: running and waiting Jobs, reasons, and estimated start times.

The estimate assumes that a Job lasts as long as the median of the finished Jobs under the same
limits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from statistics import median

from onejob.objects.job import Job
from onejob.planning.queue.limits import Limits
from onejob.planning.queue.membership import Priorities, Standing, entered_at, standing
from onejob.planning.queue.order import JobQueue, Rank, Scopes, rank


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
    state: Standing
    priority: int
    #: Limits that apply to the Job.
    scopes: Scopes
    #: Position among waiting Jobs, from 1; 0 for a running Job.
    place: int = 0
    #: A limit that is reached; "" if other Jobs under the same limits start first.
    waits_for: str = ""
    #: Estimated start; None if no finished Job provides a duration.
    may_start_at: datetime | None = None


def scopes(entries: Iterable[Entry], limits: Limits) -> Sequence[Scope]:
    """Return the state of each queue scope."""
    entries = list(entries)

    def count(name: str, state: Standing) -> int:
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
        if _job_standing(job) == "running":
            line.put_running(uid, subject_to)
            running.append(Entry(job, "running", priority, subject_to))
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
    return _job_standing(job) != "absent" and (job.spec.suspend or bool(limits.scopes_of(job)))


def _job_standing(job: Job) -> Standing:
    return standing(job, has_pods=lambda job: job.status.active > 0)


class _Durations:
    """Median duration of finished Jobs, by the limits that apply."""

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
        self._median: Mapping[Scopes, float] = {key: median(all) for key, all in lasted.items()}
        self._any = median(everything) if everything else None

    def of(self, job: Job) -> timedelta | None:
        seconds = self._median.get(self._limits.scopes_of(job), self._any)
        return None if seconds is None else timedelta(seconds=max(seconds, 1.0))


def _starts(
    line: JobQueue,
    running: Sequence[Entry],
    durations: _Durations,
    jobs: Mapping[str, Job],
    now: datetime,
) -> Mapping[str, datetime]:
    """Simulate the queue: end each Job at its expected time, and record which Jobs start then."""
    starts: dict[str, datetime] = {}
    ends: list[tuple[datetime, str]] = []

    def expect_end(uid: str, begin: datetime) -> None:
        lasts = durations.of(jobs[uid])
        if lasts is not None:
            # A Job that exceeds the median may end at any moment.
            heappush(ends, (max(begin + lasts, now), uid))

    for entry in running:
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
