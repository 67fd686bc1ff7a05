"""Explanation of a CronJob, from the plan that its controller would make. Pure functions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from onejob.diagnosis.ended import finish_of
from onejob.diagnosis.explanation import (
    Document,
    Explanation,
    ago_text,
    given_reason,
    set_by,
    time_text,
)
from onejob.diagnosis.job_trouble import create_failure, job_create_remedy
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job, read_job
from onejob.planning.counts import counted
from onejob.planning.cronjob.planner import StartPlan, plan_start
from onejob.planning.cronjob.schedule import Calendar, Schedule
from onejob.planning.cronjob.slots import MISSED_EVENT_THRESHOLD, schedule_of, slots_from
from onejob.planning.cronjob.status import by_start_time, update_status

_SHOWN_JOBS: Final = 3


def explain_cronjob(
    document: Document,
    job_documents: Sequence[Document],
    now: datetime,
    *,
    local_zone: str,
    events: Sequence[Document] = (),
) -> Explanation:
    """Explain a CronJob.

    `job_documents` are all Jobs that it owns; `local_zone` is the server's, in which schedules
    without a zone are interpreted; `events` are the Events about it.
    """
    cronjob = read_cronjob(msgspec.json.encode(document))
    jobs = [read_job(msgspec.json.encode(job)) for job in job_documents]
    plan = _plan(cronjob, jobs, now, local_zone)
    schedule = schedule_of(cronjob, local_zone)
    failure = create_failure(events) if plan.start is not None else None
    if failure is not None:
        return Explanation(
            state=f"cronjob/{cronjob.metadata.name} cannot create its Job.",
            cause=(failure.text(now),),
            evidence=tuple(_evidence(cronjob, schedule, plan, job_documents, now)),
            next=(
                job_create_remedy(failure),
                "creating the Job is tried again by itself, at growing intervals",
            ),
        )
    return Explanation(
        state=f"cronjob/{cronjob.metadata.name} {_state(cronjob, schedule, plan)}",
        cause=tuple(_causes(cronjob, document, plan)),
        evidence=tuple(_evidence(cronjob, schedule, plan, job_documents, now)),
        next=tuple(_next(cronjob, schedule, plan, jobs, now, local_zone)),
    )


def next_run(document: Document, now: datetime, local_zone: str) -> datetime | None:
    """Return the next time of the schedule; None if the CronJob starts no Job then."""
    cronjob = read_cronjob(msgspec.json.encode(document))
    if cronjob.spec.suspend or cronjob.metadata.deleting:
        return None
    schedule = schedule_of(cronjob, local_zone)
    return schedule.next(now) if schedule is not None else None


def _plan(cronjob: CronJob, jobs: Sequence[Job], now: datetime, local_zone: str) -> StartPlan:
    """Return the plan that the controller would make now."""
    current = update_status(cronjob, None, jobs)
    missing = {reference.uid for reference in current.unseen}
    return plan_start(current, missing, now, local_zone=local_zone)


def _state(cronjob: CronJob, schedule: Schedule | None, plan: StartPlan) -> str:
    """Return the predicate of the sentence about the CronJob's state."""
    if cronjob.metadata.deleting:
        return "is being deleted."
    if schedule is None:
        return "starts no Jobs: its schedule is invalid."
    if cronjob.spec.suspend:
        return "is suspended."
    if plan.start is not None:
        return f"is about to start job/{plan.start.name}."
    if plan.schedule is None:
        return "starts no Jobs: its schedule never fires again."
    active = plan.current.status.active
    if active:
        return f"has {counted(len(active), 'Job')} running."
    return "is waiting for the next time of its schedule."


def _causes(cronjob: CronJob, document: Document, plan: StartPlan) -> list[str]:
    """Return the reasons for that state, without duplicates."""
    causes = []
    if cronjob.metadata.deleting:
        causes += given_reason(document, "deleted because")
        causes += [
            f"finalizer {name} prevents the deletion" for name in cronjob.metadata.finalizers
        ]
    elif cronjob.spec.suspend:
        causes.append(f"spec.suspend is true{set_by(document, 'f:spec', 'f:suspend')}")
        causes += given_reason(document, "reason given")
    elif plan.note and plan.start is None:
        causes.append(plan.note)
    shown = set(causes)
    causes += [
        f"{event.reason}: {event.message}" for event in plan.events if event.message not in shown
    ]
    return causes


def _evidence(
    cronjob: CronJob,
    schedule: Schedule | None,
    plan: StartPlan,
    jobs: Sequence[Document],
    now: datetime,
) -> list[str]:
    """Return the observed facts: schedule, last runs, missed times, running and ended Jobs."""
    zone = f", in time zone {schedule.zone}" if isinstance(schedule, Calendar) else ""
    lines = [f"schedule {cronjob.spec.schedule!r}{zone}"]
    status = plan.current.status
    if status.last_schedule_time is None:
        lines.append("it has not started any Job yet")
    else:
        lines.append(f"the last Job was scheduled for {_past_time(status.last_schedule_time, now)}")
    if status.last_successful_time is not None:
        lines.append(f"the last successful Job ended {ago_text(status.last_successful_time, now)}")
    if schedule is not None and (missed := _count_missed(cronjob, schedule, plan, now)):
        many = counted(min(missed, MISSED_EVENT_THRESHOLD), "time")
        more = "more than " if missed > MISSED_EVENT_THRESHOLD else ""
        verb = "has" if missed == 1 else "have"
        lines.append(f"{more}{many} of its schedule {verb} passed since then without a Job")
    lines += [f"job/{reference.name} is running" for reference in status.active]
    return [*lines, *_ended_jobs(jobs, now)]


def _count_missed(cronjob: CronJob, schedule: Schedule, plan: StartPlan, now: datetime) -> int:
    """Return the number of missed schedule times, at most MISSED_EVENT_THRESHOLD + 1."""
    count = 0
    slot = schedule.next(slots_from(cronjob, plan.current.status))
    while slot is not None and slot <= now and count <= MISSED_EVENT_THRESHOLD:
        count += 1
        slot = schedule.next(slot)
    return count


def _ended_jobs(documents: Sequence[Document], now: datetime) -> list[str]:
    """Return a line about each of the last ended Jobs, in order of their start."""
    lines = []
    order = {
        document["metadata"]["name"]: by_start_time(read_job(msgspec.json.encode(document)))
        for document in documents
    }
    for document in sorted(documents, key=lambda job: order[job["metadata"]["name"]]):
        ended_at = finish_of(document)
        condition = read_job(msgspec.json.encode(document)).finished_condition
        if ended_at is not None and condition is not None:
            reason = f": {condition.reason}" if condition.type == "Failed" else ""
            name = document["metadata"]["name"]
            lines.append(f"job/{name} is {condition.type}, {ago_text(ended_at, now)}{reason}")
    return lines[-_SHOWN_JOBS:]


def _next(
    cronjob: CronJob,
    schedule: Schedule | None,
    plan: StartPlan,
    jobs: Sequence[Job],
    now: datetime,
    local_zone: str,
) -> list[str]:
    """Return what happens next, and the user's action it depends on."""
    if cronjob.metadata.deleting:
        return ["it is deleted when its finalizers are removed"]
    if schedule is None:
        return ["nothing until spec.schedule or spec.timeZone is corrected"]
    if cronjob.spec.suspend:
        resumed = msgspec.structs.replace(
            cronjob, spec=msgspec.structs.replace(cronjob.spec, suspend=False)
        )
        name = cronjob.metadata.name
        coming = _upcoming_lines(resumed, schedule, _plan(resumed, jobs, now, local_zone), now)
        return [
            f"nothing until resumed with onejob resume cronjob/{name}",
            *(f"then {c}" for c in coming),
        ]
    return _upcoming_lines(cronjob, schedule, plan, now)


def _upcoming_lines(
    cronjob: CronJob, schedule: Schedule, plan: StartPlan, now: datetime
) -> list[str]:
    """Return lines about the Job being started and the next one."""
    lines = []
    if plan.start is not None:
        due = _past_time(plan.start.slot, now)
        lines.append(f"job/{plan.start.name} is started now for the time {due}")
        lines += [
            f"job/{reference.name} is deleted to start it" for reference in plan.start.replaces
        ]
    following = schedule.next(now)
    if following is None:
        return [*lines, "nothing: the schedule never fires again"]
    text = f"the next Job is started {time_text(following, now)}"
    match cronjob.spec.concurrency_policy:
        case "Forbid":
            text += ", unless another one is still running (concurrencyPolicy Forbid)"
        case "Replace":
            text += ", replacing one that is still running (concurrencyPolicy Replace)"
        case _:
            pass
    return [*lines, text]


def _past_time(moment: datetime, now: datetime) -> str:
    """Return a past time and its distance from now."""
    return f"{moment.strftime('%Y-%m-%d %H:%M:%S')} UTC ({ago_text(moment, now)})"
