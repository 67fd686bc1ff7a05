"""Explanation of a Pod, from its status and the scheduler's rules. Pure functions."""

from datetime import datetime, timedelta
from itertools import chain

import msgspec

from onejob.api.kinds.printing import read_time
from onejob.diagnosis.ended import STOPPED_REASON, Ended, has_ended
from onejob.diagnosis.explanation import (
    RUN_IS_OVER,
    Document,
    Explanation,
    ago_text,
    last_end_text,
    time_text,
)
from onejob.diagnosis.pod_activity import PodActivity, pod_activity
from onejob.objects.pod import read_pod
from onejob.planning.job.pod_facts import failures_of_pod, finish_time
from onejob.planning.names import TRACKING_NAMES
from onejob.planning.pod.placement import NodeView


def explain_pod(
    pod: Document, now: datetime, *, node: NodeView | None = None, ended: Ended | None = None
) -> Explanation:
    """Explain a Pod.

    `node` is the cluster's node, if there is only one; `ended` is the end of the run whose stored
    state this is.
    """
    activity = pod_activity([pod], node)
    over = ended is not None
    if ended is not None and not has_ended(pod):
        state, cause = f"was interrupted {ago_text(ended.at, now)}.", [ended.cause]
    else:
        state, cause = _state(pod, activity, now), _causes(pod, activity)
    return Explanation(
        state=f"pod/{pod['metadata']['name']} {state}",
        cause=tuple(cause),
        evidence=tuple(_container_texts(pod, now)),
        next=(RUN_IS_OVER,) if over else tuple(_next(pod, activity, now)),
        shown_failure=_failed_container(pod),
    )


def _state(pod: Document, activity: PodActivity, now: datetime) -> str:
    """Return the predicate of the sentence about the Pod's state."""
    status = pod.get("status", {})
    if has_ended(pod):
        ago = ago_text(finish_time(read_pod(msgspec.json.encode(pod))), now)
        if status["phase"] == "Succeeded":
            return f"succeeded {ago}."
        if status.get("reason") == STOPPED_REASON:
            return f"was stopped {ago}."
        return f"failed {ago}."
    if activity.ending:
        return "is being deleted."
    if activity.running:
        return "is running."
    if activity.restarting:
        return "is waiting to restart a failed container."
    for _, wait in activity.waits:
        if wait.lasting:
            return "cannot start."
        place = "capacity on the node" if wait.for_room else "the node"
        return f"is waiting for {place}."
    return "is starting."


def _causes(pod: Document, activity: PodActivity) -> list[str]:
    """Return the reasons for that state."""
    status = pod.get("status", {})
    if has_ended(pod):
        text = f"{status.get('reason', '')}: {status.get('message', '')}".strip(": ")
        return [text] if text else _failed_texts(pod)
    if activity.ending:
        finalizers = pod["metadata"].get("finalizers", ())
        return [
            f"finalizer {name} prevents the deletion"
            for name in finalizers
            if name not in TRACKING_NAMES
        ] or ["its containers are stopping within the grace period"]
    return [wait.text for _, wait in activity.waits]


def _container_statuses(pod: Document) -> list[Document]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _failed_texts(pod: Document) -> list[str]:
    reports = {report["name"]: report for report in _container_statuses(pod)}
    return [
        f"container {name} {_end_text(reports[name]['state']['terminated'])}"
        for name in _failed_names(pod)
    ]


def _failed_names(pod: Document) -> list[str]:
    return [status.name for status in failures_of_pod(read_pod(msgspec.json.encode(pod)))]


def _end_text(end: Document) -> str:
    message = " ".join(end.get("message", "").split())
    text = f"exited with code {end['exitCode']} ({end.get('reason', '')})"
    return f"{text}: {message}" if message else text


def _container_texts(pod: Document, now: datetime) -> list[str]:
    """Return a line about the state of each container."""
    lines = []
    for report in _container_statuses(pod):
        parts = [_container_state(report.get("state", {}), now)]
        if count := report.get("restartCount", 0):
            parts.append(f"restarted {count} time{'s' if count > 1 else ''}")
        if end := last_end_text(report):
            parts.append(end)
        lines.append(f"container {report['name']} {'; '.join(parts)}")
    return lines


def _container_state(state: Document, now: datetime) -> str:
    """Return a container's state in words."""
    if end := state.get("terminated"):
        finished = read_time(end.get("finishedAt"))
        return (
            _end_text(end) if finished is None else f"{_end_text(end)}, {ago_text(finished, now)}"
        )
    if running := state.get("running"):
        started = read_time(running.get("startedAt"))
        return "runs" if started is None else f"is running, started {ago_text(started, now)}"
    waiting = state.get("waiting", {})
    text = f"{waiting.get('reason', '')}: {waiting.get('message', '')}".strip(": ")
    return f"waits: {text}" if text else "has not started"


def _next(pod: Document, activity: PodActivity, now: datetime) -> list[str]:
    """Return what happens next, and the user's action it depends on."""
    owner = next(
        (o for o in pod["metadata"].get("ownerReferences", ()) if o.get("controller")), None
    )
    name = "" if owner is None else f"{owner['kind'].lower()}/{owner['name']}"
    if has_ended(pod):
        if not name:
            return ["nothing: it is kept until it is deleted"]
        return [f"{name} decides; see onejob why {name}"]
    if activity.ending:
        return ["it is deleted when its containers have ended and its finalizers are removed"]
    return [*_next_of_active(pod, activity), *_deadline(pod, now)]


def _next_of_active(pod: Document, activity: PodActivity) -> list[str]:
    """Return what ends a Pod that is active."""
    policy = pod["spec"].get("restartPolicy", "Always")
    if activity.running:
        again = {
            "Never": "it ends when its containers end (restartPolicy is Never)",
            "OnFailure": "it ends when its containers succeed; failed containers are restarted",
        }
        return [again.get(policy, f"its containers are restarted (restartPolicy is {policy})")]
    if activity.restarting:
        return ["the container is restarted"]
    for _, wait in activity.waits:
        if wait.lasting:
            return ["nothing until its requirements are met"]
        if wait.for_room:
            return ["it starts when capacity is available"]
        return ["it starts when the node is no longer short of resources"]
    return ["its containers start"]


def _deadline(pod: Document, now: datetime) -> list[str]:
    """Return a line about activeDeadlineSeconds, if the Pod has one and has started."""
    seconds = pod["spec"].get("activeDeadlineSeconds")
    started = read_time(pod.get("status", {}).get("startTime"))
    if seconds is None or started is None:
        return []
    try:
        until = time_text(started + timedelta(seconds=seconds), now)
    except OverflowError:
        # Beyond the last year that a datetime can represent.
        return []
    return [f"unless it ends before, it fails {until}: activeDeadlineSeconds"]


def _failed_container(pod: Document) -> tuple[str, str] | None:
    """Return the Pod and container whose log shows why the Pod ended or restarts; or None."""
    restarted = (
        report["name"]
        for report in _container_statuses(pod)
        if report.get("lastState", {}).get("terminated", {}).get("exitCode")
    )
    name = next(chain(_failed_names(pod), restarted), None)
    return None if name is None else (pod["metadata"]["name"], name)
