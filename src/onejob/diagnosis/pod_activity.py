"""Current activity of a Job's Pods: running, starting, waiting, ending. Pure functions."""

from collections.abc import Sequence
from typing import Any

import msgspec

from onejob.diagnosis.pod_waits import PodWait, find_wait
from onejob.planning.pod.placement import NodeView

Document = dict[str, Any]


class PodActivity(msgspec.Struct, frozen=True):
    running: int = 0
    #: Number of Pods that are about to start, without an obstacle.
    starting: int = 0
    #: Number of Pods without a running container, until a failed one is restarted.
    restarting: int = 0
    ending: int = 0
    #: Waiting Pods by name, in the order of the input.
    waits: tuple[tuple[str, PodWait], ...] = ()

    @property
    def for_room(self) -> list[PodWait]:
        return [wait for _, wait in self.waits if wait.for_room]

    @property
    def delayed(self) -> list[PodWait]:
        """Waits that end when the node has enough of a resource again, like disk space."""
        return [wait for _, wait in self.waits if not wait.lasting and not wait.for_room]

    @property
    def blocked(self) -> list[PodWait]:
        """Return the waits that do not end by themselves."""
        return [wait for _, wait in self.waits if wait.lasting]

    @property
    def short(self) -> list[str]:
        """Names of the resources that the Pods waiting for room need."""
        return list(dict.fromkeys(name for wait in self.for_room for name in wait.short))


def pod_activity(pods: Sequence[Document], node: NodeView | None) -> PodActivity:
    """Return what a Job's Pods are doing, with the waits of those that do not start."""
    running = starting = restarting = ending = 0
    waits: list[tuple[str, PodWait]] = []
    for pod in pods:
        phase = pod.get("status", {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            continue
        if pod["metadata"].get("deletionTimestamp"):
            ending += 1
        elif phase == "Running" and not _only_waits(pod):
            running += 1
        elif (wait := find_wait(msgspec.json.encode(pod), node)) is not None:
            waits.append((pod["metadata"]["name"], wait))
        elif phase == "Running":
            restarting += 1
        else:
            starting += 1
    return PodActivity(running, starting, restarting, ending, tuple(waits))


def _only_waits(pod: Document) -> bool:
    """Return whether a started Pod has waiting containers and no running one."""
    states = [report.get("state", {}) for report in pod["status"].get("containerStatuses", ())]
    return any("waiting" in state for state in states) and not any(
        "running" in state for state in states
    )


def activity_text(activity: PodActivity) -> str:
    """Return a sentence about a Job with this activity, to follow the Job's name."""
    room, blocked = activity.for_room, activity.blocked
    if activity.running:
        short = f" ({', '.join(activity.short)})" if activity.short else ""
        parts = [
            f"{number} {what}"
            for number, what in (
                (activity.running, "running"),
                (activity.starting, "starting"),
                (activity.restarting, "waiting to restart a container"),
                (len(room), f"waiting for capacity{short}"),
                (len(activity.delayed), "waiting for the node"),
                (len(blocked), "unable to start"),
                (activity.ending, "being deleted"),
            )
            if number
        ]
        return f"is running: {', '.join(parts)}." if len(parts) > 1 else "is running."
    if blocked:
        return f"cannot start: {blocked[0].text}"
    if room:
        return f"is waiting for capacity on the node{_are_short(activity.short)}."
    if activity.delayed:
        return f"is waiting for the node: {activity.delayed[0].text}"
    if activity.restarting:
        return "is waiting to restart a failed container."
    if activity.starting:
        return "is starting its Pods."
    if activity.ending:
        return "is waiting for Pods that are being deleted."
    return "has no Pods yet."


def next_text(activity: PodActivity) -> str:
    """Return the next transition of a Job with this activity.

    "" if its Pods do not determine it.
    """
    if activity.running or activity.ending:
        return "it waits for its Pods to end"
    if activity.restarting:
        return "the container is restarted"
    if activity.for_room:
        return "its Pods start when capacity is available"
    if activity.delayed:
        return "its Pods start when the node is no longer short of resources"
    if activity.starting:
        return "its Pods start"
    if activity.blocked:
        return activity.blocked[0].server_step or "nothing until its Pods can start"
    return ""


def _are_short(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f": insufficient {' and '.join(names)}"
