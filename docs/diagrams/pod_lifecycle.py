"""Write pod-lifecycle.md, traced from a real run: `python docs/diagrams/pod_lifecycle.py`.

A control plane with the simulated runtime runs a Job with one Pod in virtual time. Recorded are the
writes with the module that requested them, the commits, the informers' notifications, the decisions
of the planner and the calls of the runtime.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Create
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.controllers import job as job_controller
from onejob.informers.workqueue import WorkQueue
from onejob.node.options import NodeOptions
from onejob.node.runtime import AttemptRef, Deliver, Ended, Fetch, RecoveredState, RuntimeEvent
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.job.plan import Accounting, Plan, Settlement
from onejob.store.commit_queue import CommitQueue
from onejob.store.writer import Done, LoopCommitter
from onejob.store.writer import Job as CommitJob
from onejob.virtual_time import run_virtual, virtual_clock

TARGET = Path(__file__).with_name("pod-lifecycle.md")

HEAD = """\
# Life of a Pod

Written by `pod_lifecycle.py` from a traced run of a Job with one Pod on the simulated runtime;
`make diagrams` updates it. The section "The life of one Pod" in
[ARCHITECTURE.md](../../ARCHITECTURE.md) explains the steps. The module that requested a write is in
parentheses. Writes share the next commit below them.
"""

#: Identifier, title and package of each participant, from left to right.
PARTICIPANTS = (
    ("user", "user", ""),
    ("api", "api", ""),
    ("store", "store", ""),
    ("informers", "informers", ""),
    ("controllers", "controllers", "onejob.controllers."),
    ("planning", "planning", ""),
    ("node", "node agent", "onejob.node.agent."),
    ("runtime", "runtime", ""),
)
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "hello", "namespace": "default"},
    "spec": {
        "template": {
            "metadata": {"annotations": {DURATION: "5"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox"}],
            },
        }
    },
}
EVENTS = "events"


class Trace:
    """Steps of the traced run, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._uncommitted = 0

    def arrow(self, source: str, target: str, text: str, *, reply: bool = False) -> None:
        self.lines.append(f"{source}{'-->>' if reply else '->>'}{target}: {text}")

    def staged(self, change: Any) -> None:
        """Record a staged write with the component that requested it."""
        if change.key.resource not in (JOBS, PODS, EVENTS):
            return
        before, after = decoded(change.previous), decoded(change.value)
        source, module = requester() if change.key.resource != EVENTS else reporter(after or {})
        text = describe(before, after)
        self.arrow(source, "api", f"{text} ({module})" if module else text)
        self.arrow("api", "store", "stage")
        self._uncommitted += 1

    def committed(self) -> None:
        if self._uncommitted:
            self.lines.append("Note over store: commit")
            self._uncommitted = 0


def requester() -> tuple[str, str]:
    """Return the participant that requested the current write, and its module."""
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        for name, _, package in PARTICIPANTS:
            if package and module.startswith(package):
                return name, module.removeprefix("onejob.").replace(".", "/") + ".py"
        frame = frame.f_back  # type: ignore[assignment]
    return "user", ""


def reporter(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the participant that recorded an Event; a task of its own writes it."""
    node = event["source"]["component"] in ("kubelet", "default-scheduler")
    return "node" if node else "controllers", "client/events.py"


def decoded(value: bytes | None) -> dict[str, Any] | None:
    return None if value is None else msgspec.json.decode(value)


def describe(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Return a write in words, from the document before and after it."""
    if after is None:
        return f"delete {(before or {})['kind']}"
    kind = after["kind"]
    if kind == "Event":
        return f"create Event {after['reason']} of the {after['involvedObject']['kind']}"
    if before is None:
        node = after["spec"].get("nodeName")
        return f"create {kind}, bound to the node" if node else f"create {kind}"
    facts = []
    if "finalizers" in before["metadata"] and "finalizers" not in after["metadata"]:
        facts.append("remove finalizer")
    if before.get("status") != after.get("status"):
        facts.append(f"status {', '.join(status_facts(before['status'], after['status']))}")
    return f"{kind}: {', '.join(facts)}" if facts else f"update {kind}"


def status_facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changed fields of a Pod's or Job's status."""
    for name in ("phase", "active", "ready", "succeeded"):
        if before.get(name) != after.get(name):
            yield f"{name} {after.get(name, 0)}"
    uncounted = after.get("uncountedTerminatedPods", {})
    if before.get("uncountedTerminatedPods", {}) != uncounted:
        yield "Pod listed as uncounted" if any(uncounted.values()) else "Pod counted"
    known = {condition["type"] for condition in before.get("conditions", ())}
    for condition in after.get("conditions", ()):
        if "phase" not in after and condition["type"] not in known:
            yield f"condition {condition['type']}"


class TracedRuntime(SimulatedRuntime):
    def __init__(self, trace: Trace, clock: Any) -> None:
        super().__init__(clock)
        self._trace = trace

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        def traced(events: Sequence[RuntimeEvent]) -> None:
            for event in events:
                detail = f" {event.exit.code}" if isinstance(event, Ended) else ""
                self._trace.arrow("runtime", "node", f"{type(event).__name__}{detail}")
            deliver(events)

        return await super().start(traced, fetch)

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        self._trace.arrow("node", "runtime", f"launch container {container.name}")
        super().launch(pod, container, attempt)

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        self._trace.arrow("node", "runtime", "stop container")
        super().stop(ref, grace_seconds)

    def release(self, uid: str) -> None:
        self._trace.arrow("node", "runtime", "release Pod")
        super().release(uid)


class TracedCommitter(LoopCommitter):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def submit(self, job: CommitJob, done: Done) -> None:
        self._trace.committed()
        super().submit(job, done)


def decision(result: Plan | Accounting | Settlement) -> str:
    """Return the actions that the Job planner decided on; "" for none."""
    match result:
        case Plan(skipped=note) if note is not None:
            return f"none, the Job is {note.kind}"
        case Plan():
            actions = [f"create {len(result.creations)} Pod"] if result.creations else []
            actions += [f"delete {len(result.deletions)} Pod"] if result.deletions else []
        case Accounting():
            actions = ["write status"] if result.write is not None else []
            actions += [f"remove {len(result.removals)} finalizer"] if result.removals else []
        case Settlement():
            actions = ["write status"] if result.write is not None else []
    return ", ".join(actions)


@contextmanager
def observed(holder: Any, name: str, observer: Callable[..., None]) -> Iterator[None]:
    """Call `observer` with the result and the arguments of each call of `holder.name`."""
    original = getattr(holder, name)

    def call(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        observer(result, *args)
        return result

    setattr(holder, name, call)
    try:
        yield
    finally:
        setattr(holder, name, original)


@contextmanager
def observed_calls(trace: Trace) -> Iterator[None]:
    """Record staged writes, queued Jobs and decisions of the Job planner."""

    def decided(result: Plan | Accounting | Settlement, *_: object) -> None:
        if text := decision(result):
            trace.arrow("controllers", "planning", type(result).__name__)
            trace.arrow("planning", "controllers", text, reply=True)

    def queued(_result: None, _queue: object, key: object) -> None:
        if isinstance(key, Key) and key.resource == JOBS:
            trace.arrow("informers", "controllers", "queue Job")

    with (
        observed(CommitQueue, "add", lambda _result, _queue, change: trace.staged(change)),
        observed(WorkQueue, "add", queued),
        observed(job_controller, "plan_job", decided),
        observed(job_controller, "account", decided),
        observed(job_controller, "settle", decided),
    ):
        yield


def followed(trace: Trace, kind: str) -> Callable[[Sequence[Any]], None]:
    """Return a handler of an informer's changes."""

    def changed(deltas: Sequence[Any]) -> None:
        for delta in deltas:
            verb = "deleted" if delta.new is None else "added" if delta.old is None else "changed"
            trace.arrow("store", "informers", f"{kind} {verb}")

    return changed


async def run_traced(folder: Path) -> list[str]:
    trace = Trace()
    clock = virtual_clock()
    world = Dependencies(
        clock=clock,
        rng=Random(1),
        committer=TracedCommitter(trace),
        runtime=lambda _: TracedRuntime(trace, clock),
    )
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated", name="node")), world
    )
    try:
        await asyncio.sleep(5)
        # Before the handlers of the controllers, which react to the same changes.
        plane.informers.jobs._handlers.insert(0, followed(trace, "Job"))
        plane.informers.pods._handlers.insert(0, followed(trace, "Pod"))
        trace.lines.clear()
        with observed_calls(trace):
            await plane.client.write(Create(JOBS, "default", msgspec.json.encode(JOB)))
            await asyncio.sleep(30)
        return trace.lines
    finally:
        await plane.stop()


def render() -> str:
    with tempfile.TemporaryDirectory(prefix="onejob-diagram-") as folder:
        lines = run_virtual(run_traced(Path(folder)))
    participants = [f"participant {name} as {title}" for name, title, _ in PARTICIPANTS]
    rows = "\n".join(f"    {line}" for line in [*participants, *lines])
    return f"{HEAD}\n```mermaid\nsequenceDiagram\n{rows}\n```\n"


if __name__ == "__main__":
    TARGET.write_text(render())
