"""Status fields of the original Job proposal: shown if asked for, understood, never stored.

`creationTime` is the object's creationTimestamp; `lastHeartbeatTime` of a condition is what is
called `lastProbeTime` today.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from onejob.api.strategy import Document

_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


def with_original_status_fields(document: bytes) -> bytes:
    """A stored Job with the original fields beside today's. Anything else stays as it is."""
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
    """What clients send back of them: a probe's time under its old name counts as one."""
    status.pop("creationTime", None)
    for condition in status.get("conditions", ()):
        heartbeat = condition.pop("lastHeartbeatTime", None)
        if heartbeat:
            condition.setdefault("lastProbeTime", heartbeat)
