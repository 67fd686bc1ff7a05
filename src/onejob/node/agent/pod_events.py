"""What can happen to a Pod of this node, and what may have to be done about it.

Values only: `pod_machine` decides with them, `pod_driver` brings events in and carries effects out.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from onejob.node.agent.observed_pod import ObservedPod
from onejob.node.runtime import RuntimeEvent
from onejob.objects.meta import Key, Meta
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.placement import Amounts

# --- events: from the API


class PodSeen(Struct, frozen=True, gc=False):
    """The watch shows the Pod."""

    observed: ObservedPod


class PodDeleted(Struct, frozen=True, gc=False):
    """The Pod object is gone."""

    #: It was bound to this node.
    from_here: bool


class BindingWritten(Struct, frozen=True, gc=False):
    revision: int


class BindingRefused(Struct, frozen=True, gc=False):
    #: It may succeed later; otherwise the Pod is gone, or another node's.
    retry: bool


class StatusTaken(Struct, frozen=True, gc=False):
    """The newest status is being written, as was requested."""


class StatusWritten(Struct, frozen=True, gc=False):
    """The status that was being written is on record."""

    revision: int


class StatusRefused(Struct, frozen=True, gc=False):
    """The status that was being written was not accepted."""

    message: str
    #: There is no such Pod any more; otherwise it may be taken later.
    gone: bool = False


# --- events: from the node


class PlacedHere(Struct, frozen=True, gc=False):
    """The binder chose it, and took the room that it needs."""

    pod: NodePod
    demand: Amounts


class CreatedHere(Struct, frozen=True, gc=False):
    """It is about to be created with this node, and the room that it needs is taken."""

    pod: NodePod
    demand: Amounts
    #: Of the write that creates it.
    revision: int


class TakenOver(Struct, frozen=True, gc=False):
    """The agent has just started, and this is what the runtime knows of the Pod."""

    attempts: Sequence[RuntimeEvent] = ()
    #: The machine went down meanwhile: what ran then is gone, and records may be too.
    rebooted: bool = False


class HookDone(Struct, frozen=True, gc=False):
    """The postStart hook of an attempt that started then has ended."""

    container: str
    attempt: int
    started_at: datetime
    ok: bool


class Probed(Struct, frozen=True, gc=False):
    """A probe of an attempt changed its verdict; None where it says nothing."""

    container: str
    attempt: int
    started: bool | None = None
    ready: bool | None = None
    unhealthy: bool | None = None


class Reconcile(Struct, frozen=True, gc=False):
    """Time to compare what is with what should be: something changed, or a wait is over."""


PodEvent: TypeAlias = (
    PodSeen
    | PodDeleted
    | BindingWritten
    | BindingRefused
    | StatusWritten
    | StatusRefused
    | PlacedHere
    | CreatedHere
    | StatusTaken
    | TakenOver
    | HookDone
    | Probed
    | Reconcile
    | RuntimeEvent
)


# --- effects: on the API


class Bind(Struct, frozen=True, gc=False):
    pod: NodePod


class AwaitCreation(Struct, frozen=True, gc=False):
    """Answer as for a binding once the write that creates the Pod is durable, or is not."""

    revision: int


class RequestStatusWrite(Struct, frozen=True, gc=False):
    """Write the newest status there is when the time for that has come."""


class DeletePod(Struct, frozen=True, gc=False):
    """The last step of a deletion, which only the node may do: nothing of the Pod runs."""

    key: Key
    metadata: Meta


class RecordWarning(Struct, frozen=True, gc=False):
    pod: NodePod
    reason: str
    message: str


# --- effects: on the room of the node


class Enqueue(Struct, frozen=True, gc=False):
    """Let it wait for room."""

    pod: NodePod


class Dequeue(Struct, frozen=True, gc=False):
    pass


class TakeRoom(Struct, frozen=True, gc=False):
    demand: Amounts


class FreeRoom(Struct, frozen=True, gc=False):
    demand: Amounts


# --- effects: on the containers


class FollowVolumes(Struct, frozen=True, gc=False):
    """The Pod is this node's: keep the files in its volumes up to date."""

    pod: NodePod


class PodChanged(Struct, frozen=True, gc=False):
    """Somebody else wrote to the Pod: volumes may show it."""

    pod: NodePod


class RefreshVolumes(Struct, frozen=True, gc=False):
    """What they come from may have changed while nobody watched."""


class StartContainer(Struct, frozen=True, gc=False):
    pod: NodePod
    container: Container
    attempt: int


class StopContainer(Struct, frozen=True, gc=False):
    pod: NodePod
    container: str
    attempt: int
    grace_seconds: int


class RunPostStart(Struct, frozen=True, gc=False):
    pod: NodePod
    container: Container
    attempt: int
    started_at: datetime


class ContainerRuns(Struct, frozen=True, gc=False):
    """It has started, and its postStart hook is done: probes can begin."""

    pod: NodePod
    container: Container
    attempt: int


class EndWork(Struct, frozen=True, gc=False):
    """No more probes, hooks and volumes."""


class ReleasePod(Struct, frozen=True, gc=False):
    """The Pod has ended and that is on record: the runtime keeps only its logs."""


class DiscardPod(Struct, frozen=True, gc=False):
    """The Pod object is gone: the runtime keeps nothing."""


# --- effects: on the agent itself


class SetTimer(Struct, frozen=True, gc=False):
    """Reconcile at that time."""

    at: datetime


class ReconcileSoon(Struct, frozen=True, gc=False):
    """Once all that has happened by now is known."""


class LogProblem(Struct, frozen=True, gc=False):
    message: str


PodEffect: TypeAlias = (
    Bind
    | AwaitCreation
    | RequestStatusWrite
    | DeletePod
    | RecordWarning
    | Enqueue
    | Dequeue
    | TakeRoom
    | FreeRoom
    | FollowVolumes
    | PodChanged
    | RefreshVolumes
    | StartContainer
    | StopContainer
    | RunPostStart
    | ContainerRuns
    | EndWork
    | ReleasePod
    | DiscardPod
    | SetTimer
    | ReconcileSoon
    | LogProblem
)
