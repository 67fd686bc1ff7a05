"""Decision about a Job that waits for others: released, failed, or still waiting."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from onejob.objects.job import Job
from onejob.planning.counts import counted
from onejob.planning.dependencies.annotation import (
    FINISHED,
    Dependency,
    InvalidAfter,
    parse_after,
)
from onejob.planning.dependencies.state import Pin, State, state_of
from onejob.planning.names import AFTER_ANNOTATION

FAILED_REASON: Final = "DependencyFailed"
CYCLE_REASON: Final = "DependencyCycle"
INVALID_REASON: Final = "InvalidDependencies"
#: Names of Jobs in one message.
_MAX_NAMED: Final = 5


class Release(Struct, frozen=True):
    """All dependencies are met."""


class Fail(Struct, frozen=True):
    """A dependency can no longer be met."""

    reason: str
    message: str


class Wait(Struct, frozen=True):
    #: One sentence per unmet dependency.
    reasons: Sequence[str]

    @property
    def text(self) -> str:
        named = "; ".join(self.reasons[:_MAX_NAMED])
        more = len(self.reasons) - _MAX_NAMED
        return f"{named}; and {counted(more, 'more Job')}" if more > 0 else named


Decision: TypeAlias = Release | Fail | Wait


def decide(
    after: Sequence[Dependency], state: State, current: Callable[[str], Job | None]
) -> Decision:
    """Return the decision for a waiting Job.

    `state` includes everything that was observed; `current` returns the Job of a name. Failure
    outranks waiting, so that a Job fails at once when one of its dependencies has.
    """
    waits: list[str] = []
    for dependency in after:
        pin = state.jobs.get(dependency.name)
        if pin is None:
            waits.append(f"job {dependency.name} does not exist yet")
        elif pin.ended:
            if dependency.condition not in (pin.ended, FINISHED):
                return Fail(FAILED_REASON, _unmet(dependency, pin))
        elif (job := current(dependency.name)) is None or job.metadata.uid != pin.uid:
            return Fail(
                FAILED_REASON, f"job {dependency.name} was deleted before it was seen to finish"
            )
        else:
            waits.append(_wait(dependency, job))
    return Wait(tuple(waits)) if waits else Release()


def waits_of(job: Job) -> Sequence[str]:
    """Return what a waiting Job still waits for, from its own annotations alone.

    An invalid annotation is reported by the Job's failure.
    """
    try:
        after = parse_after(job.metadata.annotations.get(AFTER_ANNOTATION, ""))
    except InvalidAfter:
        return ()
    pins = state_of(job).jobs
    return [
        f"job {dependency.name} {_goal(dependency)}"
        if dependency.name in pins
        else f"job {dependency.name} does not exist yet"
        for dependency in after
        if dependency.name not in pins or not pins[dependency.name].ended
    ]


def _goal(dependency: Dependency) -> str:
    if dependency.condition == FINISHED:
        return "has to finish"
    return f"has to be {dependency.condition}"


def _unmet(dependency: Dependency, pin: Pin) -> str:
    verb = "failed" if pin.ended == "Failed" else "completed"
    why = f" ({pin.reason})" if pin.reason and pin.ended == "Failed" else ""
    return f"job {dependency.name} {verb}{why}, but had to be {dependency.condition}"


def _wait(dependency: Dependency, job: Job) -> str:
    """Return the reason to wait for a dependency."""
    if job.spec.suspend:
        how = "is suspended"
    elif job.status.start_time is not None:
        how = "is running"
    else:
        how = "has not started"
    return f"job {dependency.name} {_goal(dependency)} and {how}"
