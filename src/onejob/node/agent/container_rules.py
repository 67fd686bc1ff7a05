"""Container state transitions from runtime events, lifecycle hooks and probes.

Part of `pod_machine` and as pure: it changes only the state passed in, which is the machine's copy.
"""

from datetime import datetime

from msgspec.structs import replace

from onejob.node.agent.pod_events import (
    Adopted,
    ContainerRuns,
    HookDone,
    PodEffect,
    RecordWarning,
    RunPostStart,
)
from onejob.node.agent.pod_history import (
    has_run,
    remembered_containers,
    reported_running,
    running_attempts,
)
from onejob.node.agent.pod_state import Active, NodeNow
from onejob.node.agent.retries import retry_delay
from onejob.node.probing.results import Probed
from onejob.node.runtime import (
    Delayed,
    Ended,
    Lost,
    RuntimeEvent,
    StartBlocked,
    Started,
    Starting,
    Warned,
)
from onejob.node.supervisor.pressure import PRESSURES
from onejob.objects.pod_spec import Container
from onejob.planning.pod import lifecycle
from onejob.planning.pod.lifecycle import UNSEEN, Blocked, ContainerSeen


class ContainerRules:
    """State transitions of containers; they modify the given state and add effects."""

    def __init__(self, *, runs_programs: bool) -> None:
        """`runs_programs`: see `RuntimeTraits`; hooks are skipped for runtimes without programs."""
        self._runs_programs = runs_programs

    def take_over(
        self, state: Active, event: Adopted, effects: list[PodEffect], node: NodeNow
    ) -> None:
        """Rebuild the container history after a restart of the agent, from the runtime's records
        first and the Pod status second.

        The newest attempt of each container wins: after a reboot only the records of earlier
        attempts may have survived.
        """
        for attempt in sorted(event.attempts, key=lambda attempt: attempt.ref.attempt):
            self.note(state, attempt, effects, node)
        if self._runs_programs:
            _lose_unrecorded(state, node.now, rebooted=event.rebooted)
        for name, remembered in remembered_containers(state.pod).items():
            seen = state.containers.get(name, UNSEEN)
            lost = seen.exit is not None and seen.exit.lost
            if remembered.attempt > seen.attempt and not lost:
                _put(state, name, remembered)
        if self._runs_programs and event.rebooted:
            _skip_unrecorded_restarts(state, node.now)

    def note(
        self, state: Active, event: RuntimeEvent, effects: list[PodEffect], node: NodeNow
    ) -> None:
        """Apply a runtime event to the state of a Pod."""
        if isinstance(event, Warned):
            effects.append(RecordWarning(state.pod, event.reason, event.message))
            return
        ref = event.ref
        container = state.pod.container(ref.container)
        seen = state.containers.get(ref.container, UNSEEN)
        if container is None or ref.attempt < seen.attempt:
            return
        if ref.attempt > seen.attempt:
            # Reported by the runtime after a restart of the agent.
            seen = replace(lifecycle.begin(seen), attempt=ref.attempt, quick_restarts=ref.attempt)
        match event:
            case Starting():
                # For the attempt that was requested, `Starting` adds no information.
                if seen is not state.containers.get(container.name):
                    _put(state, container.name, seen)
            case Started():
                self._apply_started(state, container, seen, event, effects)
            case Ended(exit=ended):
                if seen.busy:
                    _put(state, container.name, lifecycle.end(seen, ended))
                    if ended.reason in ("StartError", "ContainerCannotRun"):
                        message = f"Error: {ended.message}"
                        effects.append(RecordWarning(state.pod, "Failed", message))
            case Lost(at=at, message=message):
                _put(state, container.name, lifecycle.lose(seen, at, message))
            case Delayed(reason=reason, message=message):
                blocked = lifecycle.Blocked(reason, message, node.now)
                _put(state, container.name, lifecycle.delay(seen, blocked))
            case StartBlocked():
                self._apply_blocked(state, seen, event, effects, node)

    def _apply_started(
        self,
        state: Active,
        container: Container,
        seen: ContainerSeen,
        event: Started,
        effects: list[PodEffect],
    ) -> None:
        if seen.stage != "starting" or seen.post_start_began:
            return
        if self._has_hook(container) and not reported_running(state.pod, event.ref):
            _put(state, container.name, replace(seen, post_start_began=True))
            attempt = event.ref.attempt
            effects.append(RunPostStart(state.pod, container, attempt, event.at))
        else:
            self._runs(state, container, seen, event.at, effects)

    def _has_hook(self, container: Container) -> bool:
        hooks = container.lifecycle
        return hooks is not None and hooks.post_start is not None and self._runs_programs

    def _runs(
        self,
        state: Active,
        container: Container,
        seen: ContainerSeen,
        since: datetime,
        effects: list[PodEffect],
    ) -> None:
        """Record a container as running, once it has started and its postStart hook is done."""
        state.pressures = 0
        running = lifecycle.run(
            seen,
            since,
            has_startup=container.startup_probe is not None,
            has_readiness=container.readiness_probe is not None,
        )
        _put(state, container.name, running)
        effects.append(ContainerRuns(state.pod, container, running.attempt))

    def _apply_blocked(
        self,
        state: Active,
        seen: ContainerSeen,
        event: StartBlocked,
        effects: list[PodEffect],
        node: NodeNow,
    ) -> None:
        reason, message = event.reason, event.message
        delay = lifecycle.RETRY_BLOCKED
        if reason in PRESSURES:
            # Retry sooner than for other reasons: a shortage may end at any moment.
            delay = retry_delay(state.pressures, delay)
            state.pressures += 1
        blocked = Blocked(reason, message, node.now + delay)
        _put(state, event.ref.container, lifecycle.block(seen, blocked))
        if reason == "ContainerCreating":
            warning = RecordWarning(state.pod, "FailedMount", message)
        elif reason in PRESSURES:
            warning = RecordWarning(state.pod, "NodeUnderPressure", f"{reason}: {message}")
        else:
            warning = RecordWarning(state.pod, "Failed", f"Error: {message}")
        effects.append(warning)

    def note_hook(self, state: Active, event: HookDone, effects: list[PodEffect]) -> bool:
        """Apply a postStart result. Return False if it is stale: the attempt may have ended or been
        stopped since."""
        seen = state.containers.get(event.container, UNSEEN)
        container = state.pod.container(event.container)
        waits = seen.post_start_began and seen.stage == "starting"
        if container is None or not waits or seen.attempt != event.attempt:
            return False
        if event.ok:
            self._runs(state, container, seen, event.started_at, effects)
        else:
            _put(state, event.container, replace(seen, unhealthy=True))
        return True

    def note_probe(self, state: Active, event: Probed) -> bool:
        """Apply a probe result. Return False if it is stale: the attempt may have ended since."""
        seen = state.containers.get(event.container, UNSEEN)
        if seen.stage != "running" or seen.attempt != event.attempt:
            return False
        found = replace(
            seen,
            started=seen.started if event.started is None else event.started,
            ready=seen.ready if event.ready is None else event.ready,
            unhealthy=seen.unhealthy if event.unhealthy is None else event.unhealthy,
        )
        _put(state, event.container, found)
        return True

    def begin(self, state: Active, container: str) -> None:
        """Record that the next attempt is requested."""
        _put(state, container, lifecycle.begin(state.containers.get(container, UNSEEN)))

    def stop(self, state: Active, container: str, grace_seconds: int) -> int:
        """Record a stop request; return the number of the attempt that is stopped."""
        seen = state.containers[container]
        _put(state, container, replace(seen, stopping=True, stop_grace_seconds=grace_seconds))
        return seen.attempt


def _put(state: Active, container: str, seen: ContainerSeen) -> None:
    """Replace a container's state; the mapping is replaced, too."""
    state.containers = {**state.containers, container: seen}


def _lose_unrecorded(state: Active, now: datetime, *, rebooted: bool) -> None:
    """Mark as lost the containers that have run, or may have, but are missing in the runtime's
    records."""
    for name, attempt in running_attempts(state.pod).items():
        seen = state.containers.get(name, UNSEEN)
        if attempt > seen.attempt and state.pod.container(name) is not None:
            begun = replace(lifecycle.begin(seen), attempt=attempt)
            _put(state, name, lifecycle.lose(begun, now))
    if _may_lack_records(state, rebooted=rebooted):
        for container in state.pod.spec.containers:
            if container.name not in state.containers:
                _put(state, container.name, lifecycle.lose(UNSEEN, now))


def _skip_unrecorded_restarts(state: Active, now: datetime) -> None:
    """Skip the attempt number of a restart that was due before a reboot.

    The restart may have happened and its record may be lost with the machine, so its number is not
    reused. Syncing each record to disk before the process begins would cost a sync per restart, and
    the container has to be restarted in either case.
    """
    for container in (*state.pod.spec.init_containers, *state.pod.spec.containers):
        seen = state.containers.get(container.name, UNSEEN)
        if lifecycle.restart_was_due(state.pod, container, seen, now):
            _put(state, container.name, replace(seen, attempt=seen.attempt + 1))


def _may_lack_records(state: Active, *, rebooted: bool) -> bool:
    """Return whether containers may have run without a record in the runtime.

    A reboot may destroy the newest records, and the containers of a Pod begin together.
    """
    if not state.containers:
        return rebooted or has_run(state.pod)
    return rebooted and any(c.name in state.containers for c in state.pod.spec.containers)
