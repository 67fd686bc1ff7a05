"""The states of one Pod on this node. `pod_machine` says how one follows from another."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from onejob.node.agent.observed_pod import ObservedPod
from onejob.objects.pod_spec import NodePod
from onejob.objects.pod_status import ConditionReport, PodReport
from onejob.planning.pod.lifecycle import ContainerSeen
from onejob.planning.pod.placement import Amounts

Phase: TypeAlias = Literal["unknown", "waiting", "binding", "running", "finishing", "ended"]


class NodeNow(Struct, frozen=True, gc=False):
    """What a step needs to know of the node."""

    now: datetime
    #: The node shuts down and takes its Pods along,
    leaving: bool = False
    #: without their grace period.
    at_once: bool = False


class Unknown(Struct, frozen=True):
    """Nothing is known of it, or nothing that matters: never stored."""

    phase: ClassVar[Phase] = "unknown"


class Waiting(Struct, frozen=True, gc=False):
    """It has no node yet; the binder decides when there is room."""

    phase: ClassVar[Phase] = "waiting"
    #: Its binding was refused: to be enqueued again at the next `Reconcile`.
    refused: NodePod | None = None


class Binding(Struct, frozen=True, gc=False):
    """That it shall run here is being written, and has its room."""

    phase: ClassVar[Phase] = "binding"
    pod: NodePod
    demand: Amounts
    #: Of the write that creates it with this node; 0 if it is there and is being bound.
    revision: int = 0
    #: As the watch showed it meanwhile: it may be faster than the answer to our write.
    observed: ObservedPod | None = None
    deleted: bool = False


class Active(Struct, gc=False):
    """It runs here, or has ended and that is not on record yet. Changed only by `step`, on a copy;
    what its fields hold is never changed but replaced."""

    pod: NodePod
    demand: Amounts
    #: The newest revision that says nothing new, because we wrote it or have read it.
    known_revision: int
    #: The startTime of its status.
    started_at: datetime
    #: From when on its deadline counts: not from a start that lies in the future.
    deadline_from: datetime
    #: As reported last, by type.
    conditions: Mapping[str, ConditionReport]
    phase: Literal["running", "finishing"] = "running"
    containers: Mapping[str, ContainerSeen] = {}
    #: Shown by the watch while a status was being written: perhaps only the echo of that.
    unread: ObservedPod | None = None
    reported: PodReport | None = None
    #: The newest status, if it is neither on record nor being written.
    unwritten: PodReport | None = None
    #: The writer was asked to take `unwritten`.
    write_requested: bool = False
    in_flight: PodReport | None = None
    #: How often in a row the API refused a status that it should have taken.
    refusals: int = 0
    #: How often in a row an attempt was not possible because the node was short of something.
    pressures: int = 0
    #: The attempt whose back-off was recorded last, by container.
    back_offs: Mapping[str, int] = {}


#: What `copy.copy` comes to after four calls: most steps begin with it. Missing in msgspec's stubs.
copy_active: Callable[[Active], Active] = Active.__copy__  # type: ignore[attr-defined]


class Done(Struct, frozen=True, gc=False):
    """Its end is on record. What the watch shows of it from before that is of no interest."""

    phase: ClassVar[Phase] = "ended"
    revision: int


PodState: TypeAlias = Unknown | Waiting | Binding | Active | Done
UNKNOWN = Unknown()
WAITING = Waiting()


def active_pod(pod: NodePod, demand: Amounts, revision: int, now: datetime) -> Active:
    """A Pod that became this node's with that revision."""
    started_at = pod.status.start_time or now
    conditions = {
        condition.type: ConditionReport(
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            last_transition_time=condition.last_transition_time or started_at,
        )
        for condition in pod.status.conditions
    }
    return Active(pod, demand, revision, started_at, started_at, conditions)
