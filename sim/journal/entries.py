"""Journal entries: the input of a planner with its decision, as JSON.

Objects are encoded as API documents with the fields that planners read today, so that versions with
different views can decode them. A decision holds the planner's result, independent of its Python
types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.cronjob.planner import plan_start
from onejob.planning.cronjob.status import (
    CurrentState,
    Deleted,
    plan_history,
    record_slots,
    update_status,
)
from onejob.planning.future_times import FutureTimes
from onejob.planning.job.counting import JobPods
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import (
    Observed,
    Plan,
    PodOutcomes,
    RemovalOutcomes,
    StatusWrite,
)
from onejob.planning.job.planner import account, plan_job, settle


class Entry(msgspec.Struct):
    """Recorded input of a planner with its decision."""

    planner: str
    question: msgspec.Raw
    decision: Any


class JobQuestion(msgspec.Struct):
    """Input of the Job planner."""

    job: Job
    #: In the order of the census, which may determine the Pods to delete first.
    pods: Sequence[Pod]
    observed: Observed
    now: datetime
    settings: Settings


class HistoryQuestion(msgspec.Struct):
    """Input of the planner of a CronJob's history limits."""

    cronjob: CronJob
    jobs: Sequence[Job]
    now: datetime


class StatusQuestion(msgspec.Struct):
    """Input of the planner of a CronJob's status."""

    cronjob: CronJob
    live: CronJob | None
    jobs: Sequence[Job]
    deleted: Sequence[Deleted]
    now: datetime


class StartQuestion(msgspec.Struct):
    """Input of the planner of a CronJob's next start."""

    current: CurrentState
    missing: Sequence[str]
    now: datetime
    local_zone: str
    known: FutureTimes | None


def _decide_job(question: JobQuestion) -> Any:
    """Decide a whole sync in which all writes succeed."""
    plan = plan_job(
        question.job,
        JobPods(question.pods),
        question.observed,
        question.now,
        question.settings,
    )
    decided: dict[str, Any] = {
        "skipped": plan.skipped and plan.skipped.kind,
        "notes": [(note.kind, note.until) for note in plan.notes],
        "prunings": plan.prunings,
        "deletions": plan.deletions,
        "creations": plan.creations,
        "creation_reason": plan.creation_reason,
        "action": plan.action,
        "fate": plan.fate,
        "backoff": plan.backoff,
        "events": plan.events,
    }
    if plan.skipped is None:
        decided |= _consequences(plan)
    return msgspec.to_builtins(decided)


def _consequences(plan: Plan) -> dict[str, Any]:
    deleted = frozenset(deletion.uid for deletion in plan.deletions)
    accounting = account(plan, PodOutcomes(deleted, len(plan.creations)))
    removed = frozenset(pod.uid for pod in accounting.removals)
    settlement = settle(accounting, RemovalOutcomes(removed))
    return {
        "accounted": _written(accounting.write),
        "removals": accounting.removals,
        "capped": accounting.capped,
        "settled": _written(settlement.write),
    }


def _written(write: StatusWrite | None) -> Any:
    return write and {"status": write.status, "events": write.events, "finishes": write.finishes}


def _decide_history(question: HistoryQuestion) -> Any:
    chosen = plan_history(question.cronjob, question.jobs, question.now)
    return [job.metadata.name for job in chosen]


def _decide_status(question: StatusQuestion) -> Any:
    current = update_status(question.cronjob, question.live, question.jobs, question.deleted)
    current = record_slots(current, question.jobs, question.now)
    decided = {
        "status": current.status,
        "changed": current.changed,
        "events": current.events,
        "unseen": [reference.name for reference in current.unseen],
    }
    return msgspec.to_builtins(decided)


def _decide_start(question: StartQuestion) -> Any:
    plan = plan_start(
        question.current,
        frozenset(question.missing),
        question.now,
        local_zone=question.local_zone,
        known=question.known,
    )
    start = plan.start
    decided = {
        "start": start and {"slot": start.slot, "name": start.name, "replaces": start.replaces},
        "document": start and msgspec.json.decode(start.document),
        "look_again_seconds": plan.look_again_seconds,
        "events": plan.events,
    }
    return msgspec.to_builtins(decided)


_PLANNERS: Final[Mapping[str, tuple[type, Callable[[Any], Any]]]] = {
    "job": (JobQuestion, _decide_job),
    "cronjob history": (HistoryQuestion, _decide_history),
    "cronjob status": (StatusQuestion, _decide_status),
    "cronjob start": (StartQuestion, _decide_start),
}
_NAMES: Final = {kind: name for name, (kind, _) in _PLANNERS.items()}


def answered(question: msgspec.Struct) -> Entry:
    """Return an entry with the planner's present decision.

    The planner gets the decoded input rather than the original: otherwise data that does not
    survive encoding would look like a changed decision.
    """
    name = _NAMES[type(question)]
    raw = msgspec.Raw(msgspec.json.encode(question))
    return Entry(name, raw, decide(name, raw))


def decide(planner: str, question: msgspec.Raw) -> Any:
    """Return the present decision of a planner on a recorded input."""
    kind, decision = _PLANNERS[planner]
    return decision(msgspec.json.decode(question, type=kind))


def differences(entries: Iterable[Entry]) -> Iterable[tuple[int, Entry, Any]]:
    """Yield number, recorded entry and present decision of each entry whose decision changed."""
    for number, entry in enumerate(entries):
        now = msgspec.json.decode(msgspec.json.encode(decide(entry.planner, entry.question)))
        if _without_nulls(now) != _without_nulls(entry.decision):
            yield number, entry, now


def _without_nulls(value: Any) -> Any:
    """Return the value without null fields: a new field that is null decides nothing."""
    match value:
        case dict():
            return {key: _without_nulls(one) for key, one in value.items() if one is not None}
        case list():
            return [_without_nulls(one) for one in value]
        case _:
            return value
