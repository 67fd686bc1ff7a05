"""Job planner: `plan_job` decides, `account` and `settle` turn outcomes into status writes.

Pure: performs no I/O, does not wait or log, and takes the time as an argument. A controller
executes the returned values.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from onejob.objects.job import Job, JobStatus
from onejob.planning.counts import counted
from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.bookkeeping import Draft, TrackingMode
from onejob.planning.job.conditions import (
    SUSPENDED,
    ensure_condition,
    find_true,
    new_condition,
)
from onejob.planning.job.counting import JobCounters, JobPods
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.fate import completion_outcome, deadline_of, decide_outcome
from onejob.planning.job.legacy import LEGACY_TRACKING
from onejob.planning.job.oom import OomHistory
from onejob.planning.job.operator_settings import (
    Settings,
    has_tracking_annotation,
    is_ours,
    tracks_with_finalizers,
)
from onejob.planning.job.plan import (
    Accounting,
    Event,
    JobOutcome,
    Note,
    Observed,
    Plan,
    PodDeletion,
    PodOutcomes,
)
from onejob.planning.job.pod_facts import finish_time
from onejob.planning.job.pruning import prune_failed_pods
from onejob.planning.job.reporting import RESUMED, STARTED, UNKNOWN_MODE, creation_metrics
from onejob.planning.job.reporting import SUSPENDED as SUSPENDED_EVENT
from onejob.planning.job.scaling import PodChanges, change_pods
from onejob.planning.job.tracking import FINALIZER_TRACKING, settle
from onejob.planning.metadata_values import whole_second
from onejob.planning.names import BUILT_IN_MANAGER

__all__ = ["account", "plan_job", "settle"]


def plan_job(
    job: Job, census: JobPods, observed: Observed, now: datetime, settings: Settings
) -> Plan:
    """Return the Pod changes for a Job, given its cached state at `now`.

    Requirements:
        The Pods are claimed already (`onejob.planning.job.claiming`), and the caches include every
        write made for this Job so far: otherwise Pods would be created or counted twice.
    """
    skipped = _reason_to_skip(job, observed, settings)
    if skipped is not None:
        return _skipped_plan(skipped, job, census, now, settings)
    legacy = not tracks_with_finalizers(job, settings)
    books = _tracking_mode(legacy)
    tally = books.count(job, census)
    backoff = books.remember(observed, tally)
    start_time = job.status.start_time
    if start_time is None and not job.spec.suspend:
        start_time = whole_second(now)
    future_times = observed.future_times.after(_waited_after(start_time, backoff, tally), now)
    runs_since = None if start_time is None else future_times.counts_from(start_time)
    if _is_being_resumed(job):
        # Time spent suspended must not count against the deadline. The new start time is written
        # together with the end of the suspension and in no other update: the API would reject it.
        runs_since = whole_second(now)
    against_limit = books.against_limit(job, tally)
    fate = decide_outcome(job, census, against_limit, runs_since, now, legacy=legacy)
    manage = fate is None and not job.metadata.deleting
    changes = PodChanges(action="reconciling")
    if fate is not None:
        changes = PodChanges(deletions=_end_all(census), action="reconciling")
    elif manage:
        nodes = observed.nodes_in_maintenance
        changes = change_pods(job, census, tally, backoff, now, settings, future_times, nodes)
    return Plan(
        job,
        now,
        settings,
        notes=(*_notes(job, fate, runs_since, tally), *changes.notes, *_memory_notes(job, census)),
        prunings=prune_failed_pods(job, census, settings),
        deletions=changes.deletions,
        creations=changes.creations,
        creation_reason=changes.reason,
        action=changes.action,
        fate=fate,
        pods_managed=manage,
        start_time=start_time,
        backoff=backoff,
        future_times=future_times,
        ledger=books.open_ledger(job, census, tally, fate),
        legacy=legacy,
        drop_annotation=legacy and has_tracking_annotation(job),
    )


def _is_being_resumed(job: Job) -> bool:
    """Return whether this sync has to record that the Job is no longer suspended.

    A Job being deleted is not resumed: its status would show that for the rest of its existence.
    """
    resumed = not job.spec.suspend and not job.metadata.deleting
    return resumed and find_true(job.status.conditions, SUSPENDED) is not None


def _waited_after(
    start_time: datetime | None, backoff: BackoffRecord, tally: JobCounters
) -> Iterator[datetime | None]:
    """Yield the times from which a delay of the Job, or of one of its indexes, is measured."""
    yield start_time
    yield backoff.last_failure_at
    yield from map(finish_time, tally.new_failed)
    yield from map(finish_time, tally.retained.values())


def account(plan: Plan, outcomes: PodOutcomes) -> Accounting:
    """Return the status that follows from ended Pods and the outcome of the Pod changes."""
    job, tally = plan.job, plan.ledger.tally
    gone = [deletion for deletion in plan.deletions if deletion.uid in outcomes.deleted]
    active = tally.active - len(gone) + outcomes.created
    terminating = tally.terminating + len(gone)
    fate = plan.fate or completion_outcome(job, tally.succeeded, active)
    if plan.fate is not None and len(gone) < len(plan.deletions):
        # An outcome recorded while Pods may still run unobserved could not be revoked.
        fate = None
    status = msgspec.structs.replace(
        job.status,
        active=active,
        ready=tally.ready - sum(deletion.ready for deletion in gone),
        terminating=terminating,
        start_time=plan.start_time,
    )
    events: tuple[Event, ...] = ()
    if plan.pods_managed and fate is None:
        status, events = _with_suspension(plan, status)
    if fate is not None and _needs_start_time(job, status):
        status = msgspec.structs.replace(status, start_time=whole_second(plan.now))
    if plan.settings.lifecycle_events and _is_new_start(job.status.start_time, status.start_time):
        events = (*events, STARTED)
    draft = Draft(
        status,
        fate,
        terminating,
        dirty=status != job.status,
        events=events,
        metrics=creation_metrics(plan.creation_reason, outcomes.created, outcomes.create_failures),
        error=outcomes.error,
    )
    return _tracking_mode(plan.legacy).account(plan, draft)


def _tracking_mode(legacy: bool) -> TrackingMode:
    return LEGACY_TRACKING if legacy else FINALIZER_TRACKING


def _reason_to_skip(job: Job, observed: Observed, settings: Settings) -> Note | None:
    """Return why the Job is not synced, or None."""
    if not is_ours(job, settings):
        manager = job.spec.managed_by or BUILT_IN_MANAGER
        return Note("managed-elsewhere", f"is left to the controller {manager}")
    finished = job.finished_condition
    if finished is not None:
        return Note("finished", f"is {finished.type}: {finished.message or finished.reason}")
    if observed.finish_pending:
        return Note("finished", "has just finished")
    if job.spec.completion_mode not in ("Indexed", "NonIndexed"):
        return Note(
            "unknown-mode", f"has a completion mode unknown here: {job.spec.completion_mode}"
        )
    return None


def _skipped_plan(why: Note, job: Job, census: JobPods, now: datetime, settings: Settings) -> Plan:
    """Return a plan without Pod changes except the pruning of failed Pods of a finished Job."""
    return Plan(
        job,
        now,
        settings,
        skipped=why,
        notes=(why,),
        events=(UNKNOWN_MODE,) if why.kind == "unknown-mode" else (),
        # Failed Pods just released by the finishing Job can be pruned only now.
        prunings=prune_failed_pods(job, census, settings) if why.kind == "finished" else (),
    )


def _end_all(census: JobPods) -> tuple[PodDeletion, ...]:
    """Return deletions of all active Pods that keep their finalizers.

    Whether the Pods count as failed depends on the outcome of the Job.
    """
    return tuple(
        PodDeletion(
            pod.metadata.name,
            uid,
            ready=uid in census.ready,
            remove_finalizer_first=False,
            resource_version=pod.metadata.resource_version,
        )
        for uid, pod in census.active.items()
    )


def _with_suspension(plan: Plan, status: JobStatus) -> tuple[JobStatus, tuple[Event, ...]]:
    """Return the status with the Suspended condition updated, and its Event.

    Resuming resets startTime.
    """
    if plan.job.spec.suspend:
        wanted = new_condition(SUSPENDED, "True", "JobSuspended", "Job suspended", plan.now)
        start_time = None if plan.settings.suspending_clears_start_time else status.start_time
        event = SUSPENDED_EVENT
    else:
        wanted = new_condition(SUSPENDED, "False", "JobResumed", "Job resumed", plan.now)
        start_time = whole_second(plan.now)
        event = RESUMED
    conditions, changed = ensure_condition(status.conditions, wanted)
    if not changed:
        return status, ()
    status = msgspec.structs.replace(status, conditions=conditions, start_time=start_time)
    return status, (event,)


def _needs_start_time(job: Job, status: JobStatus) -> bool:
    """Return whether a finishing Job lacks the startTime that the API requires.

    A Job may be suspended before its start is recorded, or lose startTime to suspension, and then
    turn out to be complete. The API rejects a finished Job without startTime, except one that was
    suspended with zero completions.
    """
    return status.start_time is None and not (job.spec.suspend and job.spec.completions == 0)


def _is_new_start(before: datetime | None, after: datetime | None) -> bool:
    """Return whether startTime has been set or moved."""
    return after is not None and after != before


def _notes(
    job: Job, fate: JobOutcome | None, start_time: datetime | None, tally: JobCounters
) -> tuple[Note, ...]:
    """Return the notes that explain the plan."""
    notes: list[Note] = []
    if job.metadata.deleting:
        notes.append(Note("being-deleted", "is being deleted: Pods are let go, none is started"))
    notes.extend(_policy_notes(job, tally))
    if fate is not None:
        verb = "succeeds" if fate.succeeds else "fails"
        notes.append(Note("fate", f"{verb}: {fate.reason}: {fate.message}"))
        if tally.terminating:
            verb = "is" if tally.terminating == 1 else "are"
            text = f"{counted(tally.terminating, 'Pod')} {verb} still ending"
            notes.append(Note("waiting-for-pods", text))
        return tuple(notes)
    if job.spec.suspend:
        notes.append(Note("suspended", "is suspended"))
    deadline = deadline_of(job, start_time)
    if deadline is not None:
        seconds = job.spec.active_deadline_seconds
        notes.append(Note("deadline", f"must end within {seconds} s of its start", deadline))
    return tuple(notes)


def _memory_notes(job: Job, census: JobPods) -> tuple[Note, ...]:
    text = OomHistory(job, census).note
    return () if text is None else (Note("oom-memory", text),)


def _policy_notes(job: Job, tally: JobCounters) -> list[Note]:
    """Return a note about each new failure that a rule matched."""
    policy = job.spec.pod_failure_policy
    if policy is None:
        return []
    rulings = ((pod, match_failure_policy(policy, pod)) for pod in tally.new_failed)
    return [
        Note(
            "failure-policy",
            f"Pod {pod.metadata.name} matched rule {ruling.rule_index}: {ruling.action}",
        )
        for pod, ruling in rulings
        if ruling.action is not None
    ]
