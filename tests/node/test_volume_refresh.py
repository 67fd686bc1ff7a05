"""Refresh of files from ConfigMaps, Secrets and Pod fields while the Pod runs."""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Delete, Patch
from onejob.node.setup.atomic_files import File, write_files
from onejob.objects.meta import PODS, Key
from tests.node.support import (
    Document,
    Node,
    a_node,
    a_process_node,
    an_api,
    needs_namespaces,
    process_runtime,
    shell,
    with_spec,
)

CONFIG = Key("configmaps", "default", "c")
SECRET = Key("secrets", "default", "s")


def config_map(**data: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def secret(**data: str) -> Document:
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": encoded}


async def change(node: Node, key: Key, body: Document) -> None:
    await node.client.write(Patch(key, msgspec.json.encode(body), "merge"))


def waiting_for(condition: str, volume: Document) -> Document:
    """Return a Pod that prints `ready`, and ends once the condition holds in /data."""
    script = f"cd /data; echo ready; until {condition}; do sleep 0.05; done; ls"
    pod = shell(script, volumeMounts=[{"name": "v", "mountPath": "/data"}])
    return with_spec(pod, volumes=[{"name": "v", **volume}])


async def until_ready(node: Node) -> None:
    await node.until("p", lambda pod: pod["status"].get("phase") == "Running")
    await node.until_output("p", "ready\n")


async def ends(node: Node, pod: Document, act: Callable[[Node], Any]) -> str:
    """Do something once the Pod waits; return the contents of the volume when it has ended."""
    await node.create(pod)
    await until_ready(node)
    await act(node)
    await node.finished("p")
    return (await node.output("p")).removeprefix("ready\n")


async def refreshed(
    path: Path, pod: Document, *objects: Document, act: Callable[[Node], Any], **settings: Any
) -> str:
    async with a_process_node(path, **settings) as node:
        for document in objects:
            await node.create(document)
        return await ends(node, pod, act)


async def test_a_config_map_changes_in_a_running_pod(tmp_path: Path) -> None:
    pod = waiting_for('[ "$(cat b)" = new ]', {"configMap": {"name": "c"}})

    async def act(node: Node) -> None:
        await change(node, CONFIG, {"data": {"a": None, "b": "new", "d": "more"}})

    # A removed key is gone, a new one is present.
    assert await refreshed(tmp_path, pod, config_map(a="1", b="2"), act=act) == "b\nd\n"


async def test_projected_volume_updates_changed_secret_only(tmp_path: Path) -> None:
    sources = [
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "deep/a"}]}},
        {"secret": {"name": "s"}},
    ]
    pod = waiting_for('[ "$(cat k deep/a)" = new1 ]', {"projected": {"sources": sources}})

    async def act(node: Node) -> None:
        await change(node, SECRET, {"data": {"k": base64.b64encode(b"new").decode()}})

    documents = config_map(a="1"), secret(k="old")
    assert await refreshed(tmp_path, pod, *documents, act=act) == "deep\nk\n"


async def test_labels_and_annotations_change_in_a_running_pod(tmp_path: Path) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
    ]
    pod = waiting_for(
        '[ "$(cat labels)" = \'a="2"\' ] && [ "$(cat note)" = hello ]',
        {"downwardAPI": {"items": items}},
    )
    pod["metadata"]["labels"] = {"a": "1"}

    async def act(node: Node) -> None:
        body = {"metadata": {"labels": {"a": "2"}, "annotations": {"note": "hello"}}}
        await change(node, Key(PODS, "default", "p"), body)

    assert await refreshed(tmp_path, pod, act=act) == "labels\nnote\n"


async def test_an_optional_source_appears_when_it_is_created_and_goes_when_it_is_deleted(
    tmp_path: Path,
) -> None:
    pod = waiting_for("[ -e a ]", {"configMap": {"name": "c", "optional": True}})
    pod["spec"]["containers"][0]["command"][-1] += "; until [ ! -e a ]; do sleep 0.05; done; ls"

    async def act(node: Node) -> None:
        await node.create(config_map(a="1"))
        await node.until_output("p", "a\n")
        await node.client.write(Delete(CONFIG))

    assert await refreshed(tmp_path, pod, act=act) == "a\n"


async def test_deleted_source_keeps_files_with_event(tmp_path: Path) -> None:
    pod = waiting_for(f"[ -e {tmp_path}/go ]", {"configMap": {"name": "c"}})

    async def act(node: Node) -> None:
        await node.client.write(Delete(CONFIG))
        reason, message = (await node.until_told("p"))[0]
        assert reason == "FailedMount"
        expected = 'MountVolume.SetUp failed for volume "v" : configmap "c" not found'
        assert message == expected
        (tmp_path / "go").touch()

    assert await refreshed(tmp_path, pod, config_map(a="1"), act=act) == "a\n"


@needs_namespaces
async def test_a_part_of_a_volume_stays_as_it_was(tmp_path: Path) -> None:
    """As in Kubernetes: `subPath` is mounted once."""
    mounts = [
        {"name": "v", "mountPath": "/data"},
        {"name": "v", "mountPath": "/data-part", "subPath": "a"},
    ]
    script = 'echo ready; until [ "$(cat /data/a)" = 2 ]; do sleep 0.05; done; cat /data-part'
    pod = shell(script, volumeMounts=mounts)
    pod = with_spec(pod, volumes=[{"name": "v", "configMap": {"name": "c"}}])

    async def act(node: Node) -> None:
        await change(node, CONFIG, {"data": {"a": "2"}})

    assert await refreshed(tmp_path, pod, config_map(a="1"), act=act) == "1"


@needs_namespaces
async def test_the_container_cannot_write_where_the_node_writes(tmp_path: Path) -> None:
    pod = shell("touch /data/x", volumeMounts=[{"name": "v", "mountPath": "/data"}])
    pod = with_spec(pod, volumes=[{"name": "v", "configMap": {"name": "c"}}])
    async with a_process_node(tmp_path) as node:
        await node.create(config_map(a="1"))
        assert (await node.run(pod))["status"]["phase"] == "Failed"
        assert "Read-only file system" in await node.output("p")


async def test_objects_that_no_pod_uses_are_not_even_fetched(tmp_path: Path) -> None:
    pod = waiting_for('[ "$(cat a)" = 2 ]', {"configMap": {"name": "c"}})
    fetched: list[Key] = []
    async with an_api(tmp_path) as client:
        runtime = process_runtime(tmp_path)
        async with a_node(client, runtime) as node:
            inner = runtime._fetch

            async def fetch(key: Key) -> bytes:
                fetched.append(key)
                return await inner(key)

            runtime._fetch = fetch
            other = config_map(a="1")
            other["metadata"] = {"name": "other"}
            await node.create(other)
            await node.create(config_map(a="1"))
            await node.create(pod)
            await until_ready(node)
            for value in "23":
                key = Key("configmaps", "default", "other")
                await change(node, key, {"data": {"a": value}})
            await change(node, CONFIG, {"data": {"a": "2"}})
            await node.finished("p")
    assert fetched == [CONFIG, CONFIG]


async def test_volume_changes_during_downtime_reach_running_pods(
    tmp_path: Path,
) -> None:
    pod = waiting_for('[ "$(cat a)" = 2 ]', {"configMap": {"name": "c"}})
    async with an_api(tmp_path) as client:
        async with a_node(client, process_runtime(tmp_path), end_pods=False) as node:
            await node.create(config_map(a="1"))
            await node.create(pod)
            await until_ready(node)
        await change(node, CONFIG, {"data": {"a": "2"}})
        async with a_node(client, process_runtime(tmp_path)) as node:
            await node.finished("p")
            assert await node.output("p") == "ready\na\n"


# --- atomic replacement of files -------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_RDONLY)


def shown(path: Path) -> dict[str, str]:
    """Return the files that a user of the volume sees, by path."""
    return {
        str(file.relative_to(path)): file.read_text()
        for file in sorted(path.rglob("*"))
        if not file.relative_to(path).parts[0].startswith("..") and file.is_file()
    } | {
        f"{link.name}/{file.name}": file.read_text()
        for link in path.iterdir()
        if link.is_symlink() and link.is_dir() and not link.name.startswith("..")
        for file in link.iterdir()
    }


def files(**contents: str) -> dict[str, File]:
    return {name.replace("__", "/"): File(text.encode(), 0o640) for name, text in contents.items()}


def test_users_see_links_through_one_link_that_is_replaced(tmp_path: Path, folder: int) -> None:
    assert write_files(folder, files(a="1", d__b="2"))
    assert shown(tmp_path) == {"a": "1", "d/b": "2"}
    assert os.readlink(tmp_path / "a") == "..data/a"
    first = os.readlink(tmp_path / "..data")
    held = os.open(tmp_path / "a", os.O_RDONLY)
    assert write_files(folder, files(a="3", e="4"))
    assert shown(tmp_path) == {"a": "3", "e": "4"}
    assert os.readlink(tmp_path / "..data") != first
    assert os.read(held, 10) == b"1"
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["..data", os.readlink(tmp_path / "..data"), "a", "e"]
    )


def test_unchanged_volume_files_are_not_rewritten(tmp_path: Path, folder: int) -> None:
    write_files(folder, files(a="1", d__b="2"))
    before = os.readlink(tmp_path / "..data")
    assert not write_files(folder, files(a="1", d__b="2"))
    assert os.readlink(tmp_path / "..data") == before
    assert write_files(folder, {"a": File(b"1", 0o600), "d/b": File(b"2", 0o640)})


def test_plain_files_of_an_earlier_version_are_replaced(tmp_path: Path, folder: int) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").write_text("old")
    write_files(folder, files(a="1", d__b="2"))
    assert shown(tmp_path) == {"a": "1", "d/b": "2"}


def test_interrupted_volume_update_is_repeated(tmp_path: Path, folder: int) -> None:
    write_files(folder, files(a="1"))
    (tmp_path / "..2").mkdir()
    (tmp_path / "..2" / "half").write_text("x")
    (tmp_path / "..new-link").symlink_to("..2")
    write_files(folder, files(a="2"))
    assert shown(tmp_path) == {"a": "2"}
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to a group")
@pytest.mark.parametrize(
    "volume",
    [
        {"secret": {"secretName": "s", "defaultMode": 0o400}},
        {"configMap": {"name": "c", "defaultMode": 0o400}},
        {"projected": {"defaultMode": 0o400, "sources": [{"secret": {"name": "s"}}]}},
        {
            "downwardAPI": {
                "defaultMode": 0o400,
                "items": [{"path": "k", "fieldRef": {"fieldPath": "metadata.name"}}],
            }
        },
    ],
)
@pytest.mark.parametrize("user", [None, 1234])
async def test_an_fs_group_can_read_the_files_of_a_volume(
    tmp_path: Path, volume: Document, user: int | None
) -> None:
    script = "cd /data; cat k > /dev/null && stat -Lc '%a %g' k; stat -Lc '%a %g' ..data; id -G"
    pod = shell(script, volumeMounts=[{"name": "v", "mountPath": "/data"}])
    context = {"fsGroup": 4321} | ({} if user is None else {"runAsUser": user})
    pod = with_spec(pod, volumes=[{"name": "v", **volume}], securityContext=context)
    own = 0 if user is None else user
    async with a_process_node(tmp_path) as node:
        await node.create(config_map(k="1"))
        await node.create(secret(k="1"))
        await node.run(pod)
        assert await node.output("p") == f"440 4321\n2755 4321\n{own} 4321\n"
