"""What becomes of a Pod that gets its node: by a binding, or in the write that creates it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from onejob.api.sections import Raw, Section, held, shallow, split
from onejob.api.strategy import Document

#: The node for a new Pod with this spec, as it is encoded; "" if the Pod has to wait for one.
ChooseNode: TypeAlias = Callable[[bytes], str]

_encode = msgspec.json.encode

_REMEMBERED: Final = 256
#: Bytes of a spec; about longer ones it is thought each time.
_LONGEST: Final = 16 * 1024


def place_created(pod: Document, choose: ChooseNode, now: str, spec: bytes = b"") -> None:
    """Give a Pod that is about to be staged its node, if there is one for it. `now` is the time as
    documents have it, `spec` that of the Pod where it is known as bytes."""
    spec = spec or _spec_of(pod)
    node = choose(spec)
    if node:
        assign(pod, node, now, spec)


def why_unplaceable(pod: Document) -> str:
    """Why the spec of a Pod lets it have no node; "" if it does."""
    spec = _spec_of(pod)
    return _unplaceable(spec) if len(spec) <= _LONGEST else _unplaceable.__wrapped__(spec)


def assign(pod: Document, node: str, now: str, spec: bytes = b"") -> None:
    """The Pod has a node from now on. Sections that others may share are copied."""
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


# Remembered: all Pods of a Job have the same spec.


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
        if condition.get("type") == wanted["type"]:
            if condition.get("status") == wanted["status"]:
                return conditions
            return [*conditions[:position], wanted, *conditions[position + 1 :]]
    return [*conditions, wanted]
