"""Container starts that wait for ConfigMaps or for a supervisor."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from onejob.node.process.runtime import ProcessRuntime
from onejob.node.runtime import AttemptRef, Ended, RuntimeEvent, Started
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, read_node_pod
from tests.node.support import Document, a_pod, process_runtime, supervisors

REF = AttemptRef("first", "c", 0)


def node_pod(uid: str, *command: str, settings: bool = False) -> NodePod:
    source: Document = {"envFrom": [{"configMapRef": {"name": "s"}}]} if settings else {}
    document = a_pod(*command, **source)
    document["metadata"]["uid"] = uid
    return read_node_pod(msgspec.json.encode(document))


class Scene:
    """Runtime whose ConfigMaps arrive when the test releases them."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self.runtime = runtime
        self.asked, self.arrived = asyncio.Event(), asyncio.Event()
        self.events: list[RuntimeEvent] = []
        self._news = asyncio.Event()

    async def fetch(self, key: Key) -> bytes:
        self.asked.set()
        await self.arrived.wait()
        return b'{"data": {}}'

    def deliver(self, events: Sequence[RuntimeEvent]) -> None:
        self.events.extend(events)
        self._news.set()

    async def run_another(self, uid: str = "second") -> None:
        """Run another Pod; all earlier starts have happened when this returns."""
        pod = node_pod(uid, "true")
        self.runtime.launch(pod, pod.spec.containers[0], 0)
        await self.until(AttemptRef(uid, "c", 0))

    async def until(self, ref: AttemptRef) -> None:
        """Wait until the attempt has ended."""
        while not any(event.ref == ref and type(event) is Ended for event in self.events):
            self._news.clear()
            await self._news.wait()


async def play(path: Path, meanwhile: Callable[[ProcessRuntime], None]) -> list[RuntimeEvent]:
    """Return the events of a Pod whose settings arrive only after `meanwhile`."""
    runtime = process_runtime(path)
    scene = Scene(runtime)
    await runtime.start(scene.deliver, scene.fetch)
    try:
        pod = node_pod("first", "touch", str(path / "ran"), settings=True)
        runtime.launch(pod, pod.spec.containers[0], 0)
        await scene.asked.wait()
        meanwhile(runtime)
        scene.arrived.set()
        await asyncio.sleep(0)
        await scene.run_another()
    finally:
        await runtime.close(end_pods=True)
    return [event for event in scene.events if event.ref == REF]


def nothing(runtime: ProcessRuntime) -> None: ...


async def test_a_container_starts_when_its_settings_are_there(tmp_path: Path) -> None:
    await play(tmp_path, nothing)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("end", [ProcessRuntime.discard, ProcessRuntime.release])
async def test_a_pod_that_is_over_by_then_is_not_started(
    tmp_path: Path, end: Callable[[ProcessRuntime, str], None]
) -> None:
    events = await play(tmp_path, lambda runtime: end(runtime, "first"))
    assert events == []
    assert not (tmp_path / "ran").exists()


async def test_a_container_that_was_stopped_by_then_has_ended(tmp_path: Path) -> None:
    (ended,) = await play(tmp_path, lambda runtime: runtime.stop(REF, 30))
    assert isinstance(ended, Ended)
    assert ended.exit.code == 137
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("end", [ProcessRuntime.discard, ProcessRuntime.release])
async def test_a_pod_that_is_over_by_then_is_not_started_by_the_next_supervisor(
    tmp_path: Path, end: Callable[[ProcessRuntime, str], None]
) -> None:
    runtime = process_runtime(tmp_path)
    scene = Scene(runtime)
    await runtime.start(scene.deliver, scene.fetch)
    try:
        (supervisor,) = supervisors(tmp_path)
        os.kill(supervisor, signal.SIGKILL)
        pod = node_pod("first", "touch", str(tmp_path / "ran"))
        runtime.launch(pod, pod.spec.containers[0], 0)
        end(runtime, "first")
        await scene.run_another()
    finally:
        await runtime.close(end_pods=True)
    assert [event for event in scene.events if event.ref == REF] == []
    assert not (tmp_path / "ran").exists()


async def test_stopped_attempt_lost_by_supervisor_is_not_started_by_next(
    tmp_path: Path,
) -> None:
    """A stop sent before the start finds nothing: the container would run forever."""
    late = AttemptRef("late", "c", 0)
    runtime = process_runtime(tmp_path)
    scene = Scene(runtime)

    def deliver(events: Sequence[RuntimeEvent]) -> None:
        scene.deliver(events)
        if any(event.ref == REF and not isinstance(event, Started) for event in events):
            runtime.stop(late, 0)

    await runtime.start(deliver, scene.fetch)
    try:
        pod = node_pod("first", "sleep", "60")
        runtime.launch(pod, pod.spec.containers[0], 0)
        await scene.run_another()
        (supervisor,) = supervisors(tmp_path)
        os.kill(supervisor, signal.SIGKILL)
        pod = node_pod("late", "touch", str(tmp_path / "ran"))
        runtime.launch(pod, pod.spec.containers[0], 0)
        await scene.until(late)
        await scene.run_another("third")
    finally:
        await runtime.close(end_pods=True)
    (ended,) = [event for event in scene.events if event.ref == late]
    assert isinstance(ended, Ended)
    assert ended.exit.message == "stopped before it could be started"
    assert not (tmp_path / "ran").exists()


async def test_attempt_stopped_without_supervisor_ends(tmp_path: Path) -> None:
    """The next supervisor gets the start request, and only then the stop request."""
    late = AttemptRef("late", "c", 0)
    runtime = process_runtime(tmp_path)
    scene = Scene(runtime)
    await runtime.start(scene.deliver, scene.fetch)
    try:
        (supervisor,) = supervisors(tmp_path)
        os.kill(supervisor, signal.SIGKILL)
        pod = node_pod("late", "sleep", "60")
        runtime.launch(pod, pod.spec.containers[0], 0)
        # Sent to a dead supervisor before its death is noticed.
        runtime.send_starts()
        while not runtime._reconnecting:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        runtime.stop(late, 0)
        async with asyncio.timeout(60):
            await scene.until(late)
    finally:
        await runtime.close(end_pods=True)
    assert isinstance(scene.events[-1], Ended)
