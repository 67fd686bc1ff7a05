"""Pods that may not wait for ever to be started: how long, and what they wait for. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from onejob.objects.pod import Pod
from onejob.planning.job.backoff import annotated_number
from onejob.planning.job.conditions import whole_second
from onejob.planning.names import PENDING_DEADLINE_ANNOTATION

#: The reason in the status of such a Pod, and of the Event about it.
EXCEEDED: Final = "PendingDeadlineExceeded"
#: The condition by which a rule of podFailurePolicy knows such a Pod.
CONDITION: Final = "onejob.dev/PendingDeadlineExceeded"


def pending_deadline(pod: Pod) -> datetime | None:
    """When a Pod that has not started is failed; None if it may wait, or waits no more."""
    if pod.status.phase not in ("", "Pending") or pod.metadata.deleting:
        return None
    seconds = annotated_number(pod.metadata, PENDING_DEADLINE_ANNOTATION)
    created = pod.metadata.creation_timestamp
    return None if seconds is None or created is None else created + timedelta(seconds=seconds)


def failure_patch(document: Mapping[str, Any], now: datetime) -> bytes:
    """For `/status`, as a strategic patch: refused if the Pod has changed meanwhile."""
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
    return next(_reasons(document.get("status", {})), "nobody has said why")


def _reasons(status: Mapping[str, Any]) -> Iterator[str]:
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
