"""Explanation of a Job, from the planner's notes and the state of its Pods. Pure functions."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from onejob.diagnosis.durations import short_seconds
from onejob.diagnosis.ended import STOPPED_REASON, Ended
from onejob.diagnosis.explanation import (
    RUN_IS_OVER,
    Document,
    Explanation,
    given_reason,
    last_end_text,
    set_by,
    time_text,
)
from onejob.diagnosis.job_trouble import (
    Failure,
    Uncounted,
    create_failure,
    create_remedy,
    uncounted_pods,
)
from onejob.diagnosis.pod_activity import PodActivity, activity_text, next_text, pod_activity
from onejob.diagnosis.pod_waits import start_hint
from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod, read_pod
from onejob.planning.counts import counted
from onejob.planning.dependencies.decision import waits_of
from onejob.planning.dependencies.standing import waits_for_dependencies
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.job.counting import JobPods
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.indexes import IndexSet, parse_indexes
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Note, Observed, Plan
from onejob.planning.job.planner import plan_job
from onejob.planning.job.pod_facts import completion_index, failures_of_pod, finish_time, is_tracked
from onejob.planning.job.rerun import RERUN_INDEXES
from onejob.planning.mirror import names as mirror
from onejob.planning.names import AFTER_HELD_ANNOTATION, BUILT_IN_MANAGER, TRACKING_NAMES
from onejob.planning.pod.placement import NodeView
from onejob.planning.queue.membership import is_held, is_queued
from onejob.planning.ttl import Expires, job_expiry, ttl_source

_SHOWN_PODS: Final = 3
#: Indexes of a partial rerun above which they keep their own numbers.
_MAX_RENUMBERED: Final = 100_000
_FINALIZER_REMOVED: Final = (
    "the Job controller has removed that finalizer; it retries automatically and needs "
    "permission to patch Pods"
)
_ODD_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


def explain_job(
    job_document: Document,
    pod_documents: Sequence[Document],
    now: datetime,
    *,
    events: Sequence[Document] = (),
    node: NodeView | None = None,
    ended: Ended | None = None,
) -> Explanation:
    """Explain a Job.

    `events` are the Events about it; `node` is the cluster's node, if there is only one; `ended` is
    the end of the run whose stored state this is.
    """
    job = read_job(msgspec.json.encode(job_document))
    pods = [read_pod(msgspec.json.encode(document)) for document in pod_documents]
    record = _backoff_record(pods)
    plan = plan_job(job, JobPods(pods), Observed(backoff=record), now, Settings())
    failed = sorted((p for p in pods if p.phase == "Failed"), key=finish_time)
    title = f"job/{job.metadata.name}"
    if ended is not None and not job.finished:
        own = ended.of_job(job.metadata.namespace, job.metadata.name)
        return Explanation(
            state=f"{title} {_cut_short(job, own, now)}",
            cause=(own.cause,),
            evidence=(_counts(job, over=True), *_failed_pods(job, failed, now)),
            next=(f"{own.resume} runs what did not succeed",),
            shown_failure=_failed_pod_to_show(failed),
        )
    activity = pod_activity(pod_documents, node)
    trouble = _find_trouble(job, plan, pods, events, now)
    evidence = [
        _counts(job),
        *_stuck_pods(pod_documents, activity),
        *_failed_pods(job, failed, now),
    ]
    if ended is None:
        coming = [*_start_remedies(failed), *_next(job, plan, activity, trouble, now)]
    elif job.condition_is_true("Complete"):
        coming = [RUN_IS_OVER]
    else:
        coming = [f"{ended.resume} runs what did not succeed"]
    return Explanation(
        state=f"{title} {_state(job, plan, activity, trouble, now)}",
        cause=(*trouble.causes(now), *_causes(job, job_document, plan, now)),
        evidence=tuple(evidence),
        next=tuple(coming),
        shown_failure=_failed_pod_to_show(failed),
        notes=plan.notes,
        blocked=_is_blocked(job, activity, trouble),
    )


class _Trouble(msgspec.Struct, frozen=True):
    """Failures that keep the controller from creating Pods or from counting them."""

    creating: Failure | None = None
    counting: Uncounted | None = None

    def causes(self, now: datetime) -> list[str]:
        """Return the causes in words."""
        causes = [self.creating.text(now)] if self.creating is not None else []
        if self.counting is not None:
            causes.append(self.counting.text(now))
            if self.counting.failure is not None:
                causes.append(self.counting.failure.text(now))
        return causes


def _find_trouble(
    job: Job, plan: Plan, pods: Sequence[Pod], events: Sequence[Document], now: datetime
) -> _Trouble:
    if job.finished or plan.skipped is not None:
        return _Trouble()
    counted_later = _pods_counted_with_their_replacement(job, pods)
    ended = [pod for pod in pods if pod.metadata.name not in counted_later]
    return _Trouble(
        create_failure(events) if plan.creations else None, uncounted_pods(ended, events, now)
    )


def _pods_counted_with_their_replacement(job: Job, pods: Sequence[Pod]) -> set[str]:
    """Return the names of failed Pods that keep their finalizer until their index is tried again.

    With backoffLimitPerIndex, the last failed Pod of an index stores its number of failures.
    """
    if job.spec.backoff_limit_per_index is None:
        return set()
    given_up = parse_indexes(job.status.failed_indexes or "", job.spec.completions or 0)
    return {
        pod.metadata.name
        for pod in pods
        if pod.phase == "Failed"
        and (index := completion_index(pod)) is not None
        and index not in given_up
    }


def _is_blocked(job: Job, activity: PodActivity, trouble: _Trouble) -> bool:
    """Return whether no Pod runs, and none can be created or started."""
    if job.finished or job.spec.suspend or job.metadata.deleting:
        return False
    if activity.running or activity.starting or activity.restarting or activity.ending:
        return False
    return trouble.creating is not None or bool(activity.blocked)


# --- the state in one sentence --------------------------------------------------------------


def _cut_short(job: Job, end: Ended, now: datetime) -> str:
    """Return the state of a Job that was unfinished when its run ended."""
    ago = short_seconds((now - end.at).total_seconds())
    after = ""
    if job.status.start_time is not None:
        after = f", after {short_seconds((end.at - job.status.start_time).total_seconds())}"
    match end.word:
        case "Lost":
            return f"is lost: its run was killed about {ago} ago{after}."
        case "Blocked":
            return f"could not start; its run ended {ago} ago{after}."
        case _:
            return f"was stopped {ago} ago{after}."


def _state(job: Job, plan: Plan, activity: PodActivity, trouble: _Trouble, now: datetime) -> str:
    """Return the predicate of the sentence about the Job's state."""
    finished = job.finished_condition
    if finished is not None:
        ago = ""
        if finished.last_transition_time is not None:
            ago = f", {short_seconds((now - finished.last_transition_time).total_seconds())} ago"
        return f"is {finished.type}{ago}."
    kinds = {note.kind for note in plan.notes}
    if job.metadata.deleting:
        return "is being deleted."
    if _is_mirrored(job) and not job.finished:
        return _mirrored_state(job)
    if "managed-elsewhere" in kinds:
        return "is managed by another controller."
    if waits_for_dependencies(job):
        return "is waiting for other Jobs."
    if is_queued(job):
        return "is queued."
    if job.spec.suspend:
        return "is suspended."
    if plan.fate is not None and trouble.counting is not None:
        return "has an outcome, but its ended Pods cannot be counted."
    if plan.fate is not None:
        return "has an outcome and is waiting for its Pods to end."
    if trouble.creating is not None:
        return "cannot create its Pods."
    if "backoff" in kinds or ("index-backoff" in kinds and not job.status.active):
        return "is waiting to retry."
    if job.spec.parallelism == 0:
        return "runs no Pods because of its parallelism."
    if trouble.counting is not None and activity == PodActivity():
        return "has ended Pods that cannot be counted."
    return activity_text(activity)


# --- causes ---------------------------------------------------------------------------------


def _causes(job: Job, document: Document, plan: Plan, now: datetime) -> list[str]:
    """Return the reasons for that state."""
    causes = []
    for note in plan.notes:
        match note.kind:
            case "deadline":
                continue
            case "managed-elsewhere":
                causes.append(_managed_elsewhere(job))
            case "suspended" if waits_for_dependencies(job):
                causes.extend(_dependencies(job, document))
            case "suspended" if is_queued(job):
                causes.append("a concurrency limit is reached, so it is suspended until its turn")
            case "suspended":
                causes.append(f"spec.suspend is true{set_by(document, 'f:spec', 'f:suspend')}")
                causes += given_reason(document, "reason given")
            case "finished":
                causes.append(_finished_text(job))
            case _:
                causes.append(_note_text(note, now))
    if job.metadata.deleting:
        causes += given_reason(document, "deleted because")
        causes.extend(f"finalizer {name} prevents the deletion" for name in job.metadata.finalizers)
    if job.spec.parallelism == 0 and not job.finished:
        causes.append("spec.parallelism is 0")
    if job.spec.active_deadline_seconds is not None and not job.finished and not job.spec.suspend:
        causes.extend(_note_text(note, now) for note in plan.notes if note.kind == "deadline")
    return causes


def _dependencies(job: Job, document: Document) -> list[str]:
    waits = waits_of(job)
    causes = [*waits[:_SHOWN_PODS]]
    if len(waits) > _SHOWN_PODS:
        causes.append(f"and {len(waits) - _SHOWN_PODS} more like these")
    if not is_held(job, AFTER_HELD_ANNOTATION):
        causes.append(f"spec.suspend is true{set_by(document, 'f:spec', 'f:suspend')}")
    return causes


def _is_mirrored(job: Job) -> bool:
    return job.spec.managed_by == mirror.MANAGER


def _mirrored_state(job: Job) -> str:
    target = job.metadata.annotations.get(mirror.TARGET) or "a remote cluster"
    condition = job.condition(mirror.READY)
    if condition is None:
        return f"is waiting to run on target {target}."
    if condition.status != "True":
        return f"is waiting: {condition.reason} on target {target}."
    return f"{('is suspended' if job.spec.suspend else 'is running')} on target {target}."


def _managed_elsewhere(job: Job) -> str:
    """Return the cause of a Job that another controller or the mirror manages."""
    if _is_mirrored(job):
        condition = job.condition(mirror.READY)
        if condition is None:
            return "it is mirrored, and the mirror has not reported its state yet"
        return condition.message
    text = f"spec.managedBy is {job.spec.managed_by}, so onejob does not manage it"
    if job.status.start_time is None and not job.status.conditions:
        text += "; its status is empty, so this controller may not be running"
    return text


def _finished_text(job: Job) -> str:
    """Return the reason of the Job's end in words."""
    condition = job.finished_condition
    assert condition is not None, "only called for finished Jobs"
    text = f"{condition.reason}: {condition.message}"
    match condition.reason:
        case "BackoffLimitExceeded":
            return f"{text} (backoffLimit {job.spec.backoff_limit}, {job.status.failed} failed)"
        case "DeadlineExceeded":
            return f"{text} (activeDeadlineSeconds {job.spec.active_deadline_seconds})"
        case "FailedIndexes" | "MaxFailedIndexesExceeded":
            return f"{text} (failed indexes: {_original_indexes(job)})"
        case _:
            return text


def _original_indexes(job: Job) -> str:
    """Return the failed indexes, numbered as in the first Job of the lineage."""
    failed = job.status.failed_indexes or ""
    noted = job.metadata.annotations.get(RERUN_INDEXES)
    completions = job.spec.completions or 0
    if noted is None or completions > _MAX_RENUMBERED:
        return failed
    origins = [*islice(parse_indexes(noted, 2**31), completions)]
    own = parse_indexes(failed, len(origins))
    return str(IndexSet((origins[index], origins[index]) for index in own))


# --- evidence -------------------------------------------------------------------------------


def _counts(job: Job, *, over: bool = False) -> str:
    """Return the counters in words."""
    status, goal = job.status, job.spec.completions
    wanted = "" if goal is None else f" of {goal}"
    active = f"{status.active} interrupted" if over else f"{status.active} active"
    parts = [f"{status.succeeded}{wanted} succeeded", active]
    if status.failed:
        limit = job.spec.backoff_limit
        per_index = job.spec.backoff_limit_per_index is not None
        of = "" if limit is None or per_index else f" (backoffLimit {limit})"
        parts.append(f"{status.failed} failed{of}")
    if status.terminating and not over:
        parts.append(f"{status.terminating} ending")
    return "Pods: " + ", ".join(parts)


def _stuck_pods(pods: Sequence[Document], activity: PodActivity) -> list[str]:
    """Return a line about each Pod that waits."""
    lines = [
        f"pod {name} cannot start: {wait.text}"
        if wait.lasting
        else f"pod {name}: {wait.message if wait.for_room else wait.text}"
        for name, wait in activity.waits
    ]
    shown = {name for name, _ in activity.waits}
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status", {})
        name = metadata["name"]
        if status.get("phase") in ("Succeeded", "Failed") or name in shown:
            continue
        reports = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        for report in reports:
            waiting = report.get("state", {}).get("waiting", {})
            if waiting.get("reason", "") not in _ODD_WAITS:
                text = f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
                if end := last_end_text(report):
                    text += f"; {end}"
                lines.append(f"pod {name}, container {report['name']} is waiting: {text}")
        others = [f for f in metadata.get("finalizers", ()) if f not in TRACKING_NAMES]
        if metadata.get("deletionTimestamp") and others:
            lines.append(
                f"pod {name} is being deleted, but finalizers prevent it: {', '.join(others)}"
            )
    if len(lines) > _SHOWN_PODS:
        lines = [*lines[:_SHOWN_PODS], f"and {len(lines) - _SHOWN_PODS} more like these"]
    return lines


def _failed_pods(job: Job, failed: Sequence[Pod], now: datetime) -> list[str]:
    """Return each distinct failure once, with the number of its Pods and the last of them."""
    groups: dict[str, list[Pod]] = {}
    for pod in failed:
        # The last group is that of the last failure.
        how = _how_it_ended(job, pod)
        groups[how] = [*groups.pop(how, []), pod]
    lines = []
    for how, pods in list(groups.items())[-_SHOWN_PODS:]:
        ago = short_seconds((now - finish_time(pods[-1])).total_seconds())
        what, _, rest = how.partition(" ")
        name = pods[-1].metadata.name
        last = f"pod {name} {_VERBS[what]} {ago} ago"
        if len(pods) > 1:
            last = f"{len(pods)} pods {_VERBS_OF_MANY[what]}, the last ({name}) {ago} ago"
        lines.append(f"{last}: {rest}")
    if len(groups) > _SHOWN_PODS:
        lines.insert(0, f"{len(groups) - _SHOWN_PODS} other kinds of failure, and the last:")
    return lines


_VERBS: Final = {"stopped": "was stopped", "failed": "failed"}
_VERBS_OF_MANY: Final = {"stopped": "were stopped", "failed": "failed"}


def _how_it_ended(job: Job, pod: Pod) -> str:
    """Return a key of `_VERBS`, and the reason."""
    ends = [
        (status.name, end)
        for status in failures_of_pod(pod)
        if (end := status.state.terminated) is not None
    ]
    what = "; ".join(
        f"container {name} exited with code {end.exit_code} ({end.reason})"
        + (f": {' '.join(end.message.split())}" if end.message else "")
        for name, end in ends
    )
    verb = "stopped" if pod.status.reason == STOPPED_REASON else "failed"
    text = f"{verb} {what or _reason(pod) or 'deleted'}"
    ruling = match_failure_policy(job.spec.pod_failure_policy, pod)
    if ruling.action is not None:
        text += f"; it matched podFailurePolicy rule {ruling.rule_index} ({ruling.action})"
    elif job.spec.pod_failure_policy is not None:
        text += "; no podFailurePolicy rule matched, so it counts as a failure"
    return text


def _reason(pod: Pod) -> str:
    """Return the reason of a Pod that failed as a whole, with the message of its condition."""
    reason = pod.status.reason
    said = (condition.message for condition in pod.status.conditions if condition.reason == reason)
    message = " ".join(next(filter(None, said), "").split())
    return f"{reason}: {message}" if reason and message else reason


def _failed_pod_to_show(failed: Sequence[Pod]) -> tuple[str, str] | None:
    """Return names of the last failed Pod and its failed container; None if there is none."""
    for pod in reversed(failed):
        for status in failures_of_pod(pod):
            return pod.metadata.name, status.name
    return None


# --- next steps -----------------------------------------------------------------------------


def _start_remedies(failed: Sequence[Pod]) -> list[str]:
    """Return what `onejob run` advises after a container that could not be started."""
    for status in failures_of_pod(failed[-1]) if failed else ():
        end = status.state.terminated
        if end is not None and end.reason in ("StartError", "ContainerCannotRun"):
            hint = start_hint(end.message, "the working directory of the server")
            return [hint] if hint else []
    return []


def _next(
    job: Job, plan: Plan, activity: PodActivity, trouble: _Trouble, now: datetime
) -> list[str]:
    """Return what happens next, and the user's action it depends on."""
    if job.finished:
        return [_after_the_end(job, now)]
    kinds = {note.kind: note for note in plan.notes}
    if _is_mirrored(job):
        return ["its progress is shown here; onejob logs and onejob get pods work as well"]
    if "managed-elsewhere" in kinds:
        return [f"{job.spec.managed_by} decides; for onejob, set {BUILT_IN_MANAGER}"]
    if job.metadata.deleting:
        return ["it is deleted when its finalizers are removed"]
    if waits_for_dependencies(job):
        return ["it starts when these Jobs have ended so, and fails if they can no longer"]
    if is_queued(job):
        return ["it starts in turn; onejob queue shows its position"]
    if job.spec.suspend:
        return [f"nothing until resumed with onejob resume job/{job.metadata.name}"]
    if plan.fate is not None:
        outcome = "Complete" if plan.fate.succeeds else "Failed"
        if trouble.counting is not None:
            return [f"it becomes {outcome} when {_FINALIZER_REMOVED}"]
        return [f"it becomes {outcome} when its last Pod has ended"]
    lines = []
    if trouble.counting is not None:
        lines.append(f"its ended Pods are counted when {_FINALIZER_REMOVED}")
    retry = kinds.get("backoff") or kinds.get("index-backoff")
    if retry is not None:
        assert retry.until is not None, "a backoff has an end"
        lines.append(f"a new Pod is started {time_text(retry.until, now)}")
        left = (job.spec.backoff_limit or 0) - job.status.failed
        if job.spec.backoff_limit_per_index is None:
            lines.append(f"{counted(left + 1, 'more failure')} would make the Job fail")
    elif job.spec.parallelism == 0:
        lines.append("nothing until spec.parallelism is increased")
    elif trouble.creating is not None:
        lines.append(create_remedy(trouble.creating, job.metadata.namespace))
        lines.append("creating Pods is retried automatically, at increasing intervals")
    elif plan.creations:
        verb = "is" if len(plan.creations) == 1 else "are"
        lines.append(f"{counted(len(plan.creations), 'Pod')} {verb} started")
    elif coming := next_text(activity):
        lines.append(coming)
    if "deadline" in kinds:
        until = kinds["deadline"].until
        assert until is not None, "a deadline is a time"
        lines.append(
            f"unless it ends before, it fails {time_text(until, now)}: activeDeadlineSeconds"
        )
    return lines


def _after_the_end(job: Job, now: datetime) -> str:
    expiry = job_expiry(job)
    if not isinstance(expiry, Expires):
        return "nothing: a finished Job is kept until it is deleted"
    left = short_seconds(max(expiry.time_left(now).total_seconds(), 0))
    ttl = round((expiry.at - expiry.finished_at).total_seconds())
    return f"it is deleted in {left} ({ttl_source(job)} is {ttl})"


# --- shared ---------------------------------------------------------------------------------


def _backoff_record(pods: Sequence[Pod]) -> BackoffRecord:
    """Rebuild the back-off record from the remaining Pods.

    The controller keeps the record in memory; the result is nearly the same. Pods with their
    finalizer are left out: the planner adds them itself.
    """
    record = NO_FAILURES
    counted = [pod for pod in pods if pod.terminal and not is_tracked(pod)]
    for pod in sorted(counted, key=finish_time):
        at = finish_time(pod)
        record = record.after([at], []) if pod.phase == "Succeeded" else record.after([], [at])
    return record


def _note_text(note: Note, now: datetime) -> str:
    if note.until is None:
        return note.text
    word = "at" if note.kind == "deadline" else "until"
    return f"{note.text}, {time_text(note.until, now, word)}"
