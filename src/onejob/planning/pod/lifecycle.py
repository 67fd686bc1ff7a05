"""What a node does next with one Pod: which containers start, which stop, what the status says.

`plan_pod` reads top-down as the order of decisions. `ContainerSeen` is all that the node knows
of a container; the small functions below it are the only ways it changes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.pod_spec import Container, NodePod, RestartRule

#: The kubelet's: restarts wait 0, 10, 20, 40 … seconds, and a run of twice the cap starts anew.
FIRST_BACK_OFF = timedelta(seconds=10)
LONGEST_BACK_OFF = timedelta(minutes=5)
CALM_RUN = 2 * LONGEST_BACK_OFF

#: How long a container that could not be made (a missing ConfigMap, say) waits to be tried again.
RETRY_BLOCKED = timedelta(seconds=5)

LOST_MESSAGE = "onejob: the node lost the Pod's processes; whether they finished is unknown"
SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."

Stage: TypeAlias = Literal["waiting", "starting", "running", "exited"]


class Exit(Struct, frozen=True, gc=False):
    """How one attempt ended. A process ended by a signal has code 128 + signal."""

    code: int
    finished_at: datetime
    started_at: datetime | None = None
    signal: int = 0
    #: "" means Completed or Error, by the code.
    reason: str = ""
    message: str = ""
    #: Nobody knows how it really ended: the node went down or lost track of it.
    lost: bool = False

    @property
    def succeeded(self) -> bool:
        return self.code == 0


class Blocked(Struct, frozen=True, gc=False):
    """Why a container cannot be started now; tried again later."""

    reason: str
    message: str
    retry_at: datetime


class ContainerSeen(Struct, frozen=True, gc=False):
    """One container as the node knows it: its newest attempt and how the one before ended."""

    stage: Stage = "waiting"
    #: Counts from 0; the restartCount. -1 before the first attempt.
    attempt: int = -1
    started_at: datetime | None = None
    exit: Exit | None = None
    previous_exit: Exit | None = None
    blocked: Blocked | None = None
    #: Restarts since the last long run; decides how long the next one waits.
    quick_restarts: int = 0
    #: What probes say. Without probes a running container is both.
    started: bool = False
    ready: bool = False
    #: A liveness or startup probe gave up on this attempt, or its postStart hook failed.
    unhealthy: bool = False
    #: It has started, but is not said to run before its postStart hook is done.
    post_start_began: bool = False
    stopping: bool = False
    #: How long it was given to stop.
    stop_grace_seconds: int = 0
    #: From when on a restart waits out its back-off, if not from the end of the attempt.
    backs_off_from: datetime | None = None

    @property
    def busy(self) -> bool:
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
    #: Phase, and with it the reason and message of the status.
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    initialized: bool = True
    #: Why the Pod was ended from outside; becomes the message of its DisruptionTarget.
    disruption: str = ""
    #: Containers that wait out a back-off, and until when.
    backing_off: Mapping[str, datetime] | None = None
    look_again_at: datetime | None = None

    #: Something runs, or may run, whatever the phase says.
    busy: bool = True

    @property
    def over(self) -> bool:
        """The phase is final. Once nothing is busy either, the Pod is done with."""
        return self.phase in ("Succeeded", "Failed")


class _Ending(Struct, frozen=True, gc=False):
    """The Pod as a whole is to end, whatever its containers want."""

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
    """The next step for a Pod bound to this node. `started_at` is its status.startTime;
    `node_leaves` means that the node shuts down and takes its Pods along, `at_once` that it does
    not give them their grace period."""
    if pod.status.phase in ("Succeeded", "Failed"):
        # Somebody else called it over: what still runs has to agree.
        plan = _end(pod, seen, _Ending(_grace(pod)))
        return replace(plan, phase=pod.status.phase, reason=pod.status.reason)
    deadline = _deadline(pod, started_at)
    if ending := _ending(pod, seen, deadline, now, node_leaves):
        if node_leaves and at_once:
            ending = replace(ending, grace_seconds=0)
        return _end(pod, seen, ending)
    draft = _Draft(pod, seen, now, deadline)
    initialized = not pod.spec.init_containers or draft.initialize()
    if draft.init_failed:
        return _end(pod, seen, _Ending(_grace(pod), must_fail=True), initialized=False)
    if initialized:
        finished = draft.run_containers()
        if finished:
            return _end(pod, seen, _Ending(_grace(pod)))
    return draft.plan(initialized)


def is_sidecar(container: Container) -> bool:
    """Only asked of init containers: one that is always restarted runs beside the others."""
    return container.restart_policy == "Always"


def restarts(container: Container, policy: str, ended: Exit) -> bool:
    """Whether a container that ended is started again under its own or its Pod's policy."""
    for rule in container.restart_policy_rules:
        if _rule_matches(rule, ended.code):
            return rule.action == "Restart"
    effective = container.restart_policy or policy
    return effective == "Always" or (effective == "OnFailure" and not ended.succeeded)


def back_off(quick_restarts: int) -> timedelta:
    """How long the next restart waits after so many in a row."""
    if quick_restarts == 0:
        return timedelta(0)
    return min(FIRST_BACK_OFF * (1 << min(quick_restarts - 1, 16)), LONGEST_BACK_OFF)


def restart_at(seen: ContainerSeen) -> datetime:
    assert seen.exit is not None, "only a container that ended is restarted"
    return (seen.backs_off_from or seen.exit.finished_at) + back_off(_streak(seen))


def restart_was_due(pod: NodePod, container: Container, seen: ContainerSeen, now: datetime) -> bool:
    """Whether the attempt after the newest one that is known may have been made by now."""
    if seen.stage != "exited" or seen.exit is None or seen.exit.lost:
        return False
    if not restarts(container, pod.spec.restart_policy, seen.exit):
        return False
    if seen.exit.succeeded and container in pod.spec.init_containers and not is_sidecar(container):
        return False
    # A clock that was set back tells nothing.
    return restart_at(seen) <= now or seen.exit.finished_at > now


def by_this_clock(seen: ContainerSeen, now: datetime) -> ContainerSeen:
    """The same, but that it waits for no longer than is meant: the clock may have been set back
    since, and what it said then may be far ahead."""
    if seen.exit is not None and (seen.backs_off_from or seen.exit.finished_at) > now:
        seen = replace(seen, backs_off_from=now)
    if seen.blocked is not None and seen.blocked.retry_at > now + RETRY_BLOCKED:
        seen = replace(seen, blocked=replace(seen.blocked, retry_at=now + RETRY_BLOCKED))
    return seen


def begin(seen: ContainerSeen) -> ContainerSeen:
    """The next attempt has been asked for."""
    restarting = seen.exit is not None
    return ContainerSeen(
        stage="starting",
        attempt=seen.attempt + 1,
        previous_exit=seen.exit or seen.previous_exit,
        quick_restarts=_streak(seen) + 1 if restarting else seen.quick_restarts,
    )


def block(seen: ContainerSeen, blocked: Blocked) -> ContainerSeen:
    """An attempt that `begin` counted could not even be tried: it does not count."""
    return replace(
        seen,
        stage="exited" if seen.previous_exit else "waiting",
        attempt=seen.attempt - 1,
        exit=seen.previous_exit,
        previous_exit=None,
        blocked=blocked,
    )


def run(
    seen: ContainerSeen, started_at: datetime, *, has_startup: bool, has_readiness: bool
) -> ContainerSeen:
    return replace(
        seen,
        stage="running",
        started_at=started_at,
        started=not has_startup,
        ready=not has_startup and not has_readiness,
    )


def lose(seen: ContainerSeen, at: datetime) -> ContainerSeen:
    """An attempt was begun, and nobody can say what became of it."""
    unknown = Exit(
        code=137,
        finished_at=at,
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
        lost=True,
    )
    return end(replace(seen, attempt=max(seen.attempt, 0)), unknown)


def end(seen: ContainerSeen, exit: Exit) -> ContainerSeen:
    return replace(
        seen,
        stage="exited",
        exit=exit,
        started_at=None,
        started=False,
        ready=False,
        unhealthy=False,
        stopping=False,
        backs_off_from=None,
    )


class _Draft:
    """A plan in the making for a Pod that is meant to go on."""

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
        """Bring the init containers up in order; True when all that must end have ended."""
        # A sidecar that falls over later does not take the Pod back into initialization.
        init_containers = self.pod.spec.init_containers
        begun = init_containers and any(c.name in self.seen for c in self.pod.spec.containers)
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
                self._start_again(container, state)
            elif state.exit.succeeded:
                continue
            # A Pod that always restarts still runs an init container only until it succeeds.
            elif restarts(container, self.pod.spec.restart_policy, state.exit):
                self._start_again(container, state)
            else:
                self.init_failed = True
            if not (sidecar and begun):
                return False
        return True

    def run_containers(self) -> bool:
        """Start or restart the containers proper; True when all have ended for good."""
        finished = True
        for container in self.pod.spec.containers:
            state = self.seen.get(container.name, UNSEEN)
            if state.stage == "waiting":
                self._start(container, state)
                finished = False
            elif state.exit is not None and state.stage == "exited":
                if restarts(container, self.pod.spec.restart_policy, state.exit):
                    self._start_again(container, state)
                    finished = False
            else:
                self._check_health(container, state)
                finished = False
        return finished

    def plan(self, initialized: bool) -> PodPlan:
        return PodPlan(
            start=tuple(self.start),
            stop=tuple(self.stop),
            phase=_phase(self.pod, self.seen, initialized),
            initialized=initialized,
            backing_off=self.backing_off or None,
            look_again_at=min(self.wake_at) if self.wake_at else None,
        )

    def _start(self, container: Container, state: ContainerSeen) -> None:
        if state.blocked is not None and state.blocked.retry_at > self.now:
            self.wake_at.append(state.blocked.retry_at)
            return
        self.start.append(Start(container.name, state.attempt + 1))

    def _start_again(self, container: Container, state: ContainerSeen) -> None:
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


def _ending(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    deadline: datetime | None,
    now: datetime,
    node_leaves: bool,
) -> _Ending | None:
    for state in seen.values():
        if state.exit is not None and state.exit.lost:
            return _Ending(_grace(pod), disruption=LOST_MESSAGE, must_fail=True)
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
    """Stop what runs, containers before sidecars and sidecars last to first; then the verdict."""
    for wave in _waves(pod):
        busy = [c.name for c in wave if seen.get(c.name, UNSEEN).busy]
        if busy:
            # A later deletion may only be less patient than the one under way.
            stop = tuple(
                Stop(name, ending.grace_seconds)
                for name in busy
                if not seen[name].stopping or ending.grace_seconds < seen[name].stop_grace_seconds
            )
            phase = _phase(pod, seen, initialized)
            # The containers' own exits may already read as an end; the Pod's comes last.
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


def _waves(pod: NodePod) -> Sequence[Sequence[Container]]:
    containers, init_containers = pod.spec.containers, pod.spec.init_containers
    if not init_containers:
        return (containers,)
    return [
        [*containers, *(c for c in init_containers if not is_sidecar(c))],
        *([c] for c in reversed(init_containers) if is_sidecar(c)),
    ]


# Plain loops, here and above: every Pod is planned several times, and mostly has one container, for
# which setting up a generator takes longer than what it is for.
def _phase(pod: NodePod, seen: Mapping[str, ContainerSeen], initialized: bool) -> str:
    if not initialized:
        return "Pending"
    for container in pod.spec.containers:
        state = seen.get(container.name, UNSEEN)
        never_ran = state.exit is None and state.previous_exit is None
        if never_ran and state.stage in ("waiting", "starting"):
            return "Pending"
    return "Running"


def _all_succeeded(pod: NodePod, seen: Mapping[str, ContainerSeen]) -> bool:
    for container in pod.spec.containers:
        state = seen.get(container.name, UNSEEN)
        if state.stage != "exited" or state.exit is None or state.exit.code != 0:
            return False
    return True


def _rule_matches(rule: RestartRule, code: int) -> bool:
    if rule.exit_codes is None:
        return False
    listed = code in rule.exit_codes.values
    return listed if rule.exit_codes.operator == "In" else not listed


def _streak(seen: ContainerSeen) -> int:
    ended = seen.exit
    if ended is None or ended.started_at is None:
        return seen.quick_restarts
    return 0 if ended.finished_at - ended.started_at > CALM_RUN else seen.quick_restarts


def _deadline(pod: NodePod, started_at: datetime) -> datetime | None:
    seconds = pod.spec.active_deadline_seconds
    return None if seconds is None else started_at + timedelta(seconds=seconds)


def _grace(pod: NodePod) -> int:
    return max(pod.spec.termination_grace_period_seconds, 0)


def _probe_grace(pod: NodePod, container: Container) -> int:
    for probe in (container.liveness_probe, container.startup_probe):
        if probe is not None and probe.termination_grace_period_seconds is not None:
            return probe.termination_grace_period_seconds
    return _grace(pod)
