"""Between the wish to start a container and its start there may be something to fetch."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from onejob.node.process.runtime import ProcessRuntime
from onejob.node.runtime import AttemptRef, Ended, RuntimeEvent
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, read_node_pod
from tests.node.support import Document, a_pod, process_runtime

REF = AttemptRef("first", "c", 0)


def node_pod(uid: str, *command: str, settings: bool = False) -> NodePod:
    source: Document = {"envFrom": [{"configMapRef": {"name": "s"}}]} if settings else {}
    document = a_pod(*command, **source)
    document["metadata"]["uid"] = uid
    return read_node_pod(msgspec.json.encode(document))


class Scene:
    """A runtime whose ConfigMaps arrive when the test likes."""

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

    async def run_another(self) -> None:
        """What was started before this has been started when this returns."""
        pod = node_pod("second", "true")
        self.runtime.launch(pod, pod.spec.containers[0], 0)
        while not any(event.ref.uid == "second" and type(event) is Ended for event in self.events):
            self._news.clear()
            await self._news.wait()


def play(path: Path, meanwhile: Callable[[ProcessRuntime], None]) -> list[RuntimeEvent]:
    """What is told of a Pod whose settings arrive only after something else happened to it."""

    async def main() -> list[RuntimeEvent]:
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

    return asyncio.run(main())


def nothing(runtime: ProcessRuntime) -> None: ...


def test_a_container_starts_when_its_settings_are_there(tmp_path: Path) -> None:
    play(tmp_path, nothing)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("end", [ProcessRuntime.discard, ProcessRuntime.release])
def test_a_pod_that_is_over_by_then_is_not_started(
    tmp_path: Path, end: Callable[[ProcessRuntime, str], None]
) -> None:
    events = play(tmp_path, lambda runtime: end(runtime, "first"))
    assert events == []
    assert not (tmp_path / "ran").exists()


def test_a_container_that_was_stopped_by_then_has_ended(tmp_path: Path) -> None:
    (ended,) = play(tmp_path, lambda runtime: runtime.stop(REF, 30))
    assert isinstance(ended, Ended)
    assert ended.exit.code == 137
    assert not (tmp_path / "ran").exists()
