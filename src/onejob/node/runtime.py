"""What the agent asks of a runtime, and what a runtime reports.

Requests return at once; what becomes of them arrives as events, in batches, through the
function given to `start`. A runtime decides nothing about restarts: it makes one attempt.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from onejob.node.agent.conditions import NodeConditions
from onejob.node.process.descriptors import Sink
from onejob.node.sessions.exec_session import ExecSession
from onejob.objects.meta import Key
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.lifecycle import Exit
from onejob.wire.requests import LogOptions


class RuntimeUnavailable(Exception):
    """The engine is not there or does not work: one line for whoever started us."""


class AttemptRef(NamedTuple):
    """One attempt to run one container of one Pod."""

    uid: str
    container: str
    attempt: int


class Starting(Struct, frozen=True, gc=False):
    """The attempt is being made; what becomes of it is still to be reported."""

    ref: AttemptRef


class Started(Struct, frozen=True, gc=False):
    ref: AttemptRef
    at: datetime


class Ended(Struct, frozen=True, gc=False):
    """The attempt is over, also when its program could never be started."""

    ref: AttemptRef
    exit: Exit


class StartBlocked(Struct, frozen=True, gc=False):
    """The attempt could not be tried yet, for a reason that may pass."""

    ref: AttemptRef
    reason: str
    message: str


class Lost(Struct, frozen=True, gc=False):
    """The attempt was begun, and nobody can say how it ended."""

    ref: AttemptRef
    at: datetime


class Warned(Struct, frozen=True, gc=False):
    """The attempt is made, but not in every respect as its Pod asks."""

    ref: AttemptRef
    reason: str
    message: str


RuntimeEvent: TypeAlias = Starting | Started | Ended | StartBlocked | Lost | Warned

#: The document of a ConfigMap or Secret; raises `ApiError`.
Fetch: TypeAlias = Callable[[Key], Awaitable[bytes]]
Deliver: TypeAlias = Callable[[Sequence[RuntimeEvent]], None]


class CommandResult(Struct, frozen=True):
    """`code` is negative when the command could not run or did not end in time."""

    code: int
    output: str
    #: What the node was short of, so that the command could not even be tried.
    pressure: str = ""


class Inheritance(Struct, frozen=True):
    """What an earlier run of the node left behind."""

    attempts: Sequence[RuntimeEvent] = ()
    #: The machine went down meanwhile: what ran then is gone, and records may be too.
    rebooted: bool = False


class RuntimeTraits(Struct, frozen=True):
    """In what runtimes differ beyond how they carry out requests. Nobody asks for their names."""

    #: Programs really run: they write output, have lifecycle hooks, and can be lost.
    runs_programs: bool = True
    #: Containers come from images, and whoever made them of these sees to their rights.
    uses_images: bool = False
    #: Containers are processes of this host: they see its files, and are children of ours.
    on_host: bool = False


class Runtime(Protocol):
    #: The scheme of container ids, and what the node calls its runtime.
    name: str
    traits: RuntimeTraits

    async def start(self, deliver: Deliver, fetch: Fetch) -> Inheritance:
        """Begin, and report what is known from earlier runs."""

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        """Make this attempt, once, however often it is asked for."""

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        """SIGTERM to the first process; after the grace, SIGKILL to all of them."""

    def release(self, uid: str) -> None:
        """The Pod is over and that is on record: end what may be left, keep only its logs."""

    def discard(self, uid: str) -> None:
        """The Pod object is gone: keep nothing."""

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        """Run a command beside a container, seeing what it sees: how probes are made."""

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        """What the attempt wrote, as `options` ask."""

    def is_silent(self, ref: AttemptRef) -> bool:
        """Whether the attempt is known to have written nothing yet."""

    def running(self, ref: AttemptRef) -> bool: ...

    async def close(self, *, end_pods: bool) -> None: ...


@runtime_checkable
class OpensSessions(Protocol):
    """A runtime that also runs commands whose streams somebody holds: `kubectl exec`."""

    async def open_session(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession: ...


@runtime_checkable
class RefreshesVolumes(Protocol):
    """A runtime whose Pods have files that come from objects which may change."""

    async def refresh_volumes(self, pod: NodePod) -> None:
        """Bring those files up to date. Raises ConfigProblem, VolumeProblem."""


@runtime_checkable
class KeepsStdin(Protocol):
    """A runtime whose containers may be given a stdin that somebody attaches to later."""

    async def open_stdin(self, ref: AttemptRef, *, once: bool) -> Sink | None:
        """The stdin or the terminal of a container that was started with one; `once` takes stdin
        for good, so that its end is the container's end of input. None if it is not there to be
        had."""


@runtime_checkable
class GathersStarts(Protocol):
    """A runtime that has containers started together which are launched together."""

    def send_starts(self) -> None:
        """No more is launched for now: begin, ahead of whatever else there is to do."""


@runtime_checkable
class TakesAMoment(Protocol):
    """A runtime with something to start first that can be done beside other work."""

    def prepare(self) -> None:
        """Begin with that; `start`, which may be called later, waits for it."""


@runtime_checkable
class ReportsConditions(Protocol):
    """A runtime that notices what is wrong with the node itself."""

    def report_to(self, conditions: NodeConditions) -> None:
        """Where to say so; called before `start`."""


@runtime_checkable
class RemembersReboots(Protocol):
    """A runtime that says `rebooted` at each start until it need not any more."""

    def reboot_settled(self) -> None:
        """Which Pods were lost to it is on record."""


class LimitsInForce(Struct, frozen=True):
    #: In one line: what keeps containers within their limits, or why nothing does.
    text: str
    enforced: bool


@runtime_checkable
class KnowsLimits(Protocol):
    """A runtime in which it depends on the machine whether `resources.limits` are kept."""

    @property
    def limits_in_force(self) -> LimitsInForce: ...


@runtime_checkable
class ShowsProcesses(Protocol):
    """A runtime whose containers are processes that this machine can see."""

    async def first_processes(self) -> Mapping[AttemptRef, int]:
        """The first process of each container that runs, by its number on this machine."""
