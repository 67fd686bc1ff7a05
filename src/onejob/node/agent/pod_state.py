"""States of one Pod on this node. `pod_machine` defines the transitions."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import ClassVar, Literal, TypeAlias, final

from msgspec import Struct

from onejob.node.agent.observed_pod import ObservedPod
from onejob.objects.pod_spec import NodePod
from onejob.objects.pod_status import ConditionReport, PodReport
from onejob.planning.pod.lifecycle import ContainerSeen
from onejob.planning.pod.placement import Amounts
from onejob.planning.pod.resizing import Resize

Phase: TypeAlias = Literal["unknown", "waiting", "binding", "running", "finishing", "ended"]


class NodeNow(Struct, frozen=True, gc=False):
    """Node facts that a step depends on."""

    now: datetime
    #: The node is shutting down and terminates its Pods.
    leaving: bool = False
    #: Terminate Pods without their grace period.
    at_once: bool = False


class Unknown(Struct, frozen=True):
    """Not seen yet, or not relevant to this node. Never stored."""

    phase: ClassVar[Phase] = "unknown"


class Waiting(Struct, frozen=True, gc=False):
    """Without a node; the binder decides when it fits."""

    phase: ClassVar[Phase] = "waiting"
    #: The Pod, if its binding was refused: it is enqueued again at the next `Reconcile`.
    refused: NodePod | None = None


class Binding(Struct, frozen=True, gc=False):
    """Its binding to this node is being written, and its resources are reserved."""

    phase: ClassVar[Phase] = "binding"
    pod: NodePod
    demand: Amounts
    #: Version delivered by the watch meanwhile, which may overtake the answer to the write.
    observed: ObservedPod | None = None
    deleted: bool = False


@final
class Active(Struct, gc=False):
    """Running here, or ended with an unwritten final status.

    Only `step` changes it, and only on a copy: field values are replaced, never mutated.
    """

    #: The Pod, with the resources that the node has allocated to it.
    pod: NodePod
    #: Amounts of the node that the Pod holds.
    demand: Amounts
    #: Newest revision without news, because this node wrote it or has read it.
    known_revision: int
    #: `startTime` of its status.
    started_at: datetime
    #: Start of `activeDeadlineSeconds`: like `started_at`, but never in the future.
    deadline_from: datetime
    #: Conditions last reported, by type.
    conditions: Mapping[str, ConditionReport]
    phase: Literal["running", "finishing"] = "running"
    containers: Mapping[str, ContainerSeen] = {}
    #: Delivered by the watch while a status was in flight; possibly only its echo.
    unread: ObservedPod | None = None
    reported: PodReport | None = None
    #: Newest status, if it is neither stored nor in flight.
    unwritten: PodReport | None = None
    #: The writer has been asked to take `unwritten`.
    write_requested: bool = False
    in_flight: PodReport | None = None
    #: Consecutive refusals of statuses that the API should have accepted.
    refusals: int = 0
    #: Consecutive start attempts blocked by a resource shortage of the node.
    pressures: int = 0
    #: Attempt whose back-off was recorded last, by container.
    back_offs: Mapping[str, int] = {}
    #: None unless the Pod has been resized.
    resize: Resize | None = None


#: The method behind `copy.copy`, which needs four calls to reach it: most steps begin with a copy.
#: Missing in msgspec's stubs.
copy_active: Callable[[Active], Active] = Active.__copy__  # type: ignore[attr-defined]


class Done(Struct, frozen=True, gc=False):
    """Its final status is stored. Versions older than `revision` are ignored."""

    phase: ClassVar[Phase] = "ended"
    revision: int


PodState: TypeAlias = Unknown | Waiting | Binding | Active | Done
UNKNOWN = Unknown()
WAITING = Waiting()


def active_pod(pod: NodePod, demand: Amounts, revision: int, now: datetime) -> Active:
    """Return the state of a Pod that was bound to this node at `revision`."""
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
