"""Events and effects of the Pod state machine.

Values only: `pod_machine` decides with them; `pod_driver` feeds events in and carries effects out.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from onejob.node.agent.observed_pod import ObservedPod
from onejob.node.probing.results import Probed
from onejob.node.runtime import RuntimeEvent
from onejob.objects.meta import Key, Meta
from onejob.objects.pod_spec import Container, NodePod, Resources
from onejob.planning.pod.placement import Amounts
from onejob.planning.pod.resizing import Refusal

# --- events: from the API


class PodSeen(Struct, frozen=True, gc=False):
    """The watch delivered a version of the Pod."""

    observed: ObservedPod


class PodDeleted(Struct, frozen=True, gc=False):
    """The Pod object is deleted."""

    #: Whether it was bound to this node.
    from_here: bool


class BindingWritten(Struct, frozen=True, gc=False):
    revision: int


class BindingRefused(Struct, frozen=True, gc=False):
    #: Whether the write may succeed later; otherwise the Pod is deleted or bound to another node.
    retry: bool


class StatusTaken(Struct, frozen=True, gc=False):
    """The writer has picked up the newest status, after `RequestStatusWrite`."""


class StatusWritten(Struct, frozen=True, gc=False):
    """The status in flight is stored."""

    revision: int


class StatusRefused(Struct, frozen=True, gc=False):
    """The status in flight was rejected."""

    message: str
    #: The Pod no longer exists; otherwise the write may succeed later.
    gone: bool = False


# --- events: from the node


class PlacedHere(Struct, frozen=True, gc=False):
    """The binder selected the Pod and reserved its resources."""

    pod: NodePod
    demand: Amounts


class Adopted(Struct, frozen=True, gc=False):
    """The runtime's records of the Pod, after a start of the agent."""

    attempts: Sequence[RuntimeEvent] = ()
    #: The machine rebooted meanwhile: its processes are gone, and records may be lost, too.
    rebooted: bool = False


class HookDone(Struct, frozen=True, gc=False):
    """The postStart hook of the attempt that started at `started_at` has ended."""

    container: str
    attempt: int
    started_at: datetime
    ok: bool


class ResizeDecided(Struct, frozen=True, gc=False):
    """Whether the node allocates the resources that the Pod wants in this generation."""

    generation: int
    #: None if it does.
    refusal: Refusal | None = None


class LimitsChanged(Struct, frozen=True, gc=False):
    """The runtime has changed the limits of a running container, or failed to."""

    container: str
    attempt: int
    resources: Resources
    #: Why it failed; "" if it did not.
    problem: str = ""


class Reconcile(Struct, frozen=True, gc=False):
    """Compare actual with desired state: a fact changed, or a timer fired."""

    #: Reports of the runtime about the Pod since the last step of this kind, in their order.
    events: Sequence[RuntimeEvent] = ()


PodEvent: TypeAlias = (
    PodSeen
    | PodDeleted
    | BindingWritten
    | BindingRefused
    | StatusWritten
    | StatusRefused
    | PlacedHere
    | StatusTaken
    | Adopted
    | HookDone
    | Probed
    | ResizeDecided
    | LimitsChanged
    | Reconcile
)


# --- effects: on the API


class Bind(Struct, frozen=True, gc=False):
    pod: NodePod


class RequestStatusWrite(Struct, frozen=True, gc=False):
    """Ask the writer to pick up the newest status when the write is staged."""


class DeletePod(Struct, frozen=True, gc=False):
    """Remove the Pod object: the last step of a deletion, reserved to the node, after all
    containers have ended."""

    key: Key
    metadata: Meta


class RecordWarning(Struct, frozen=True, gc=False):
    pod: NodePod
    reason: str
    message: str


class RecordNormal(Struct, frozen=True, gc=False):
    pod: NodePod
    reason: str
    message: str


# --- effects: on the node's resources


class Enqueue(Struct, frozen=True, gc=False):
    """Queue the Pod until the node has room for it."""

    pod: NodePod


class Dequeue(Struct, frozen=True, gc=False):
    pass


class TakeRoom(Struct, frozen=True, gc=False):
    demand: Amounts


class FreeRoom(Struct, frozen=True, gc=False):
    demand: Amounts


class ConsiderResize(Struct, frozen=True, gc=False):
    """Decide whether the node allocates the resources that the Pod wants."""


# --- effects: on the containers


class FollowVolumes(Struct, frozen=True, gc=False):
    """The Pod belongs to this node: keep the files in its volumes up to date."""

    pod: NodePod


class PodChanged(Struct, frozen=True, gc=False):
    """Another client wrote to the Pod, whose fields may be projected into volumes."""

    pod: NodePod


class RefreshVolumes(Struct, frozen=True, gc=False):
    """Refresh volumes whose sources may have changed while the agent was not running."""


class StartContainer(Struct, frozen=True, gc=False):
    pod: NodePod
    container: Container
    attempt: int


class StopContainer(Struct, frozen=True, gc=False):
    pod: NodePod
    container: str
    attempt: int
    grace_seconds: int


class ChangeLimits(Struct, frozen=True, gc=False):
    """Change the limits of a running container to those of `container`, which include the Pod's."""

    pod: NodePod
    container: Container
    attempt: int


class RunPostStart(Struct, frozen=True, gc=False):
    pod: NodePod
    container: Container
    attempt: int
    started_at: datetime


class ContainerRuns(Struct, frozen=True, gc=False):
    """The container has started and its postStart hook is done: probes can begin."""

    pod: NodePod
    container: Container
    attempt: int


class EndWork(Struct, frozen=True, gc=False):
    """Stop probes, hooks and volume updates of the Pod."""


class ReleasePod(Struct, frozen=True, gc=False):
    """The Pod has ended and its final status is stored: the runtime keeps only its logs."""


class DiscardPod(Struct, frozen=True, gc=False):
    """The Pod object is deleted: the runtime keeps nothing."""


# --- effects: on the agent itself


class SetTimer(Struct, frozen=True, gc=False):
    """Reconcile at the given time."""

    at: datetime


class ReconcileSoon(Struct, frozen=True, gc=False):
    """Reconcile after all pending events have been processed."""


class LogProblem(Struct, frozen=True, gc=False):
    message: str


PodEffect: TypeAlias = (
    Bind
    | RequestStatusWrite
    | DeletePod
    | RecordWarning
    | RecordNormal
    | Enqueue
    | Dequeue
    | TakeRoom
    | FreeRoom
    | ConsiderResize
    | FollowVolumes
    | PodChanged
    | RefreshVolumes
    | StartContainer
    | StopContainer
    | ChangeLimits
    | RunPostStart
    | ContainerRuns
    | EndWork
    | ReleasePod
    | DiscardPod
    | SetTimer
    | ReconcileSoon
    | LogProblem
)
