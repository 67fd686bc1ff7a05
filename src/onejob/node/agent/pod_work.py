"""One Pod of this node: what is known of it, the plan carried out, the status written.

`step` is the whole loop: plan, ask the runtime, report. It runs again when something is learnt:
from the API, from the runtime, from a probe, or because the plan said to look again.
"""

import logging
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from onejob.client.base import Delete, Patch, Result
from onejob.node.agent.sighting import Sighting
from onejob.node.agent.writer import Change
from onejob.node.runtime import (
    AttemptRef,
    Ended,
    Hindered,
    Lost,
    Runtime,
    RuntimeEvent,
    Started,
    Warned,
)
from onejob.node.supervisor.pressure import PRESSURES
from onejob.objects.meta import Key, Meta
from onejob.objects.pod_spec import Container, NodePod, ReportedContainer
from onejob.objects.pod_status import ConditionReport, PodReport
from onejob.planning.pod import lifecycle as pod_lifecycle
from onejob.planning.pod.lifecycle import (
    UNSEEN,
    Blocked,
    ContainerSeen,
    Exit,
    by_this_clock,
    plan_pod,
)
from onejob.planning.pod.placement import Amounts
from onejob.planning.pod.status import NodeFacts, report
from onejob.wire.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)


class ControllerContext(Protocol):
    """What a Pod's work needs from the agent around it."""

    runtime: Runtime
    facts: NodeFacts

    def now(self) -> datetime: ...

    def write(self, op: Change, answer: Callable[[Result], None], of: Meta) -> None: ...

    def soon(self, work: "PodWork") -> None:
        """Have the Pod take its next step."""

    def look_again(self, work: "PodWork", at: datetime) -> None: ...

    def warn(self, pod: NodePod, reason: str, message: str) -> None: ...

    def pod_changed(self, work: "PodWork") -> None:
        """Somebody else wrote to the Pod."""

    def greet(self, work: "PodWork", container: Container, at: datetime) -> bool:
        """Begin the postStart hook of a container that started then; False if it has none."""

    def stop_container(self, work: "PodWork", ref: AttemptRef, grace_seconds: int) -> None: ...

    def container_started(self, work: "PodWork", container: Container) -> None:
        """Time to begin probing."""

    def done(self, work: "PodWork") -> None:
        """The Pod is over and that is on record."""


_encode = msgspec.json.Encoder().encode

#: How long a status that the API refused waits to be said again, at first and at most.
_FIRST_RETRY, _LONGEST_RETRY = timedelta(seconds=1), timedelta(minutes=5)

#: Later than all that the watch can tell of a Pod that is gone, save that it is.
_THE_LAST = sys.maxsize


class PodWork:
    def __init__(self, pod: NodePod, around: ControllerContext, demand: Amounts) -> None:
        self.pod = pod
        self.demand = demand
        self.seen: dict[str, ContainerSeen] = {}
        #: The Pod object was deleted under us.
        self.gone = False
        #: The newest revision that told nothing new, because we wrote it or have read it.
        self.known_revision = pod.metadata.revision
        self._unread: Sighting | None = None
        #: The node shuts down and takes its Pods along.
        self.node_leaves = False
        #: And does not wait for them.
        self.at_once = False
        self._controller_context = around
        self._started_at = pod.status.start_time or around.now()
        #: From when on the Pod's deadline counts: not from a start that lies in the future.
        self._runs_since = self._started_at
        self._conditions: dict[str, ConditionReport] = {}
        self._reported: PodReport | None = None
        self._unwritten: list[PodReport] = []
        self._writing: PodReport | None = None
        #: How often in a row the API refused a status that it should have taken.
        self._refusals = 0
        self._finished = False
        #: How often an attempt could not be made because the node was short of something.
        self._hindrances = 0
        self._told_back_off: dict[str, int] = {}
        for condition in pod.status.conditions:
            self._conditions[condition.type] = ConditionReport(
                type=condition.type,
                status=condition.status,
                last_transition_time=condition.last_transition_time or self._started_at,
            )

    # --- what is learnt

    def sighted(self, sighting: Sighting) -> None:
        """The Pod was seen on the watch. It is read only if it is not what we just wrote, and
        that is only known once the write was answered."""
        self._unread = sighting
        if self._writing is None:
            self._read()

    def _read(self) -> None:
        sighting, self._unread = self._unread, None
        if sighting is None:
            return
        # Our own write tells of a deletion that was faster than it, so it must not hide that one.
        metadata = self.pod.metadata
        patience = metadata.deletion_grace_period_seconds or 0
        deleted_since = sighting.deleting and (
            not metadata.deleting or sighting.grace_seconds < patience
        )
        if sighting.revision <= self.known_revision and not deleted_since:
            return
        pod = sighting.pod()
        if pod is not None:
            self.pod = pod
            self.known_revision = max(self.known_revision, sighting.revision)
            self._controller_context.pod_changed(self)
            self._controller_context.soon(self)

    def remember(self) -> None:
        """Take restart counts from the status, for a Pod that an earlier life of the node ran."""
        statuses = (*self.pod.status.container_statuses, *self.pod.status.init_container_statuses)
        for status in statuses:
            if status.name not in self.seen and (ended := _reported_exit(status)) is not None:
                attempt = status.restart_count
                self.seen[status.name] = ContainerSeen(
                    "exited", attempt, exit=ended, quick_restarts=attempt
                )

    def lost(self, at: datetime) -> None:
        """Something of this Pod may have run, and there is no trace of it."""
        for container in self.pod.spec.containers:
            self.seen[container.name] = pod_lifecycle.lose(
                self.seen.get(container.name, UNSEEN), at
            )

    def happened(self, event: RuntimeEvent) -> None:
        if isinstance(event, Warned):
            self._controller_context.warn(self.pod, event.reason, event.message)
            return
        ref = event.ref
        container = self.pod.container(ref.container)
        seen = self.seen.get(ref.container, UNSEEN)
        if container is None or ref.attempt < seen.attempt:
            return
        if ref.attempt > seen.attempt:
            # Learnt from the runtime after a restart of the agent.
            seen = replace(
                pod_lifecycle.begin(seen), attempt=ref.attempt, quick_restarts=ref.attempt
            )
        match event:
            case Started(at=at):
                if seen.stage == "starting" and not seen.greeted:
                    self.seen[ref.container] = seen
                    if (
                        container.lifecycle is not None
                        and not self._said_to_run(ref)
                        and self._controller_context.greet(self, container, at)
                    ):
                        self.seen[ref.container] = replace(seen, greeted=True)
                    else:
                        self.runs(container, at)
            case Ended(exit=ended):
                if seen.busy:
                    self.seen[ref.container] = pod_lifecycle.end(seen, ended)
                    if ended.reason in ("StartError", "ContainerCannotRun"):
                        self._controller_context.warn(self.pod, "Failed", f"Error: {ended.message}")
            case Lost(at=at):
                self.seen[ref.container] = pod_lifecycle.lose(seen, at)
            case Hindered(reason=reason, message=message):
                retry_at = self._controller_context.now() + self._patience(reason)
                self.seen[ref.container] = pod_lifecycle.block(
                    seen, Blocked(reason, message, retry_at)
                )
                if reason == "ContainerCreating":
                    self._controller_context.warn(self.pod, "FailedMount", message)
                elif reason in PRESSURES:
                    self._controller_context.warn(
                        self.pod, "NodeUnderPressure", f"{reason}: {message}"
                    )
                else:
                    self._controller_context.warn(self.pod, "Failed", f"Error: {message}")

    def _patience(self, reason: str) -> timedelta:
        """How long an attempt that was hindered waits: a pressure may pass at any moment."""
        if reason not in PRESSURES:
            return pod_lifecycle.RETRY_BLOCKED
        delay = min(_FIRST_RETRY * (1 << min(self._hindrances, 16)), pod_lifecycle.RETRY_BLOCKED)
        self._hindrances += 1
        return delay

    def runs(self, container: Container, since: datetime) -> None:
        """It has started, and its postStart hook, if any, is done."""
        self._hindrances = 0
        self.seen[container.name] = pod_lifecycle.run(
            self.seen[container.name],
            since,
            has_startup=container.startup_probe is not None,
            has_readiness=container.readiness_probe is not None,
        )
        self._controller_context.container_started(self, container)

    def greeting_done(self, container: Container, attempt: int, since: datetime, ok: bool) -> None:
        """The postStart hook of an attempt is done; it may have ended or been stopped since."""
        seen = self.seen.get(container.name, UNSEEN)
        if not seen.greeted or seen.stage != "starting" or seen.attempt != attempt:
            return
        if ok:
            self.runs(container, since)
        else:
            self.seen[container.name] = replace(seen, unhealthy=True)
        self._controller_context.soon(self)

    def _said_to_run(self, ref: AttemptRef) -> bool:
        """Whether an earlier life of the node has greeted it already."""
        for status in (
            *self.pod.status.container_statuses,
            *self.pod.status.init_container_statuses,
        ):
            if status.name == ref.container and status.restart_count == ref.attempt:
                return status.state.running is not None
        return False

    def probed(self, container: str, **facts: bool) -> None:
        """A probe changed its mind about `started`, `ready` or `unhealthy`."""
        seen = self.seen.get(container, UNSEEN)
        if seen.stage == "running":
            self.seen[container] = replace(seen, **facts)

    # --- what is done

    def step(self) -> None:
        if self.gone:
            return
        if self._finished:
            self._write_next()
            return
        now = self._controller_context.now()
        self._runs_since = min(self._runs_since, now)
        for name, seen in self.seen.items():
            self.seen[name] = by_this_clock(seen, now)
        plan = plan_pod(
            self.pod,
            self.seen,
            now,
            self._runs_since,
            node_leaves=self.node_leaves,
            at_once=self.at_once,
        )
        for start in plan.start:
            container = self.pod.container(start.container)
            assert container is not None, "a plan starts only containers of its Pod"
            self.seen[start.container] = pod_lifecycle.begin(self.seen.get(start.container, UNSEEN))
            self._controller_context.runtime.launch(self.pod, container, start.attempt)
        for stop in plan.stop:
            seen = self.seen[stop.container]
            self.seen[stop.container] = replace(
                seen, stopping=True, stop_grace_seconds=stop.grace_seconds
            )
            ref = AttemptRef(self.pod.uid, stop.container, seen.attempt)
            self._controller_context.stop_container(self, ref, stop.grace_seconds)
        for name in plan.backing_off or ():
            self._tell_back_off(name)
        if plan.look_again_at is not None:
            self._controller_context.look_again(self, plan.look_again_at)
        # An attempt that was just asked for is answered in a moment; say then how it went.
        if not any(seen.stage == "starting" and not seen.greeted for seen in self.seen.values()):
            status = report(
                self.pod,
                self.seen,
                plan,
                now=now,
                started_at=self._started_at,
                facts=self._controller_context.facts,
                before=self._conditions,
            )
            self._say(status)
        if plan.over and not plan.busy:
            self._finished = True
            if self._writing is None and not self._unwritten:
                self._after_last_word()

    def _tell_back_off(self, container: str) -> None:
        """Once per attempt that failed, as long as it is waited after it."""
        attempt = self.seen[container].attempt
        if self._told_back_off.get(container) != attempt:
            self._told_back_off[container] = attempt
            meta = self.pod.metadata
            place = f"{meta.name}_{meta.namespace}({meta.uid})"
            message = f"Back-off restarting failed container {container} in pod {place}"
            self._controller_context.warn(self.pod, "BackOff", message)

    def _say(self, status: PodReport) -> None:
        if status != self._reported and not self.pod.terminal:
            self._reported = status
            self._conditions.update({condition.type: condition for condition in status.conditions})
            if self._unwritten and not self._controller_context.runtime.traits.every_status:
                self._unwritten[-1] = status
            else:
                self._unwritten.append(status)
        self._write_next()

    def _write_next(self) -> None:
        if self._writing is not None or not self._unwritten:
            return
        status = self._writing = self._unwritten.pop(0)
        body = b'{"metadata":{"uid":"%b"},"status":%b}' % (self.pod.uid.encode(), _encode(status))
        patch = Patch(self.pod.key, body, subresource="status")
        self._controller_context.write(patch, self._written, self.pod.metadata)

    def _written(self, result: Result) -> None:
        status, self._writing = self._writing, None
        if not isinstance(result, ApiError):
            self._refusals = 0
            self.known_revision = max(self.known_revision, result.revision)
        elif self.gone:
            return
        elif isinstance(result, NotFound | Conflict):
            # Deleted, or replaced by a namesake; the watch will say so.
            self.known_revision = _THE_LAST
            log.info("%s: its status has nowhere to go: %s", self.pod.key, result)
        else:
            assert status is not None, "only what is being written is answered"
            log.warning("%s: the API refused its status, trying again: %s", self.pod.key, result)
            self._say_again_later(status)
            return
        self._read()
        if self._unwritten:
            self._write_next()
        elif self._finished:
            self._after_last_word()

    def _say_again_later(self, status: PodReport) -> None:
        """Until it is on record, nobody may forget what has run."""
        if not self._unwritten or self._controller_context.runtime.traits.every_status:
            self._unwritten.insert(0, status)
        delay = min(_FIRST_RETRY * (1 << min(self._refusals, 16)), _LONGEST_RETRY)
        self._refusals += 1
        self._controller_context.look_again(self, self._controller_context.now() + delay)
        self._read()

    def _after_last_word(self) -> None:
        if self.pod.metadata.deleting and not self.gone:
            deletion = last_delete(self.pod.key, self.pod.uid)
            self._controller_context.write(deletion, lambda _: None, self.pod.metadata)
        self._controller_context.done(self)


def last_delete(key: Key, uid: str) -> Delete:
    """The deletion that only the node may do: nothing of the Pod runs any more."""
    return Delete(key, grace_seconds=0, uid=uid)


def _reported_exit(status: ReportedContainer) -> Exit | None:
    ended = status.state.terminated or status.last_state.terminated
    if ended is None or ended.finished_at is None:
        return None
    return Exit(
        ended.exit_code,
        ended.finished_at,
        ended.started_at,
        ended.signal,
        ended.reason,
        ended.message,
    )
