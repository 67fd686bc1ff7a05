"""Status fields of the original Job proposal: shown on request, accepted, never stored.

`creationTime` is the object's creationTimestamp; `lastHeartbeatTime` of a condition is the former
name of `lastProbeTime`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from onejob.api.strategy import Document

_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


def with_original_status_fields(document: bytes) -> bytes:
    """Return a stored Job with the original fields added.

    Other documents are returned unchanged.
    """
    job = _decode(document)
    created = job.get("metadata", {}).get("creationTimestamp")
    if job.get("kind") != "Job" or not created:
        return document
    status = job.setdefault("status", {})
    status["creationTime"] = created
    for condition in status.get("conditions", ()):
        if "lastProbeTime" in condition:
            condition["lastHeartbeatTime"] = condition["lastProbeTime"]
    return msgspec.json.encode(job)


def keep_shown_fields_out(status: dict[str, Any]) -> None:
    """Remove the original fields from a status that a client sends back.

    A lastHeartbeatTime becomes the lastProbeTime if that is unset.
    """
    status.pop("creationTime", None)
    for condition in status.get("conditions", ()):
        heartbeat = condition.pop("lastHeartbeatTime", None)
        if heartbeat:
            condition.setdefault("lastProbeTime", heartbeat)
