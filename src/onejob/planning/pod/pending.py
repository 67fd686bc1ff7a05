"""Deadline for pending Pods: maximum waiting time and the reason for the wait. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from onejob.objects.pod import Pod
from onejob.planning.metadata_values import annotated_number, whole_second
from onejob.planning.names import PENDING_DEADLINE_ANNOTATION

#: Reason in the status of an expired Pod, and of the Event about it.
EXCEEDED: Final = "PendingDeadlineExceeded"
#: Condition that a podFailurePolicy rule can match for an expired Pod.
CONDITION: Final = "onejob.dev/PendingDeadlineExceeded"


def pending_deadline(pod: Pod) -> datetime | None:
    """Return the time at which a pending Pod is failed, or None.

    None if the Pod has no deadline or is no longer pending.
    """
    if pod.status.phase not in ("", "Pending") or pod.metadata.deleting:
        return None
    seconds = annotated_number(pod.metadata, PENDING_DEADLINE_ANNOTATION)
    created = pod.metadata.creation_timestamp
    return None if seconds is None or created is None else created + timedelta(seconds=seconds)


def failure_patch(document: Mapping[str, Any], now: datetime) -> bytes:
    """Return a strategic merge patch for `/status`.

    The server rejects it if the Pod has changed.
    """
    text = f"it did not start in time: {waits_for(document)}"
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": EXCEEDED,
        "message": text,
        "lastTransitionTime": whole_second(now),
    }
    return msgspec.json.encode(
        {
            "metadata": {"resourceVersion": document["metadata"]["resourceVersion"]},
            "status": {
                "phase": "Failed",
                "reason": EXCEEDED,
                "message": text,
                "conditions": [condition],
            },
        }
    )


def waits_for(document: Mapping[str, Any]) -> str:
    return next(_reasons(document.get("status", {})), "no reason reported")


def _reasons(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reason of each waiting container."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind, ()):
            waiting = container.get("state", {}).get("waiting")
            if waiting:
                message = " ".join(waiting.get("message", "").split())
                reason = waiting.get("reason", "")
                yield f"container {container['name']}: {reason}{f': {message}' if message else ''}"
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
            yield f"{condition.get('reason', '')}: {condition.get('message', '')}"
