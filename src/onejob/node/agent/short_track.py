"""Simulated Pods of the plainest kind, without the machinery that real ones need.

One container, no restart, no probe, no deadline: then there are only two statuses, and those of
a thousand Pods of one Job differ in nothing but the uid. They are planned and rendered once per
second by the same code as any other's, and stamped. Whatever goes another way (a deletion)
leaves the track and becomes ordinary work.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from onejob.client.base import Patch, Result
from onejob.node.agent.sighting import Sighting
from onejob.node.agent.writer import Writer
from onejob.node.runtime import Ended, Runtime
from onejob.node.simulated import EXIT_CODE
from onejob.objects.meta import Meta
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod import lifecycle as pod_lifecycle
from onejob.planning.pod.lifecycle import UNSEEN, ContainerSeen, Exit, plan_pod
from onejob.planning.pod.placement import Amounts
from onejob.planning.pod.status import NodeFacts, report

_UID = "00000000-0000-0000-0000-000000000000"
_UID_BYTES = _UID.encode()
#: Rendered statuses kept; a Job needs one or two per second.
_REMEMBERED = 256


@dataclass(slots=True)
class Run:
    """A Pod on the track."""

    pod: NodePod
    demand: Amounts
    revision: int
    #: To the second: no status says more.
    started_at: datetime
    #: How many of its writes are under way. The last need not wait for the first: they are tried
    #: in order, and what holds up or refuses the one does so to the other.
    unanswered: int = 0
    exit: Exit | None = None
    #: As the watch showed it last.
    newest: Sighting | None = None
    #: To be deleted, or refused: it leaves as soon as nothing is being written.
    leaving: bool = False

    def seen(self) -> dict[str, ContainerSeen]:
        name = self.pod.spec.containers[0].name
        state = _running(self.started_at)
        return {name: state if self.exit is None else pod_lifecycle.end(state, self.exit)}


class ShortTrack:
    """`done` gets a Run whose end is on record, `leave` one that needs more than the track."""

    def __init__(
        self,
        runtime: Runtime,
        facts: NodeFacts,
        writer: Writer,
        now: Callable[[], datetime],
        done: Callable[[Run], None],
        leave: Callable[[Run], None],
    ) -> None:
        self._runtime = runtime
        self._facts = facts
        self._writer = writer
        self._now = now
        self._done = done
        self._leave = leave
        self._runs: dict[str, Run] = {}
        self._rendered: dict[tuple[object, ...], bytes] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def takes(self, pod: NodePod) -> bool:
        spec = pod.spec
        if len(spec.containers) != 1 or spec.init_containers or pod.metadata.deleting:
            return False
        if spec.active_deadline_seconds is not None or spec.readiness_gates:
            return False
        container = spec.containers[0]
        if container.readiness_probe or container.liveness_probe or container.startup_probe:
            return False
        policy = container.restart_policy or spec.restart_policy
        always_succeeds = pod.metadata.annotations.get(EXIT_CODE, "0") == "0"
        return policy == "Never" or (policy == "OnFailure" and always_succeeds)

    def begin(self, pod: NodePod, demand: Amounts, revision: int) -> None:
        run = Run(pod, demand, revision, self._now().replace(microsecond=0))
        self._runs[pod.uid] = run
        self._runtime.launch(pod, pod.spec.containers[0], 0)
        self._write(run)

    def ended(self, event: Ended) -> None:
        run = self._runs[event.ref.uid]
        run.exit = event.exit
        if not run.leaving:
            self._write(run)

    def sighted(self, uid: str, sighting: Sighting) -> None:
        run = self._runs[uid]
        run.newest = sighting
        if sighting.deleting:
            self._leave_soon(run)

    def drop(self, uid: str) -> Run | None:
        return self._runs.pop(uid, None)

    def leave_all(self) -> None:
        for run in list(self._runs.values()):
            self._leave_soon(run)

    def _write(self, run: Run) -> None:
        run.unanswered += 1
        last = run.exit is not None
        body = self._render(run).replace(_UID_BYTES, run.pod.uid.encode())
        patch = Patch(run.pod.key, body, subresource="status")
        self._writer.submit(
            patch, lambda result: self._written(run, last, result), run.pod.metadata
        )

    def _written(self, run: Run, last: bool, result: Result) -> None:
        run.unanswered -= 1
        if run.pod.uid not in self._runs:
            return
        if isinstance(result, Exception):
            # Whatever is wrong with it, the long way knows what to do.
            self._leave_soon(run)
            return
        run.revision = result.revision
        if run.leaving:
            self._leave_soon(run)
        elif last:
            del self._runs[run.pod.uid]
            self._done(run)

    def _leave_soon(self, run: Run) -> None:
        run.leaving = True
        if not run.unanswered:
            del self._runs[run.pod.uid]
            self._leave(run)

    def _render(self, run: Run) -> bytes:
        container, began, exit = run.pod.spec.containers[0], run.started_at, run.exit
        now = began if exit is None else exit.finished_at.replace(microsecond=0)
        how = None if exit is None else (now, exit.code, exit.signal)
        generation = run.pod.metadata.generation
        shape = (container.name, container.image, generation, began, how)
        text = self._rendered.get(shape)
        if text is None:
            if len(self._rendered) >= _REMEMBERED:
                self._rendered.clear()
            text = self._rendered[shape] = self._plan_and_report(
                container, generation, began, now, exit
            )
        return text

    def _plan_and_report(
        self,
        container: Container,
        generation: int,
        began: datetime,
        now: datetime,
        exit: Exit | None,
    ) -> bytes:
        spec = msgspec.structs.replace(_PLAIN.spec, containers=(container,))
        metadata = msgspec.structs.replace(_PLAIN.metadata, generation=generation)
        pod = msgspec.structs.replace(_PLAIN, metadata=metadata, spec=spec)
        seen = {container.name: _running(began)}
        plan = plan_pod(pod, seen, began, began)
        status = report(pod, seen, plan, now=began, started_at=began, facts=self._facts, before={})
        if exit is not None:
            before = {condition.type: condition for condition in status.conditions}
            seen = {container.name: pod_lifecycle.end(seen[container.name], exit)}
            plan = plan_pod(pod, seen, now, began)
            status = report(
                pod, seen, plan, now=now, started_at=began, facts=self._facts, before=before
            )
        return b'{"metadata":{"uid":"%b"},"status":%b}' % (_UID_BYTES, msgspec.json.encode(status))


_PLAIN = NodePod(metadata=Meta(uid=_UID))
_PLAIN = msgspec.structs.replace(
    _PLAIN, spec=msgspec.structs.replace(_PLAIN.spec, restart_policy="Never")
)


def _running(started_at: datetime) -> ContainerSeen:
    return pod_lifecycle.run(
        pod_lifecycle.begin(UNSEEN), started_at, has_startup=False, has_readiness=False
    )
