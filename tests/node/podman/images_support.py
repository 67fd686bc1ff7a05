"""Absent images, and the reason why a Pod waits for one."""

import os

from tests.node.support import Document

ABSENT = f"registry.invalid/absent:{os.getpid()}"


def waits_for(pod: Document) -> str:
    statuses = pod["status"].get("containerStatuses")
    return str(statuses[0]["state"].get("waiting", {}).get("reason", "")) if statuses else ""
