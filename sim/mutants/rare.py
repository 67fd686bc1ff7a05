"""Mutants that show only with switched feature gates or with rare actions of users."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from msgspec.structs import replace as with_changes

from onejob.controllers import cronjob_sync
from onejob.objects.job import Job
from onejob.planning.cronjob.planner import (
    NotCreated,
    Outcome,
    Settlement,
    StartPlan,
    plan_start,
    settle,
)
from onejob.planning.cronjob.status import Deleted
from onejob.planning.future_times import FutureTimes
from onejob.planning.job import fate, planner
from onejob.planning.job.counting import JobCounters, JobPods
from onejob.planning.job.legacy import LEGACY_TRACKING
from onejob.planning.job.plan import JobOutcome, Ledger
from sim.mutants.planting import Plant, replace


def _count_what_stays_held(undo: ExitStack) -> None:
    """With tracking switched off, Pods are counted that the next process counts again."""

    def forget(job: Job, census: JobPods, tally: JobCounters, fate: JobOutcome | None) -> Ledger:
        return Ledger(tally=tally)

    forgetful = with_changes(LEGACY_TRACKING, open_ledger=forget)
    replace(undo, planner, "LEGACY_TRACKING", forgetful)


def _overlook_the_backoff_limit(undo: ExitStack) -> None:
    replace(undo, fate, "_backoff_limit_exceeded", lambda *args: None)


def _record_before_it_runs(undo: ExitStack) -> None:
    """A slot is recorded although its Job could not be created."""

    def settled(
        plan: StartPlan, replaced: Sequence[Deleted] = (), outcome: Outcome | None = None
    ) -> Settlement:
        settlement = settle(plan, replaced, outcome)
        if plan.start is None or not isinstance(outcome, NotCreated):
            return settlement
        status = with_changes(plan.current.status, last_schedule_time=plan.start.slot)
        return with_changes(settlement, status=status)

    replace(undo, cronjob_sync, "settle", settled)


def _replace_nothing(undo: ExitStack) -> None:
    """The previous Job goes on."""

    def planned(*args: object, **options: object) -> StartPlan:
        plan = plan_start(*args, **options)  # type: ignore[arg-type]
        if plan.start is None:
            return plan
        return with_changes(plan, start=with_changes(plan.start, replaces=()))

    replace(undo, cronjob_sync, "plan_start", planned)


def _wait_for_the_old_time(undo: ExitStack) -> None:
    """After the clock was set back, nothing is due until it reaches its former time."""
    replace(undo, FutureTimes, "counts_from", lambda self, moment: moment)


#: Mutants that need switched feature gates.
WITH_GATES: Mapping[str, Plant] = {
    "Pods stay held where tracking is switched off": _count_what_stays_held,
}
#: Mutants that need rare actions of users.
WITH_RARE_DEEDS: Mapping[str, Plant] = {
    "backoff limit overlooked": _overlook_the_backoff_limit,
    "slot on record that did not run": _record_before_it_runs,
    "replaced Job goes on": _replace_nothing,
    "schedule waits for the old time": _wait_for_the_old_time,
}
MUTANTS: Mapping[str, Plant] = {**WITH_GATES, **WITH_RARE_DEEDS}
