"""What has ended: Jobs, Pods, and the run that they were part of. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol, Self

from onejob.api.strategies.printing import read_time
from onejob.objects.job import finished_condition

Document = Mapping[str, Any]

#: Of Pods that ended because their node left: in a run, because the run ended.
STOPPED_REASON: Final = "Terminated"


class Ended(Protocol):
    """How the run of an object ended, if the object had not ended before."""

    @property
    def word(self) -> str:
        """Stopped; Blocked if its Pods could not start; Lost if its process was killed."""

    @property
    def at(self) -> datetime: ...

    @property
    def cause(self) -> str: ...

    def of_job(self, namespace: str, name: str) -> Self:
        """The same for one Job: what blocked that one."""


def finish_of(job: Document) -> datetime | None:
    """When a Job became Complete or Failed."""
    condition = finished_condition(job)
    if condition is None:
        return None
    return read_time(job["status"].get("completionTime") or condition.get("lastTransitionTime"))


def has_ended(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
