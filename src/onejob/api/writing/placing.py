"""Assignment of a Pod to a node, by a binding or in the write that creates the Pod."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from onejob.api.sections import Raw, Section, held, shallow, split
from onejob.api.strategy import Document

#: Return the node for a new Pod with this encoded spec; "" if the Pod has to wait for a node.
ChooseNode: TypeAlias = Callable[[bytes], str]

_encode = msgspec.json.encode

_REMEMBERED: Final = 256
#: Maximum bytes of a spec whose results are cached.
_LONGEST: Final = 16 * 1024


def place_created(pod: Document, choose: ChooseNode, now: str, spec: bytes = b"") -> None:
    """Assign a Pod that is about to be staged to a node, if `choose` returns one.

    `now` is an RFC 3339 time. `spec` is the encoded spec of the Pod, if the caller has it.
    """
    spec = spec or _spec_of(pod)
    node = choose(spec)
    if node:
        assign(pod, node, now, spec)


def why_unplaceable(pod: Document) -> str:
    """Return the reason why the spec of a Pod forbids an assignment; "" if there is none."""
    spec = _spec_of(pod)
    return _unplaceable(spec) if len(spec) <= _LONGEST else _unplaceable.__wrapped__(spec)


def assign(pod: Document, node: str, now: str, spec: bytes = b"") -> None:
    """Set the node of a Pod and its PodScheduled condition in place.

    Spec and status are replaced by copies, since other documents may share them.
    """
    held_spec = held(pod, "spec")
    if type(held_spec) is Raw and len(text := spec or bytes(held_spec)) <= _LONGEST:
        pod["spec"] = _assigned(text, node)
    else:
        pod["spec"] = shallow(pod["spec"])
        pod["spec"]["nodeName"] = node
    condition = scheduled_condition(pod["metadata"].get("generation", 0), now)
    pod["status"] = status_with(pod, condition)


def _spec_of(pod: Document) -> bytes:
    spec = held(pod, "spec")
    return bytes(spec) if type(spec) is Raw else _encode(spec)


# Cached, because all Pods of a Job have the same spec.


@lru_cache(maxsize=_REMEMBERED)
def _unplaceable(spec: bytes) -> str:
    members = Section(split(spec))
    if members.get("nodeName"):
        return f'is already assigned to node "{members["nodeName"]}"'
    return "has non-empty .spec.schedulingGates" if members.get("schedulingGates") else ""


@lru_cache(maxsize=_REMEMBERED)
def _assigned(spec: bytes, node: str) -> Raw:
    return Raw(_encode({**split(spec), "nodeName": node}))


def scheduled_condition(generation: int, now: str) -> dict[str, Any]:
    """Return the PodScheduled condition of a Pod assigned to a node at this generation."""
    observed = {"observedGeneration": generation} if generation else {}
    return {"type": "PodScheduled", **observed, "status": "True", "lastTransitionTime": now}


def status_with(pod: Document, condition: dict[str, Any]) -> Document:
    """Return a copy of the Pod's status with the condition set."""
    status = shallow(pod.get("status", {}))
    status["conditions"] = _with_condition(status.get("conditions", []), condition)
    return status


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
