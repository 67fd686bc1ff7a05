"""Table row of a Pod: summarises its statuses in one word."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from onejob.api.kinds.printing import (
    AGE,
    NAME,
    NONE,
    age,
    column,
    human_duration,
    name_of,
    read_time,
)
from onejob.api.strategy import Document

POD_COLUMNS: Final = [
    NAME,
    column("Ready", "How many containers are ready, of how many."),
    column("Status", "The state of the pod and its containers in one word."),
    column("Restarts", "How often containers were restarted, and when last."),
    AGE,
    column("IP", "The address of the pod.", wide=True),
    column("Node", "The node on which the pod runs.", wide=True),
    column("Nominated Node", "The node that is being made free for the pod.", wide=True),
    column("Readiness Gates", "How many readiness gates hold, of how many.", wide=True),
]


def pod_cells(doc: Document, now: datetime) -> list[Any]:
    """Return the cells of a Pod."""
    spec, status = doc.get("spec", {}), doc.get("status", {})
    summary = _summarise(doc)
    return [
        name_of(doc),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        _restarts_text(summary, now),
        age(doc, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates_text(spec, status),
    ]


def pod_row_conditions(doc: Document) -> list[dict[str, str]]:
    """Return the condition that marks the row of an ended Pod as completed, for clients."""
    phase = doc.get("status", {}).get("phase")
    if phase == "Succeeded":
        message = "The pod has completed successfully."
    elif phase == "Failed":
        message = "The pod failed."
    else:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


class _Summary(Struct):
    reason: str
    total: int
    ready: int = 0
    restarts: int = 0
    last_restart: datetime | None = None

    def count_restarts(self, container: Mapping[str, Any]) -> None:
        self.restarts += container.get("restartCount", 0)
        ended = container.get("lastState", {}).get("terminated", {}).get("finishedAt")
        finished = read_time(ended)
        if finished and (self.last_restart is None or finished > self.last_restart):
            self.last_restart = finished


def _summarise(doc: Document) -> _Summary:
    """Return the columns of a Pod's statuses."""
    spec, status = doc.get("spec", {}), doc.get("status", {})
    init_containers = spec.get("initContainers", ())
    sidecars = {c.get("name") for c in init_containers if c.get("restartPolicy") == "Always"}
    summary = _Summary(
        _reason_of_pod(status), total=len(spec.get("containers", ())) + len(sidecars)
    )
    init_statuses = status.get("initContainerStatuses", ())
    initialising = _summarise_init_containers(
        summary, init_statuses, sidecars, len(init_containers)
    )
    if not initialising or _condition_is_true(status, "Initialized"):
        _summarise_containers(summary, status, init_statuses, sidecars)
    if "deletionTimestamp" in doc["metadata"]:
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _reason_of_pod(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions", ()):
        if (condition.get("type"), condition.get("reason")) == ("PodScheduled", "SchedulingGated"):
            return "SchedulingGated"
    reason: str = status.get("reason") or status.get("phase", "")
    return reason


def _summarise_init_containers(
    summary: _Summary, statuses: Sequence[Mapping[str, Any]], sidecars: set[Any], total: int
) -> bool:
    """Return whether the Pod is still initialising.

    The first unfinished container determines the reason.
    """
    for i, container in enumerate(statuses):
        summary.count_restarts(container)
        state = container.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            summary.reason = f"Init:{_end_of(terminated)}"
        elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            summary.reason = f"Init:{waiting['reason']}"
        else:
            summary.reason = f"Init:{i}/{total}"
        return True
    return False


def _summarise_containers(
    summary: _Summary,
    status: Mapping[str, Any],
    init_statuses: Sequence[Mapping[str, Any]],
    sidecars: set[Any],
) -> None:
    """Add the main containers' statuses to the summary."""
    # Once the Pod is initialised, restarts of plain init containers no longer count.
    summary.restarts, summary.last_restart = 0, None
    for container in init_statuses:
        if container.get("name") in sidecars:
            summary.count_restarts(container)
    running = False
    error = ""
    for container in reversed(status.get("containerStatuses", ())):
        summary.count_restarts(container)
        state = container.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if waiting and waiting.get("reason"):
            summary.reason = waiting["reason"]
        elif terminated is not None:
            summary.reason = _end_of(terminated)
            if terminated.get("exitCode", 0) != 0:
                error = summary.reason
        elif container.get("ready") and "running" in state:
            running = True
            summary.ready += 1
    if summary.reason == "Completed":
        if running and _condition_is_true(status, "Ready"):
            summary.reason = "Running"
        elif error:
            summary.reason = error
        elif running:
            summary.reason = "NotReady"


def _end_of(terminated: Mapping[str, Any]) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restarts_text(summary: _Summary, now: datetime) -> str:
    if not summary.restarts or summary.last_restart is None:
        return str(summary.restarts)
    ago = human_duration((now - summary.last_restart).total_seconds())
    return f"{summary.restarts} ({ago} ago)"


def _gates_text(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    gates = [gate.get("conditionType", "") for gate in spec.get("readinessGates", ())]
    if not gates:
        return NONE
    return f"{sum(_condition_is_true(status, gate) for gate in gates)}/{len(gates)}"


def _condition_is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Return whether the status has the condition with status True."""
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in status.get("conditions", ())
    )
