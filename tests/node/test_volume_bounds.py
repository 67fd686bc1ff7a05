"""Volumes are bounded in size, share their sources' bytes and are written off the event loop."""

import asyncio
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.node.process.runtime import ProcessRuntime
from onejob.node.runtime import AttemptRef, Ended, NodeContext, RuntimeEvent, StartBlocked
from onejob.node.setup import container_sources, volumes
from onejob.node.setup.atomic_files import write_files
from onejob.node.setup.container_sources import FetchedSettings, fetch_settings
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.volumes import (
    MAX_FILES_BYTES,
    VolumeProblem,
    provide_volumes,
    refresh_volumes,
)
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, read_node_pod
from tests.node.support import Document, a_pod, process_runtime

NODE = NodeContext("n", "127.0.0.1")
FIELD = {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}
NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
CONFIG = Key("configmaps", "default", "s")
SECRET = Key("secrets", "default", "s")
MEGABYTE = 1_000_000
DOCUMENTS: dict[Key, bytes | None] = {
    CONFIG: msgspec.json.encode({"data": {"k": "x" * MEGABYTE}}),
    SECRET: msgspec.json.encode({"data": {"k": b"x" * MEGABYTE}}),
}


def items(count: int, **source: Any) -> list[Document]:
    return [{"path": f"f{n}", **source} for n in range(count)]


def pod_with(*sources: Document, mounted: int | None = None) -> NodePod:
    document = a_pod("true")
    document["metadata"] |= {"uid": "u", "namespace": "default"}
    document["metadata"]["annotations"] = {"a": "x" * 250_000}
    names = [f"v{n}" for n in range(len(sources))]
    mounts = [{"name": name, "mountPath": f"/tmp/{name}"} for name in names[:mounted]]
    document["spec"]["containers"][0]["volumeMounts"] = mounts
    document["spec"]["volumes"] = [
        {"name": name, **source} for name, source in zip(names, sources, strict=True)
    ]
    return read_node_pod(msgspec.json.encode(document))


def provide(pod: NodePod, folder: Path) -> None:
    settings = FetchedSettings(DOCUMENTS)
    provide_volumes(pod, pod.spec.containers[0], folder, settings, NODE, [])


TOO_LARGE: dict[str, list[Document]] = {
    "downwardAPI": [{"downwardAPI": {"items": items(4000, **FIELD)}}],
    "configMap": [{"configMap": {"name": "s", "items": items(600, key="k")}}],
    "secret": [{"secret": {"secretName": "s", "items": items(600, key="k")}}],
    "projected": [
        {
            "projected": {
                "sources": [
                    {"configMap": {"name": "s", "items": items(20, key="k")}},
                    *(
                        {"secret": {"name": "s", "items": [{"key": "k", "path": f"s{n}"}]}}
                        for n in range(20)
                    ),
                ]
            }
        }
    ],
    "several": [{"configMap": {"name": "s", "items": items(10, key="k")}}] * 4,
    "empty files": [
        {"downwardAPI": {"items": items(40_000, fieldRef={"fieldPath": "metadata.name"})}}
    ],
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_provide_volumes_refuses_files_beyond_bound(tmp_path: Path, name: str) -> None:
    # The bound is the Pod's: volumes of its other containers count.
    pod = pod_with(*TOO_LARGE[name], mounted=1)
    with pytest.raises(
        VolumeProblem, match="the files of this Pod's volumes need more than 32 MiB"
    ):
        provide(pod, tmp_path / "pod")
    assert not [file for _, _, files in os.walk(tmp_path) for file in files]


def test_refresh_volumes_refuses_files_beyond_bound(tmp_path: Path) -> None:
    small = pod_with({"downwardAPI": {"items": items(1, **FIELD)}})
    provide(small, tmp_path / "pod")
    large = pod_with({"downwardAPI": {"items": items(4000, **FIELD)}})
    with pytest.raises(VolumeProblem, match="need more than 32 MiB"):
        refresh_volumes(large, tmp_path / "pod", FetchedSettings({}), NODE)
    assert (tmp_path / "pod/volumes/v0/f0").read_text() == "x" * 250_000
    assert not (tmp_path / "pod/volumes/v0/f1").exists()


def test_provide_volumes_ignores_missing_sources_of_unmounted_volumes(tmp_path: Path) -> None:
    absent = Key("configmaps", "default", "absent")
    pod = pod_with(
        {"downwardAPI": {"items": items(1, **FIELD)}},
        {"configMap": {"name": "absent"}},
        mounted=1,
    )
    settings = FetchedSettings({absent: None})
    provide_volumes(pod, pod.spec.containers[0], tmp_path / "pod", settings, NODE, [])
    assert (tmp_path / "pod/volumes/v0/f0").exists()


@pytest.mark.parametrize(
    "source",
    [
        {"downwardAPI": {"items": items(100, **FIELD)}},
        {"configMap": {"name": "s", "items": items(25, key="k")}},
    ],
    ids=["downwardAPI", "configMap"],
)
def test_provide_volumes_holds_each_source_once(tmp_path: Path, source: Document) -> None:
    pod = pod_with(source)
    tracemalloc.start()
    try:
        for _ in range(2):
            # The second time, files are compared with the existing ones.
            provide(pod, tmp_path / "pod")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(os.listdir(tmp_path / "pod/volumes/v0")) > 25
    # 25 MB of files.
    assert peak < 8 * MEGABYTE


# --- settings -----------------------------------------------------------------------------------


def test_fetch_settings_refuses_documents_beyond_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_sources, "MAX_BYTES", 10 * MEGABYTE)
    fetched = 0

    async def fetch(key: Key) -> bytes:
        nonlocal fetched
        fetched += 1
        return bytes(MEGABYTE)

    keys = [Key("configmaps", "default", f"{n}") for n in range(1000)]
    with pytest.raises(ConfigProblem, match="ConfigMaps and Secrets of this container"):
        asyncio.run(fetch_settings(fetch, keys))
    assert fetched == 11


async def test_fetch_settings_yields_to_event_loop() -> None:
    async def fetch(key: Key) -> bytes:
        return b"{}"

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await fetch_settings(fetch, [Key("configmaps", "default", f"{n}") for n in range(1000)])
    counting.cancel()
    assert turns >= 9


# --- threads ------------------------------------------------------------------------------------


class Scene:
    """A process runtime with settings of one MB; records the threads that decode and write."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtime: ProcessRuntime
        self.path = path
        self.events: list[RuntimeEvent] = []
        self.decoding: set[str] = set()
        self.writing: set[str] = set()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self._news = asyncio.Event()
        read = container_sources._read

        def write(*args: Any) -> bool:
            self.writing.add(threading.current_thread().name)
            self.begun.set()
            assert self.go_on.wait(60)
            return write_files(*args)

        def decode(*args: Any) -> Any:
            self.decoding.add(threading.current_thread().name)
            return read(*args)

        monkeypatch.setattr(volumes, "write_files", write)
        monkeypatch.setattr(container_sources, "_read", decode)

    async def fetch(self, key: Key) -> bytes:
        document = DOCUMENTS[key]
        assert document is not None
        return document

    def deliver(self, events: Any) -> None:
        self.events.extend(events)
        self._news.set()

    async def outcome(self, uid: str = "u") -> RuntimeEvent:
        while True:
            for event in self.events:
                if event.ref.uid == uid and isinstance(event, Ended | StartBlocked):
                    return event
            self._news.clear()
            await self._news.wait()

    def run(self, meanwhile: "Callable[[Scene], Any]") -> None:
        async def play() -> None:
            self.runtime = process_runtime(self.path)
            await self.runtime.start(self.deliver, self.fetch)
            try:
                async with asyncio.timeout(120):
                    await meanwhile(self)
            finally:
                self.go_on.set()
                await self.runtime.close(end_pods=True)

        asyncio.run(play())


@pytest.mark.parametrize(
    "source",
    [
        {"downwardAPI": {"items": items(2, **FIELD)}},
        {"configMap": {"name": "s"}},
        {"secret": {"secretName": "s"}},
        {"projected": {"sources": [{"configMap": {"name": "s"}}]}},
    ],
    ids=lambda source: next(iter(source)),
)
def test_launch_writes_volumes_in_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Document
) -> None:
    pod = pod_with(source)

    async def launch(scene: Scene) -> None:
        scene.runtime.launch(pod, pod.spec.containers[0], 0)
        await scene.outcome()
        scene.runtime.discard("u")

    scene = Scene(tmp_path, monkeypatch)
    scene.run(launch)
    assert scene.writing == {"pod-volumes_0"}
    assert scene.decoding <= {"pod-volumes_0"}


def test_launch_decodes_large_variables_in_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = {"configMapKeyRef": {"name": "s", "key": "absent", "optional": True}}
    document = a_pod("true", env=[{"name": "A", "valueFrom": reference}])
    document["metadata"] |= {"uid": "u", "namespace": "default"}
    pod = read_node_pod(msgspec.json.encode(document))

    async def launch(scene: Scene) -> None:
        scene.runtime.launch(pod, pod.spec.containers[0], 0)
        await scene.outcome()

    scene = Scene(tmp_path, monkeypatch)
    scene.run(launch)
    assert scene.decoding == {"pod-volumes_0"}


def test_launch_reports_volumes_beyond_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_with(*TOO_LARGE["downwardAPI"])

    async def launch(scene: Scene) -> None:
        scene.runtime.launch(pod, pod.spec.containers[0], 0)
        blocked = await scene.outcome()
        assert isinstance(blocked, StartBlocked)
        assert blocked.reason == "ContainerCreating"
        assert "need more than 32 MiB" in blocked.message

    Scene(tmp_path, monkeypatch).run(launch)
    assert MAX_FILES_BYTES == 32 << 20


@pytest.mark.parametrize("end", [ProcessRuntime.discard, ProcessRuntime.release])
def test_removal_waits_for_volume_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[ProcessRuntime, str], None]
) -> None:
    pod = pod_with({"configMap": {"name": "s"}})

    async def end_while_writing(scene: Scene) -> None:
        scene.go_on.clear()
        scene.runtime.launch(pod, pod.spec.containers[0], 0)
        await asyncio.to_thread(scene.begun.wait, 60)
        end(scene.runtime, "u")
        await asyncio.sleep(0.1)
        scene.go_on.set()

    Scene(tmp_path, monkeypatch).run(end_while_writing)
    assert not list(tmp_path.glob("**/u/volumes"))


def test_stop_ends_container_whose_volume_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_with({"configMap": {"name": "s"}})

    async def stop_while_writing(scene: Scene) -> None:
        scene.go_on.clear()
        scene.runtime.launch(pod, pod.spec.containers[0], 0)
        await asyncio.to_thread(scene.begun.wait, 60)
        scene.runtime.stop(AttemptRef("u", "c", 0), 0)
        ended = await scene.outcome()
        assert isinstance(ended, Ended)
        assert ended.exit.code == 137

    Scene(tmp_path, monkeypatch).run(stop_while_writing)
