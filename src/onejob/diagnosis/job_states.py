"""State of a Job in one word, as lists of the command line and the dashboard show it. Pure.

The dashboard computes the same in ui/src/lib/objects.ts, for Jobs that it watches.
"""

from collections.abc import Mapping
from typing import Any

from onejob.objects.job import finished_condition
from onejob.planning.names import BUILT_IN_MANAGER
from onejob.planning.queue.membership import QUEUED_ANNOTATION

Document = Mapping[str, Any]


def job_state(job: Document) -> str:
    """Return Complete, Failed, Ending, Queued, Suspended, Elsewhere, Running, Back-off or Waiting.

    Queued Jobs wait for a limit, those in back-off for their next attempt, waiting ones for a Pod
    to become ready. Jobs of other controllers are Elsewhere until they report active Pods.
    """
    end = finished_condition(job)
    if end is not None:
        state: str = end["type"]
        return state
    metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Ending"
    if spec.get("suspend"):
        return "Queued" if QUEUED_ANNOTATION in metadata.get("annotations", {}) else "Suspended"
    active = status.get("active", 0)
    if spec.get("managedBy", BUILT_IN_MANAGER) != BUILT_IN_MANAGER:
        return "Running" if active else "Elsewhere"
    failed = status.get("failed", 0)
    if status.get("ready", 0) or (active and not failed):
        return "Running"
    return "Back-off" if failed and not active else "Waiting"
