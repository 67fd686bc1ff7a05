"""The queue as people see it: who runs, who waits for what, and when each may start.

When a Job may start is an estimate: Jobs are taken to last as long as half of those that have
finished under the same limits did.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from statistics import median

from onejob.objects.job import Job
from onejob.planning.queue.limits import Limits
from onejob.planning.queue.line import Line, Rank, Scopes, rank
from onejob.planning.queue.standing import Priorities, Standing, entered_at, standing


@dataclass(frozen=True, slots=True)
class Scope:
    """One limit, and how far it is used."""

    name: str
    limit: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One Job in the queue."""

    job: Job
    state: Standing
    priority: int
    #: The limits that apply to it.
    scopes: Scopes
    #: Its place among those that wait, from 1; 0 for one that runs.
    place: int = 0
    #: A limit that is reached, or "" if others under the same limits are to start before it.
    waits_for: str = ""
    #: An estimate; None if nothing has finished yet to judge by.
    may_start_at: datetime | None = None


def scopes(entries: Iterable[Entry], limits: Limits) -> Sequence[Scope]:
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
    """Those that run first, then those that wait, in order."""
    jobs = [*jobs]
    in_queue = {job.metadata.uid: job for job in jobs if _is_in_queue(job, limits)}
    line, ranks = Line(limits), dict[str, Rank]()
    running: list[Entry] = []
    for uid, job in in_queue.items():
        subject_to = limits.scopes_of(job)
        priority = priorities.of_job(job)
        if _standing(job) == "running":
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
    """Also one that waits for limits that are gone by now: it is about to be let go."""
    return _standing(job) != "absent" and (job.spec.suspend or bool(limits.scopes_of(job)))


def _standing(job: Job) -> Standing:
    return standing(job, has_pods=lambda job: job.status.active > 0)


class _Durations:
    """How long Jobs last, by those that have finished."""

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
    line: Line,
    running: Sequence[Entry],
    durations: _Durations,
    jobs: Mapping[str, Job],
    now: datetime,
) -> Mapping[str, datetime]:
    """Play it through: let each Job end when it is expected to, and see who starts then."""
    starts: dict[str, datetime] = {}
    ends: list[tuple[datetime, str]] = []

    def expect_end(uid: str, begin: datetime) -> None:
        lasts = durations.of(jobs[uid])
        if lasts is not None:
            # One that lasts longer than most may end at any moment.
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
