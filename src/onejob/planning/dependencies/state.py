"""Durable record of a Job's dependencies: their UIDs once seen, and how they ended.

The record is an annotation of the waiting Job, so that it works on any API server and survives
both Jobs' controllers. It names the Job that it was written for, because a copy of a Job's manifest
may contain the record of the original.
"""

from functools import lru_cache

import msgspec

from onejob.objects.job import Job
from onejob.objects.meta import View
from onejob.planning.history import JobEnd
from onejob.planning.names import AFTER_STATE_ANNOTATION


class Pin(View, frozen=True):
    """The Job that an edge refers to."""

    uid: str
    #: Complete or Failed; "" while it has not ended.
    ended: str = ""
    #: Reason of the condition, for messages.
    reason: str = ""


class State(View, frozen=True):
    #: UID of the waiting Job.
    of: str = ""
    #: Whether all dependencies were met; the Job does not wait any more.
    released: bool = False
    #: Pins by name; dependencies that were not seen yet are absent.
    jobs: dict[str, Pin] = msgspec.field(default_factory=dict)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def state_of(job: Job) -> State:
    """Return the recorded state; an empty one if there is none, or it belongs to another Job."""
    text = job.metadata.annotations.get(AFTER_STATE_ANNOTATION, "")
    state = _decode(text) if text else State()
    uid = job.metadata.uid
    return state if state.of == uid else State(of=uid)


@lru_cache(maxsize=256)
def _decode(text: str) -> State:
    try:
        return msgspec.json.decode(text, type=State)
    except msgspec.DecodeError:
        # Damaged by another client: the dependencies are looked up again.
        return State()


def observe(state: State, name: str, job: Job | None) -> State:
    """Return the state after looking up a dependency by name.

    The first Job seen is pinned; a later one of the same name changes nothing. A Job that is
    already being deleted unfinished is not pinned, because it would fail the waiting Job at once.
    """
    if job is None:
        return state
    pin = state.jobs.get(name)
    uid = job.metadata.uid
    condition = job.finished_condition
    if pin is None:
        if job.metadata.deleting and condition is None:
            return state
        pin = Pin(uid=uid)
    elif pin.uid != uid or pin.ended:
        return state
    if condition is not None:
        pin = Pin(uid=uid, ended=condition.type, reason=condition.reason)
    if state.jobs.get(name) == pin:
        return state
    return msgspec.structs.replace(state, jobs={**state.jobs, name: pin})


def record_end(state: State, name: str, end: JobEnd) -> State:
    """Return the state after a pinned dependency's end was found in a record."""
    pin = Pin(uid=state.jobs[name].uid, ended=end.condition, reason=end.reason)
    return msgspec.structs.replace(state, jobs={**state.jobs, name: pin})
