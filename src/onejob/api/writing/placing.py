"""Assignment of a Pod to a node, by a binding or in the write that creates the Pod."""

from typing import Any

from onejob.api.strategy import Document


def why_unplaceable(spec: Document) -> str:
    """Return the reason why a Pod's spec forbids an assignment; "" if there is none."""
    if spec.get("nodeName"):
        return f'is already assigned to node "{spec["nodeName"]}"'
    return "has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


def assign(pod: Document, node: str, now: str) -> None:
    """Set the node of a Pod and its PodScheduled condition.

    `now` is an RFC 3339 time. Spec and status are replaced by copies.
    """
    pod["spec"] = {**pod["spec"], "nodeName": node}
    condition = scheduled_condition(pod["metadata"].get("generation", 0), now)
    pod["status"] = status_with(pod, condition)


def scheduled_condition(generation: int, now: str) -> dict[str, Any]:
    """Return the PodScheduled condition of a Pod assigned to a node at this generation."""
    observed = {"observedGeneration": generation} if generation else {}
    return {"type": "PodScheduled", **observed, "status": "True", "lastTransitionTime": now}


def status_with(pod: Document, condition: dict[str, Any]) -> Document:
    """Return a copy of the Pod's status with the condition set."""
    status = pod.get("status", {})
    return {**status, "conditions": _with_condition(status.get("conditions", []), condition)}


def _with_condition(
    conditions: list[dict[str, Any]], wanted: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the conditions with `wanted` set. A condition with the same status keeps its time."""
    for position, condition in enumerate(conditions):
        if condition.get("type") == wanted["type"]:
            if condition.get("status") == wanted["status"]:
                return conditions
            return [*conditions[:position], wanted, *conditions[position + 1 :]]
    return [*conditions, wanted]
