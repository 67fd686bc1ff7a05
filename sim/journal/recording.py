"""Recorder of the calls from controllers to planners while worlds are simulated."""

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from onejob.controllers import cronjob_sync
from onejob.controllers import job as job_controller
from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.planning.cronjob.status import CurrentState
from onejob.planning.future_times import FutureTimes
from onejob.planning.job.counting import JobPods
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Observed
from sim.journal.entries import (
    Entry,
    HistoryQuestion,
    JobQuestion,
    StartQuestion,
    StatusQuestion,
    answered,
)

#: Entries kept per shape of decision: the journal shall be small and varied.
_PER_SHAPE = 3


class Recorder:
    """Recorder of planner inputs, deduplicated by the shape of the decision."""

    def __init__(self) -> None:
        self.asked = 0
        self.entries: list[Entry] = []
        self._shapes: dict[Any, int] = {}
        self._status_question: tuple[Any, ...] = ()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the planner calls of all controllers that run inside the context."""
        places: list[tuple[Any, str, Callable[..., None]]] = [
            (job_controller, "plan_job", self._job),
            (cronjob_sync, "plan_history", self._history),
            (cronjob_sync, "record_slots", self._slots),
            (cronjob_sync, "update_status", self._status),
            (cronjob_sync, "plan_start", self._start),
        ]
        originals = [getattr(module, name) for module, name, _ in places]
        for (module, name, note), original in zip(places, originals, strict=True):
            setattr(module, name, _noting(original, note))
        try:
            yield
        finally:
            for (module, name, _), original in zip(places, originals, strict=True):
                setattr(module, name, original)

    def _job(
        self, job: Job, census: JobPods, observed: Observed, now: datetime, settings: Settings
    ) -> None:
        self._keep(JobQuestion(job, list(census), observed, now, settings))

    def _history(self, cronjob: CronJob, jobs: Iterable[Job], now: datetime) -> None:
        self._keep(HistoryQuestion(cronjob, list(jobs), now))

    def _status(self, *question: Any) -> None:
        """Remember the arguments until slots are recorded, which completes the input."""
        self._status_question = question

    def _slots(self, _: CurrentState, jobs: Sequence[Job], now: datetime) -> None:
        cronjob, live, _jobs, *deleted = self._status_question
        self._keep(StatusQuestion(cronjob, live, list(jobs), list(*deleted), now))

    def _start(
        self,
        current: CurrentState,
        missing: AbstractSet[str],
        now: datetime,
        *,
        local_zone: str,
        known: FutureTimes | None,
    ) -> None:
        self._keep(StartQuestion(current, sorted(missing), now, local_zone, known))

    def _keep(self, question: msgspec.Struct) -> None:
        self.asked += 1
        entry = answered(question)
        shape = (entry.planner, _shape(entry.decision))
        seen = self._shapes.get(shape, 0)
        if seen < _PER_SHAPE:
            self._shapes[shape] = seen + 1
            self.entries.append(entry)


def _noting(original: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    def asked(*question: Any, **options: Any) -> Any:
        note(*question, **options)
        return original(*question, **options)

    return asked


def _shape(value: Any) -> Any:
    """Return a decision without details.

    Its fields remain, and whether a list has one or more items.
    """
    match value:
        case dict():
            return tuple((key, _shape(one)) for key, one in value.items() if one not in ([], None))
        case list() | tuple():
            kinds = sorted({repr(_shape(one)) for one in value})
            return (min(len(value), 2), *kinds[:2])
        case bool():
            return value
        case _:
            return type(value).__name__


def write_journal(path: Path, entries: Sequence[Entry]) -> None:
    """Write the entries as compressed JSON lines."""
    lines = b"\n".join(map(msgspec.json.encode, entries))
    # Without a timestamp, so that the same entries give the same file.
    path.write_bytes(gzip.compress(lines, mtime=0))


def read_journal(path: Path) -> list[Entry]:
    """Read the entries that `write_journal` wrote."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return [msgspec.json.decode(line, type=Entry) for line in lines]
