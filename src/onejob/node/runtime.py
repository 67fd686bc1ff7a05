"""Runtime interface between the node agent and its runtimes: the counterpart of Kubernetes' CRI.

`Runtime` is the base class of all runtimes. Its abstract methods are what a runtime must implement;
all others have a default for runtimes without that ability. A runtime makes one attempt per request
and never restarts a container by itself: the agent applies the restart policy.
`tests/node/test_runtime_contract.py` checks the guarantees for every registered runtime.

Guarantees
    `launch`, `stop`, `release` and `discard` return at once. The outcome arrives as
    `RuntimeEvent`s, in batches, through the `deliver` function passed to `start`. Every launched
    attempt eventually gets `Ended`, `Lost` or `StartBlocked`, unless its Pod is released or
    discarded, or the runtime closed, before. Events may be repeated, for example after the
    supervisor was replaced.

Requirements
    Call `report_to` and `prepare` before `start`, and `start` before any other method. Use a new
    attempt number for each restart: a runtime starts an attempt at most once, and a repeated
    `launch` takes effect only after `StartBlocked`.

Errors
    `start` raises RuntimeUnavailable. `launch` does not raise; problems of a container are events:
    `StartBlocked` if the attempt may succeed later, `Ended` if it never will. Operations that a
    user requests and the runtime does not offer raise Unsupported.

Concurrency
    Methods are called, and events delivered, on the event loop's thread. `deliver` may be called
    from within `launch` and `stop`, so it must be reentrant.
"""

# ruff: noqa: B027 (methods for optional abilities do nothing by default)

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from onejob.clock import Clock
from onejob.node.conditions import NodeConditions
from onejob.node.descriptors import Sink
from onejob.node.exec_session import ExecSession
from onejob.node.options import NodeOptions
from onejob.objects.meta import Key
from onejob.objects.pod_spec import Container, NodePod
from onejob.objects.service import Service
from onejob.planning.pod.lifecycle import Exit
from onejob.wire.requests import LogOptions


class RuntimeUnavailable(Exception):
    """The container engine or supervisor is missing or does not work. The message is one line, for
    the user who started the node."""


class Unsupported(Exception):
    """The runtime does not offer this operation. The message is one line, for the user who
    requested it."""


class AttemptRef(NamedTuple):
    """Identity of one attempt to run one container of one Pod."""

    uid: str
    container: str
    attempt: int


class Starting(Struct, frozen=True, gc=False):
    """The attempt is in progress; its outcome is still to be reported."""

    ref: AttemptRef


class Started(Struct, frozen=True, gc=False):
    ref: AttemptRef
    at: datetime


class Ended(Struct, frozen=True, gc=False):
    """The attempt has ended, including the case that its program could not be started."""

    ref: AttemptRef
    exit: Exit


class StartBlocked(Struct, frozen=True, gc=False):
    """The attempt could not be made yet, for a reason that may be temporary."""

    ref: AttemptRef
    reason: str
    message: str


class Delayed(Struct, frozen=True, gc=False):
    """The attempt is still requested, and waits for resources that the node has yet to get."""

    ref: AttemptRef
    reason: str
    message: str


class Lost(Struct, frozen=True, gc=False):
    """The attempt was begun, and its exit code cannot be determined."""

    ref: AttemptRef
    at: datetime
    #: Reason, for the Pod's DisruptionTarget condition; "" if unknown.
    message: str = ""


class Warned(Struct, frozen=True, gc=False):
    """The attempt is made, but deviates from the Pod's spec in some respect."""

    ref: AttemptRef
    reason: str
    message: str


RuntimeEvent: TypeAlias = Starting | Started | Ended | StartBlocked | Delayed | Lost | Warned

#: Fetches the document of a ConfigMap or Secret; raises `ApiError`.
Fetch: TypeAlias = Callable[[Key], Awaitable[bytes]]
Deliver: TypeAlias = Callable[[Sequence[RuntimeEvent]], None]


class CommandResult(Struct, frozen=True):
    """Result of a command; `code` is negative if the command could not run or timed out."""

    code: int
    output: str
    #: Resource shortage of the node that prevented the command from being run; "" if none.
    pressure: str = ""


class RecoveredState(Struct, frozen=True):
    """Attempts left by an earlier run of the node."""

    attempts: Sequence[RuntimeEvent] = ()
    #: The machine rebooted meanwhile: its processes are gone, and records may be lost, too.
    rebooted: bool = False


class RuntimeTraits(Struct, frozen=True):
    """Differences between runtimes beyond the implementation of requests. The agent checks these
    traits, never a runtime's name."""

    #: Containers execute real programs: they write output, read volumes, have lifecycle hooks, and
    #: can be lost.
    runs_programs: bool = True
    #: Containers are created from images; the engine that creates them enforces their privileges.
    uses_images: bool = False
    #: Containers are host processes: they see the host's files, descend from our processes, and are
    #: listed by `first_processes`.
    on_host: bool = False
    #: Containers use no resources of the machine: the node's capacity is unlimited unless its
    #: options set it.
    boundless: bool = False
    #: Containers may have output directories.
    has_outputs: bool = False


class NodeContext(Struct, frozen=True):
    """Node facts that a runtime is given: for the downward API and for volumes."""

    name: str
    ip: str
    #: Default for unset limits: milli-CPUs, bytes.
    allocatable: Mapping[str, int] = field(default_factory=dict)
    #: Returns the Services of a namespace.
    services: Callable[[str], Iterable[Service]] = lambda namespace: ()
    #: Whether missing hostPaths may be created.
    makes_host_paths: bool = True
    #: Whether Pods get tokens of their service accounts.
    issues_tokens: bool = False
    #: Returns the URL by which Pods reach the API server; "" if there is none (yet).
    api_server: Callable[[], str] = lambda: ""
    #: Called with namespace, name and UID of each Pod that gets an output directory.
    on_outputs: Callable[[str, str, str], None] = lambda namespace, name, uid: None
    #: Returns the folders permitted for hostPath volumes of a namespace; None for all.
    host_paths: Callable[[str], tuple[str, ...] | None] = lambda namespace: None
    #: Folder of the volumes that are provisioned for claims.
    claim_folders: str = ""


class LimitsInForce(Struct, frozen=True):
    #: One line: the mechanism that enforces limits, or the reason why there is none.
    text: str
    enforced: bool


class Runtime(ABC):
    """Container runtime of a node: makes attempts to run containers, and reports their progress.

    Guarantees: an attempt is made at most once, even if `launch` is repeated. `launch`, `stop`,
    `release` and `discard` return without waiting; progress is delivered as `RuntimeEvent`s,
    possibly from within `launch` and `stop`.

    Requirements: call `start` first; only `report_to` and `prepare` precede it.
    """

    #: Scheme of container IDs, and the runtime's name in the Node's status.
    name: str
    traits: RuntimeTraits

    # --- start and end of the runtime

    def report_to(self, conditions: NodeConditions) -> None:
        """Set the Node conditions to report problems of the node itself to. Called before `start`.

        By default, none are reported.
        """

    def prepare(self) -> None:
        """Begin start-up work that may overlap other work; `start`, which may be called later,
        waits for it.

        By default, there is none.
        """

    @abstractmethod
    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        """Connect to the engine or supervisor; return the attempts known from earlier runs.

        Raises:
            RuntimeUnavailable: if it is missing or does not work.
        """

    def reboot_settled(self) -> None:
        """Stop reporting `rebooted` at each start: the status of every Pod lost to the reboot is
        stored.

        By default, nothing is recorded about reboots.
        """

    @abstractmethod
    async def close(self, *, end_pods: bool) -> None:
        """Stop reporting and release all resources. With `end_pods`, end all containers; otherwise
        they keep running if the runtime can recover them."""

    # --- attempts

    @abstractmethod
    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        """Make this attempt. Idempotent: repeated requests for the same attempt start it once."""

    def send_starts(self) -> None:
        """Start the launched containers now, ahead of other work: no more launches follow for the
        moment.

        By default, starts are not batched.
        """

    @abstractmethod
    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        """Send SIGTERM to the first process, and SIGKILL to all processes after the grace period.
        Ignored for an attempt that does not run."""

    @abstractmethod
    def release(self, uid: str) -> None:
        """Clean up after a Pod whose final status is stored: end remaining processes, keep only its
        logs."""

    @abstractmethod
    def discard(self, uid: str) -> None:
        """Remove all data of a Pod whose object is deleted, including its logs."""

    @abstractmethod
    def running(self, ref: AttemptRef) -> bool:
        """Return whether the attempt is being started or runs."""

    # --- limits of running containers

    def limits_problem(self, container: Container, ref: AttemptRef) -> str:
        """Return why the limits of a running attempt cannot become those of `container`; "" if they
        can.

        By default, a runtime cannot change limits.
        """
        return f"the {self.name} runtime cannot change the limits of running containers"

    async def change_limits(self, container: Container, ref: AttemptRef) -> str:
        """Change the limits of a running attempt to those of `container`; return why that failed,
        "" if it did not. A failed change may be tried again."""
        return self.limits_problem(container, ref)

    # --- output and commands

    async def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        """Iterate over the output of the attempt, selected by `options`.

        By default, containers have no output.
        """
        return
        yield b""

    def is_silent(self, ref: AttemptRef) -> bool:
        """Return whether the attempt is known to have written nothing yet.

        By default, that is not known.
        """
        return False

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        """Run a command in the context of a running container, with the same environment and files.
        Used by exec probes and hooks.

        By default, commands fail.
        """
        return CommandResult(-1, f"the {self.name} runtime does not support exec")

    async def open_session(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        """Run a command with attached streams: `kubectl exec`.

        Raises ConfigProblem if the command cannot be set up, for example because the container is
        not running, and Unsupported, the default.
        """
        raise Unsupported(f"the {self.name} runtime does not support exec")

    async def open_stdin(self, ref: AttemptRef, *, once: bool) -> Sink | None:
        """Return the stdin or the terminal of a container that was started with one, for `kubectl
        attach -i`; None if it is no longer open.

        `once` takes stdin over for good: closing it is the container's end of input. Raises
        Unsupported, the default.
        """
        raise Unsupported(f"the {self.name} runtime does not support stdin")

    # --- other abilities

    async def refresh_volumes(self, pod: NodePod) -> None:
        """Update the files in volumes that are generated from API objects. Raises ConfigProblem,
        VolumeProblem.

        By default, there are no such files.
        """

    async def first_processes(self) -> Mapping[AttemptRef, int]:
        """Return the PID, in this machine's numbering, of the first process of each running
        container.

        By default, and without the trait `on_host`, none are visible.
        """
        return {}

    @property
    def limits_in_force(self) -> LimitsInForce | None:
        """How `resources.limits` are enforced; None, the default, if that does not depend on the
        machine."""
        return None


class RuntimeKind(Struct, frozen=True):
    """Registration of a runtime: its factory, and the properties known before one is created."""

    traits: RuntimeTraits
    make: Callable[[NodeOptions, Path, Clock, NodeContext], Runtime]
    #: Returns one line for the user: the reason why the runtime is unusable on this machine; "" if
    #: usable.
    problem: Callable[[NodeOptions], str] = lambda options: ""
    #: Returns the node's capacity, in the units of `planning.pod.placement`; None means that of
    #: this machine.
    capacity: Callable[[NodeOptions], Mapping[str, int]] | None = None
