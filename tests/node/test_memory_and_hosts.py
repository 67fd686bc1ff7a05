"""emptyDirs in memory and the Pod's own /etc/hosts, and the warnings where neither is possible."""

import os
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Create
from onejob.node.runtime import NodeContext
from onejob.node.setup.volumes import _memory_size
from onejob.objects.pod_spec import Container as ContainerView
from onejob.objects.pod_spec import EmptyDirVolume, NodePod, NodePodSpec, Resources
from tests.node.support import (
    Document,
    Node,
    a_process_node,
    needs_namespaces,
    shell,
    the_container,
    until_true,
    with_spec,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


async def run(path: Path, pod: Document, **settings: Any) -> tuple[str, list[tuple[str, str]]]:
    """Run a Pod; return its output and its events."""
    async with a_process_node(path, **settings) as node:
        ended = await node.run(pod)
        text = await node.output("p")
        assert ended["status"]["phase"] == "Succeeded", (text, the_container(ended))
        return text, await node.events("p")


def in_memory(script: str, **source: Any) -> Document:
    pod = shell(script, volumeMounts=[{"name": "v", "mountPath": "/data"}])
    volume = {"name": "v", "emptyDir": {"medium": "Memory", **source}}
    return with_spec(pod, volumes=[volume])


def mounts_below(path: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().split() if str(path) in line]


@needs_root
async def test_an_empty_dir_in_memory_is_a_tmpfs_that_its_containers_share(tmp_path: Path) -> None:
    pod = in_memory("cat /data/f; stat -fc %T /data; stat -c %a /data")
    container = pod["spec"]["containers"][0]
    init = {**container, "name": "i", "command": ["sh", "-c", "echo first > /data/f"]}
    pod = with_spec(pod, initContainers=[init])
    async with a_process_node(tmp_path) as node:
        await node.run(pod)
        assert await node.output("p") == "first\ntmpfs\n777\n"
        # Its memory is released with the Pod.
        await until_true(lambda: not mounts_below(tmp_path))


@needs_root
async def test_an_empty_dir_in_memory_is_given_to_the_fs_group(tmp_path: Path) -> None:
    pod = in_memory("touch /data/f && stat -c '%a %g' /data && stat -c %g /data/f")
    pod = with_spec(pod, securityContext={"runAsUser": 1234, "fsGroup": 4321})
    assert (await run(tmp_path, pod))[0] == "2777 4321\n4321\n"


@needs_root
async def test_an_empty_dir_in_memory_holds_no_more_than_its_limit(tmp_path: Path) -> None:
    script = "head -c 70000 /dev/zero > /data/f && exit 1; stat -fc '%b %S' /data"
    text, _ = await run(tmp_path, in_memory(script, sizeLimit="64Ki"))
    blocks, size = text.splitlines()[-1].split()
    assert int(blocks) * int(size) == 65536


@needs_root
async def test_an_empty_dir_in_memory_outlives_a_restart_of_its_container(tmp_path: Path) -> None:
    script = "if [ -e /data/f ]; then cat /data/f; else echo kept > /data/f; exit 1; fi"
    pod = in_memory(script)
    pod["spec"]["restartPolicy"] = "OnFailure"
    assert (await run(tmp_path, pod))[0] == "kept\n"


@pytest.mark.parametrize(
    ("limits", "size_limit", "size"),
    [
        ([], "0", 1 << 30),
        ([], "1Mi", 1 << 20),
        (["1Mi", "2Mi"], "0", 3 << 20),
        (["1Mi", "2Mi"], "2Mi", 2 << 20),
        (["2Gi"], "4Gi", 1 << 30),
        ([], "1", 4096),
    ],
)
def test_the_size_is_the_least_of_all_bounds(limits: list[str], size_limit: str, size: int) -> None:
    containers = tuple(
        ContainerView(resources=Resources(limits={"memory": limit})) for limit in limits
    )
    pod = NodePod(spec=NodePodSpec(containers=containers))
    node = NodeContext("here", "127.0.0.1", {"memory": 1 << 30})
    assert _memory_size(pod, EmptyDirVolume(medium="Memory", size_limit=size_limit), node) == size


@pytest.mark.skipif(os.geteuid() == 0, reason="root may mount")
async def test_memory_empty_dir_without_root_is_on_disk_with_event(tmp_path: Path) -> None:
    _, events = await run(tmp_path, in_memory("touch /data/f"))
    reason, message = events[0]
    assert reason == "NotAsAsked"
    assert "is stored on disk" in message


ALIASES = [
    {"ip": "203.0.113.7", "hostnames": ["one.example", "two.example"]},
    {"ip": "2001:db8::7", "hostnames": ["six.example"]},
]


@needs_namespaces
async def test_host_aliases_are_added_to_the_hosts_of_the_pod_alone(tmp_path: Path) -> None:
    before = Path("/etc/hosts").read_bytes()
    pod = with_spec(shell("cat /etc/hosts; getent hosts two.example"), hostAliases=ALIASES)
    text, events = await run(tmp_path, pod)
    assert "203.0.113.7\tone.example\ttwo.example\n2001:db8::7\tsix.example\n" in text
    assert before.decode() in text
    assert text.splitlines()[-1].split()[:2] == ["203.0.113.7", "one.example"]
    assert events == []
    assert Path("/etc/hosts").read_bytes() == before


@needs_namespaces
async def test_a_hosts_file_that_the_pod_mounts_itself_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("203.0.113.9 mine.example\n")
    pod = shell("cat /etc/hosts", volumeMounts=[{"name": "v", "mountPath": "/etc/hosts"}])
    pod = with_spec(pod, hostAliases=ALIASES, volumes=[
        {"name": "v", "hostPath": {"path": str(own)}}])  # fmt: skip
    assert (await run(tmp_path, pod))[0] == "203.0.113.9 mine.example\n"


async def test_host_aliases_without_mount_namespaces_are_ignored_with_event(
    tmp_path: Path,
) -> None:
    pod = with_spec(shell("true"), hostAliases=ALIASES)
    async with a_process_node(tmp_path, isolation=False) as node:
        await node.run(pod)
        reason, message = (await node.until_told("p"))[0]
        assert reason == "NotAsAsked"
        assert message.startswith("hostAliases are ignored")


async def _mounted_while_it_runs(node: Node, pod: Document, path: Path) -> list[str]:
    await node.create(pod)
    await node.until("p", lambda p: (path / "go").exists() or p["status"]["phase"] == "Running")
    mounted = mounts_below(path)
    (path / "go").touch()
    await node.until("p", lambda p: p["status"]["phase"] == "Succeeded")
    return mounted


@needs_root
async def test_secrets_are_files_in_memory_and_go_with_the_pod(tmp_path: Path) -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("secret", "projected", "config")]
    script = (
        f"while ! [ -e {tmp_path}/go ]; do sleep 0.05; done; "
        "cat /secret/k /projected/k; for v in secret projected config; do stat -fc %T /$v; done"
    )
    volumes = [
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "projected", "projected": {"sources": [{"secret": {"name": "s"}}]}},
        {"name": "config", "configMap": {"name": "c"}},
    ]
    pod = with_spec(shell(script, volumeMounts=mounts), volumes=volumes)
    async with a_process_node(tmp_path) as node:
        await node.client.write(
            Create("secrets", "default", b'{"metadata":{"name":"s"},"data":{"k":"eAo="}}')
        )
        await node.client.write(
            Create("configmaps", "default", b'{"metadata":{"name":"c"},"data":{"k":"v"}}')
        )
        mounted = await _mounted_while_it_runs(node, pod, tmp_path)
        lines = (await node.output("p")).splitlines()
        assert lines[:4] == ["x", "x", "tmpfs", "tmpfs"]
        # Volumes without secrets are on the disk of the data dir.
        assert len(mounted) == 2
        await until_true(lambda: not mounts_below(tmp_path))
