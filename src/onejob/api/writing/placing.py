"""What becomes of a Pod that gets its node: by a binding, or in the write that creates it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from onejob.api.sections import held, shallow
from onejob.api.strategy import Document
from onejob.api.writing.metadata import timestamp

#: The node for a new Pod with this spec, as it is encoded; "" if the Pod has to wait for one.
ChooseNode: TypeAlias = Callable[[bytes], str]

_encode = msgspec.json.encode


def place_created(pod: Document, choose: ChooseNode, now: datetime) -> None:
    """Give a Pod that is about to be staged its node, if there is one for it."""
    spec = held(pod, "spec")
    node = choose(bytes(spec) if isinstance(spec, msgspec.Raw) else _encode(spec))
    if node:
        assign(pod, node, now)


def assign(pod: Document, node: str, now: datetime) -> None:
    """The Pod has a node from now on. Sections that others may share are copied."""
    spec = pod["spec"] = shallow(pod["spec"])
    spec["nodeName"] = node
    condition = scheduled_condition(pod["metadata"].get("generation", 0), timestamp(now))
    pod["status"] = status_with(pod, condition)


def scheduled_condition(generation: int, now: str) -> dict[str, Any]:
    """The condition of a Pod that got its node when it was of this generation."""
    observed = {"observedGeneration": generation} if generation else {}
    return {"type": "PodScheduled", **observed, "status": "True", "lastTransitionTime": now}


def status_with(pod: Document, condition: dict[str, Any]) -> Document:
    """The status of the Pod with one of its conditions set."""
    status = shallow(pod.get("status", {}))
    status["conditions"] = _with_condition(status.get("conditions", []), condition)
    return status


def _with_condition(
    conditions: list[dict[str, Any]], wanted: dict[str, Any]
) -> list[dict[str, Any]]:
    """An unchanged condition keeps its time."""
    for position, condition in enumerate(conditions):
        if condition["type"] == wanted["type"]:
            if condition.get("status") == wanted["status"]:
                return conditions
            return [*conditions[:position], wanted, *conditions[position + 1 :]]
    return [*conditions, wanted]
