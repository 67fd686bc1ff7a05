"""Ends of Jobs and Pods, and of the run that they were part of. Pure functions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol, Self

from onejob.api.kinds.printing import read_time
from onejob.objects.job import finished_condition

Document = Mapping[str, Any]

#: Reason of Pods that ended because their node shut down: in a run, because the run ended.
STOPPED_REASON: Final = "Terminated"


class Ended(Protocol):
    """End of the run that an object belonged to, if the object had not ended before."""

    @property
    def word(self) -> str:
        """One of "Stopped", "Blocked" (Pods could not start), "Lost" (its process was killed)."""

    @property
    def at(self) -> datetime:
        """Time of the end."""

    @property
    def cause(self) -> str:
        """Cause of the end."""

    @property
    def resume(self) -> str:
        """Command line that continues what did not succeed."""

    def of_job(self, namespace: str, name: str) -> Self:
        """Return the same end with the cause that applies to one Job.

        That is the condition which blocked the Job.
        """


def finish_of(job: Document) -> datetime | None:
    """Return the time at which a Job became Complete or Failed; None if it is unfinished."""
    condition = finished_condition(job)
    if condition is None:
        return None
    return read_time(job["status"].get("completionTime") or condition.get("lastTransitionTime"))


def has_ended(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
