"""Pod lifecycle on the node: containers to start and stop, and the resulting phase.

`plan_pod` reads top-down in the order of its decisions. `ContainerSeen` is the node's whole state
of a container; only the small functions below it change that state.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.pod_spec import Container, NodePod, RestartRule

#: The kubelet's restart back-off: 0, 10, 20, 40 … seconds; a run of twice the cap resets it.
FIRST_BACK_OFF = timedelta(seconds=10)
MAX_BACK_OFF = timedelta(minutes=5)
BACK_OFF_RESET_AFTER = 2 * MAX_BACK_OFF

#: Delay before retrying a container that could not be created, e.g. for lack of a ConfigMap.
RETRY_BLOCKED = timedelta(seconds=5)

LOST_MESSAGE = "onejob: the node lost the Pod's processes; whether they finished is unknown"
SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."

Stage: TypeAlias = Literal["waiting", "starting", "running", "exited"]


class Exit(Struct, frozen=True, gc=False):
    """End of one attempt. A process killed by a signal has exit code 128 + signal."""

    code: int
    finished_at: datetime
    started_at: datetime | None = None
    signal: int = 0
    #: Empty for Completed or Error, which follow from the code.
    reason: str = ""
    message: str = ""
    #: True if the Pod fails with this exit as disrupted: the real exit is unknown because the node
    #: went down or lost track of the process, or the process was ended from outside.
    lost: bool = False
    #: Message of the Pod's DisruptionTarget condition, if `lost`; "" means an unknown exit.
    disruption: str = ""
    #: Peak memory, CPU time and duration; 0 if not measured.
    peak_bytes: int = 0
    cpu_milliseconds: int = 0
    milliseconds: int = 0

    @property
    def succeeded(self) -> bool:
        """Whether the exit code is 0."""
        return self.code == 0


class Blocked(Struct, frozen=True, gc=False):
    """Reason why a container cannot be started now, and when to retry."""

    reason: str
    message: str
    retry_at: datetime


class ContainerSeen(Struct, frozen=True, gc=False):
    """State of one container on the node: its latest attempt and the exit of the previous one."""

    stage: Stage = "waiting"
    #: Attempt number from 0, reported as restartCount; -1 before the first attempt.
    attempt: int = -1
    started_at: datetime | None = None
    exit: Exit | None = None
    previous_exit: Exit | None = None
    blocked: Blocked | None = None
    #: Restarts since the last long run; determines the next back-off.
    quick_restarts: int = 0
    #: Probe results. Without probes a running container is both started and ready.
    started: bool = False
    ready: bool = False
    #: True if a liveness or startup probe failed for this attempt, or its postStart hook did.
    unhealthy: bool = False
    #: True once the postStart hook has begun: the process has started, but is reported as running
    #: only when the hook is done.
    post_start_began: bool = False
    stopping: bool = False
    #: Grace period of the stop in progress, in seconds.
    stop_grace_seconds: int = 0
    #: Start of the restart back-off, if it is not the end of the attempt.
    backs_off_from: datetime | None = None
    #: True between `rewind` and the moment at which the container runs again.
    rewound: bool = False

    @property
    def busy(self) -> bool:
        """Whether the container is being started or runs."""
        return self.stage in ("starting", "running")


UNSEEN = ContainerSeen()


class Start(Struct, frozen=True, gc=False):
    container: str
    attempt: int


class Stop(Struct, frozen=True, gc=False):
    container: str
    grace_seconds: int


class PodPlan(Struct, frozen=True, gc=False):
    start: tuple[Start, ...] = ()
    stop: tuple[Stop, ...] = ()
    #: Phase of the status, followed by its reason and message.
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    initialized: bool = True
    #: Reason for an external termination; the message of the Pod's DisruptionTarget condition.
    disruption: str = ""
    #: Containers in back-off, and the time at which each may restart.
    backing_off: Mapping[str, datetime] | None = None
    look_again_at: datetime | None = None
    #: True if all containers have stopped to be started again, from the first init container on:
    #: the caller applies `rewind` to each of them and plans again.
    restart_all: bool = False

    #: True if a container runs or may run, regardless of the phase.
    busy: bool = True

    @property
    def over(self) -> bool:
        """True if the phase is final. The Pod is finished once it is not `busy` either."""
        return self.phase in ("Succeeded", "Failed")


class _Ending(Struct, frozen=True, gc=False):
    """Termination of the whole Pod, regardless of its containers' restart policy."""

    grace_seconds: int
    reason: str = ""
    message: str = ""
    disruption: str = ""
    must_fail: bool = False


def plan_pod(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    now: datetime,
    started_at: datetime,
    *,
    node_leaves: bool = False,
    at_once: bool = False,
) -> PodPlan:
    """Return the next step for a Pod bound to this node.

    Args:
        started_at: The Pod's status.startTime.
        node_leaves: The node shuts down and terminates its Pods.
        at_once: The node shuts down without granting grace periods.
    """
    if pod.status.phase in ("Succeeded", "Failed"):
        # Another client set a terminal phase: stop the containers that still run.
        plan = _end(pod, seen, _Ending(_grace(pod)))
        return replace(plan, phase=pod.status.phase, reason=pod.status.reason)
    deadline = _deadline(pod, started_at)
    if ending := _find_ending(pod, seen, deadline, now, node_leaves):
        if node_leaves and at_once:
            ending = replace(ending, grace_seconds=0)
        return _end(pod, seen, ending)
    if trigger := _restart_all_trigger(pod, seen):
        return _restart_all(pod, seen, trigger, now, deadline)
    draft = _Draft(pod, seen, now, deadline)
    initialized = not pod.spec.init_containers or draft.initialize()
    if draft.init_failed:
        return _end(pod, seen, _Ending(_grace(pod), must_fail=True), initialized=False)
    if initialized:
        finished = draft.run_containers()
        if finished:
            return _end(pod, seen, _Ending(_grace(pod)))
    if pod.spec.ephemeral_containers:
        draft.run_ephemeral()
    return draft.plan(initialized)


def is_sidecar(container: Container) -> bool:
    """Return whether an init container is a sidecar (restartPolicy Always).

    Sidecars keep running while the other containers run. Only meaningful for init containers.
    """
    return container.restart_policy == "Always"


def restarts(container: Container, policy: str, ended: Exit) -> bool:
    """Return whether an exited container is restarted under its own or its Pod's restart policy."""
    for rule in container.restart_policy_rules:
        if _rule_matches(rule, ended.code):
            return rule.action in ("Restart", "RestartAllContainers")
    effective = container.restart_policy or policy
    return effective == "Always" or (effective == "OnFailure" and not ended.succeeded)


def back_off(quick_restarts: int) -> timedelta:
    """Return the delay before the next restart, after this many restarts in a row."""
    if quick_restarts == 0:
        return timedelta(0)
    return min(FIRST_BACK_OFF * (1 << min(quick_restarts - 1, 16)), MAX_BACK_OFF)


def restart_at(seen: ContainerSeen) -> datetime:
    assert seen.exit is not None, "only a container that ended is restarted"
    return (seen.backs_off_from or seen.exit.finished_at) + back_off(_quick_restarts(seen))


def restart_was_due(pod: NodePod, container: Container, seen: ContainerSeen, now: datetime) -> bool:
    """Return whether an attempt later than the latest one recorded may have been made by now."""
    if seen.stage != "exited" or seen.exit is None or seen.exit.lost:
        return False
    if not restarts(container, pod.spec.restart_policy, seen.exit):
        return False
    if seen.exit.succeeded and container in pod.spec.init_containers and not is_sidecar(container):
        return False
    # A clock that was set back proves nothing.
    return restart_at(seen) <= now or seen.exit.finished_at > now


def by_this_clock(seen: ContainerSeen, now: datetime) -> ContainerSeen:
    """Return the state with waiting times limited to their intended length.

    Recorded times may be far in the future if the clock was set back.
    """
    if seen.exit is not None and (seen.backs_off_from or seen.exit.finished_at) > now:
        seen = replace(seen, backs_off_from=now)
    if seen.blocked is not None and seen.blocked.retry_at > now + RETRY_BLOCKED:
        seen = replace(seen, blocked=replace(seen.blocked, retry_at=now + RETRY_BLOCKED))
    return seen


def begin(seen: ContainerSeen) -> ContainerSeen:
    """Return the state after the next attempt has been requested."""
    restarting = seen.exit is not None
    return ContainerSeen(
        stage="starting",
        attempt=seen.attempt + 1,
        previous_exit=seen.exit or seen.previous_exit,
        quick_restarts=_quick_restarts(seen) + 1 if restarting else seen.quick_restarts,
        rewound=seen.rewound,
    )


def rewind(seen: ContainerSeen) -> ContainerSeen:
    """Return the state before the next attempt of a container that restarts with all others."""
    return ContainerSeen(
        attempt=seen.attempt,
        previous_exit=seen.exit or seen.previous_exit,
        quick_restarts=_quick_restarts(seen) + 1 if seen.exit is not None else seen.quick_restarts,
        rewound=True,
    )


def block(seen: ContainerSeen, blocked: Blocked) -> ContainerSeen:
    """Return the state after an attempt counted by `begin` could not be made; it is not counted."""
    if seen.rewound:
        return replace(seen, stage="waiting", attempt=seen.attempt - 1, blocked=blocked)
    return replace(
        seen,
        stage="exited" if seen.previous_exit else "waiting",
        attempt=seen.attempt - 1,
        exit=seen.previous_exit,
        previous_exit=None,
        blocked=blocked,
    )


def delay(seen: ContainerSeen, blocked: Blocked) -> ContainerSeen:
    """Return the state of a requested attempt that waits for resources."""
    return replace(seen, blocked=blocked) if seen.stage == "starting" else seen


def run(
    seen: ContainerSeen, started_at: datetime, *, has_startup: bool, has_readiness: bool
) -> ContainerSeen:
    """Return the state of a container that has started."""
    return replace(
        seen,
        stage="running",
        rewound=False,
        blocked=None,
        started_at=started_at,
        started=not has_startup,
        ready=not has_startup and not has_readiness,
    )


def lose(seen: ContainerSeen, at: datetime, disruption: str = "") -> ContainerSeen:
    """Return the state of an attempt that was started and whose outcome is unknown."""
    unknown = Exit(
        code=137,
        finished_at=at,
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
        lost=True,
        disruption=disruption,
    )
    return end(replace(seen, attempt=max(seen.attempt, 0)), unknown)


def end(seen: ContainerSeen, exit: Exit) -> ContainerSeen:
    """Return the state of a container that exited."""
    return replace(
        seen,
        stage="exited",
        blocked=None,
        exit=exit,
        started_at=None,
        started=False,
        ready=False,
        unhealthy=False,
        stopping=False,
        backs_off_from=None,
    )


class _Draft:
    """Plan under construction for a Pod that keeps running."""

    def __init__(
        self,
        pod: NodePod,
        seen: Mapping[str, ContainerSeen],
        now: datetime,
        deadline: datetime | None,
    ) -> None:
        self.pod, self.seen, self.now = pod, seen, now
        self.start: list[Start] = []
        self.stop: list[Stop] = []
        self.backing_off: dict[str, datetime] = {}
        self.wake_at: list[datetime] = [deadline] if deadline else []
        self.init_failed = False

    def initialize(self) -> bool:
        """Start the init containers in order; return whether initialization is complete."""
        # A sidecar that crashes later does not return the Pod to initialization.
        init_containers = self.pod.spec.init_containers
        begun = init_containers and any(
            c.name in self.seen and not self.seen[c.name].rewound for c in self.pod.spec.containers
        )
        for container in init_containers:
            state = self.seen.get(container.name, UNSEEN)
            sidecar = is_sidecar(container)
            if state.stage == "waiting":
                self._start(container, state)
            elif state.stage != "exited" or state.exit is None:
                self._check_health(container, state)
                if sidecar and state.started:
                    continue
            elif sidecar:
                self._restart_when_due(container, state)
            elif state.exit.succeeded:
                continue
            # Even with restartPolicy Always, an init container runs only until it succeeds.
            elif restarts(container, self.pod.spec.restart_policy, state.exit):
                self._restart_when_due(container, state)
            else:
                self.init_failed = True
            if not (sidecar and begun):
                return False
        return True

    def run_containers(self) -> bool:
        """Start or restart the regular containers; return True when all have ended for good."""
        finished = True
        for container in self.pod.spec.containers:
            state = self.seen.get(container.name, UNSEEN)
            if state.stage == "waiting":
                self._start(container, state)
                finished = False
            elif state.exit is not None and state.stage == "exited":
                if restarts(container, self.pod.spec.restart_policy, state.exit):
                    self._restart_when_due(container, state)
                    finished = False
            else:
                self._check_health(container, state)
                finished = False
        return finished

    def run_ephemeral(self) -> None:
        """Start the ephemeral containers that have not run yet; they are never restarted."""
        for container in self.pod.spec.ephemeral_containers:
            state = self.seen.get(container.name, UNSEEN)
            if state.stage == "waiting":
                self._start(container, state)

    def plan(self, initialized: bool) -> PodPlan:
        """Return the finished plan."""
        return PodPlan(
            start=tuple(self.start),
            stop=tuple(self.stop),
            phase=_phase(self.pod, self.seen, initialized),
            initialized=initialized,
            backing_off=self.backing_off or None,
            look_again_at=min(self.wake_at) if self.wake_at else None,
        )

    def _start(self, container: Container, state: ContainerSeen) -> None:
        """Plan the next attempt of a container, or a later look if its start is blocked."""
        if state.blocked is not None and state.blocked.retry_at > self.now:
            self.wake_at.append(state.blocked.retry_at)
            return
        self.start.append(Start(container.name, state.attempt + 1))

    def _restart_when_due(self, container: Container, state: ContainerSeen) -> None:
        due = restart_at(state)
        if due > self.now:
            self.backing_off[container.name] = due
            self.wake_at.append(due)
            return
        self._start(container, state)

    def _check_health(self, container: Container, state: ContainerSeen) -> None:
        if state.unhealthy and not state.stopping and state.busy:
            probed = state.stage == "running"
            grace = _probe_grace(self.pod, container) if probed else _grace(self.pod)
            self.stop.append(Stop(container.name, grace))


def _find_ending(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    deadline: datetime | None,
    now: datetime,
    node_leaves: bool,
) -> _Ending | None:
    """Return why the Pod has to end, or None."""
    for name, state in seen.items():
        if state.exit is not None and state.exit.lost and not _is_ephemeral(pod, name):
            disruption = state.exit.disruption or LOST_MESSAGE
            return _Ending(_grace(pod), disruption=disruption, must_fail=True)
    if pod.metadata.deletion_timestamp is not None:
        grace = pod.metadata.deletion_grace_period_seconds
        return _Ending(_grace(pod) if grace is None else grace)
    if node_leaves:
        return _Ending(
            _grace(pod),
            reason="Terminated",
            message=SHUTDOWN_MESSAGE,
            disruption=SHUTDOWN_MESSAGE,
            must_fail=True,
        )
    if deadline is not None and now >= deadline:
        return _Ending(
            _grace(pod),
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline",
            must_fail=True,
        )
    return None


def _end(
    pod: NodePod, seen: Mapping[str, ContainerSeen], ending: _Ending, *, initialized: bool = True
) -> PodPlan:
    """Stop all containers, then set the phase.

    Regular containers stop first, then sidecars in reverse order.
    """
    for wave in _stop_order(pod):
        busy = [c.name for c in wave if seen.get(c.name, UNSEEN).busy]
        if busy:
            # A later deletion can only shorten the grace period in progress.
            stop = tuple(
                Stop(name, ending.grace_seconds)
                for name in busy
                if not seen[name].stopping or ending.grace_seconds < seen[name].stop_grace_seconds
            )
            phase = _phase(pod, seen, initialized)
            # The containers' exits may already look like an end, but the Pod's phase changes last.
            return PodPlan(
                stop=stop,
                phase="Running" if phase in ("Succeeded", "Failed") else phase,
                initialized=initialized,
            )
    return PodPlan(
        phase="Failed" if ending.must_fail or not _all_succeeded(pod, seen) else "Succeeded",
        reason=ending.reason,
        message=ending.message,
        disruption=ending.disruption,
        initialized=initialized,
        busy=False,
    )


def _restart_all_trigger(pod: NodePod, seen: Mapping[str, ContainerSeen]) -> str:
    """Return the name of an ended container whose rules restart all containers; else ""."""
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers:
            if not container.restart_policy_rules:
                continue
            state = seen.get(container.name, UNSEEN)
            if state.stage != "exited" or state.exit is None:
                continue
            for rule in container.restart_policy_rules:
                if _rule_matches(rule, state.exit.code):
                    if rule.action == "RestartAllContainers":
                        return container.name
                    break
    return ""


def _restart_all(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    trigger: str,
    now: datetime,
    deadline: datetime | None,
) -> PodPlan:
    """Stop all containers, sidecars last; once the trigger's back-off is over, restart them."""
    for wave in _stop_order(pod):
        busy = [c.name for c in wave if seen.get(c.name, UNSEEN).busy]
        if busy:
            return PodPlan(
                stop=tuple(Stop(name, _grace(pod)) for name in busy if not seen[name].stopping),
                phase="Running",
                look_again_at=deadline,
            )
    due = restart_at(seen[trigger])
    if due <= now:
        return PodPlan(phase="Running", restart_all=True)
    return PodPlan(
        phase="Running",
        backing_off={trigger: due},
        look_again_at=due if deadline is None else min(due, deadline),
    )


def _is_ephemeral(pod: NodePod, name: str) -> bool:
    """Return whether the container was added for debugging, so that its end has no consequences."""
    return any(container.name == name for container in pod.spec.ephemeral_containers)


def _stop_order(pod: NodePod) -> Sequence[Sequence[Container]]:
    """Return the groups of containers that stop one after the other."""
    containers, init_containers = pod.spec.containers, pod.spec.init_containers
    if pod.spec.ephemeral_containers:
        containers = (*containers, *pod.spec.ephemeral_containers)
    if not init_containers:
        return (containers,)
    return [
        [*containers, *(c for c in init_containers if not is_sidecar(c))],
        *([c] for c in reversed(init_containers) if is_sidecar(c)),
    ]


# Plain loops, here and above: every Pod is planned several times and mostly has one container, for
# which creating a generator would cost more than the loop itself.
def _phase(pod: NodePod, seen: Mapping[str, ContainerSeen], initialized: bool) -> str:
    """Return the phase of the Pod."""
    if not initialized:
        return "Pending"
    for container in pod.spec.containers:
        state = seen.get(container.name, UNSEEN)
        never_ran = state.exit is None and state.previous_exit is None
        if never_ran and state.stage in ("waiting", "starting"):
            return "Pending"
    return "Running"


def _all_succeeded(pod: NodePod, seen: Mapping[str, ContainerSeen]) -> bool:
    """Return whether all main containers have exited with 0."""
    for container in pod.spec.containers:
        state = seen.get(container.name, UNSEEN)
        if state.stage != "exited" or state.exit is None or state.exit.code != 0:
            return False
    return True


def _rule_matches(rule: RestartRule, code: int) -> bool:
    """Return whether a restart rule selects the exit code."""
    if rule.exit_codes is None:
        return False
    listed = code in rule.exit_codes.values
    return listed if rule.exit_codes.operator == "In" else not listed


def _quick_restarts(seen: ContainerSeen) -> int:
    ended = seen.exit
    if ended is None or ended.started_at is None:
        return seen.quick_restarts
    return 0 if ended.finished_at - ended.started_at > BACK_OFF_RESET_AFTER else seen.quick_restarts


def _deadline(pod: NodePod, started_at: datetime) -> datetime | None:
    """Return the end of activeDeadlineSeconds; None without a deadline."""
    seconds = pod.spec.active_deadline_seconds
    return None if seconds is None else started_at + timedelta(seconds=seconds)


def _grace(pod: NodePod) -> int:
    """Return the grace period in seconds."""
    return max(pod.spec.termination_grace_period_seconds, 0)


def _probe_grace(pod: NodePod, container: Container) -> int:
    for probe in (container.liveness_probe, container.startup_probe):
        if probe is not None and probe.termination_grace_period_seconds is not None:
            return probe.termination_grace_period_seconds
    return _grace(pod)
