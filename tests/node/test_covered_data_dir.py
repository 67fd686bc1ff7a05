"""Volumes over a parent of the data dir, such as an emptyDir at /tmp."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.node.support import Document, a_process_node, needs_namespaces, shell, with_spec

pytestmark = needs_namespaces
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Pods as other users")


def a_pod_with(top: Path, script: str, first: Document, **spec: object) -> Document:
    """Return a Pod with `first` over the parent of the data dir and an emptyDir elsewhere."""
    mounts = [{"name": "top", "mountPath": str(top)}, {"name": "cache", "mountPath": "/cache"}]
    pod = shell(script, volumeMounts=mounts)
    volumes = [{"name": "top", **first}, {"name": "cache", "emptyDir": {}}]
    return with_spec(pod, volumes=volumes, **spec)


async def output_of(top: Path, pod: Document, **settings: object) -> str:
    (top / "data").mkdir()
    async with a_process_node(top / "data", **settings) as node:
        ended = await node.run(pod)
        assert ended["status"]["phase"] == "Succeeded", ended["status"]
        return await node.output("p")


WRITE_ALL = "pwd; ls -A; echo here > file; echo there > /cache/file; cat file /cache/file"


@pytest.mark.parametrize("read_only", [False, True])
async def test_container_starts_in_the_volume_over_its_folder(
    tmp_path: Path, read_only: bool
) -> None:
    pod = a_pod_with(tmp_path, WRITE_ALL, {"emptyDir": {}})
    said = await output_of(tmp_path, pod, host_read_only=read_only)
    assert said == f"{tmp_path}\nhere\nthere\n"
    assert os.listdir(tmp_path) == ["data"]


@needs_root
async def test_container_of_another_user_starts_in_the_volume_over_its_folder() -> None:
    identity = {"runAsUser": 65534}
    # Other users may not enter the folders of pytest.
    with TemporaryDirectory() as name:
        top = Path(name)
        pod = a_pod_with(top, WRITE_ALL, {"emptyDir": {}}, securityContext=identity)
        assert await output_of(top, pod) == f"{top}\nhere\nthere\n"


async def test_container_keeps_its_folder_where_a_host_path_shows_it(tmp_path: Path) -> None:
    host_path = {"hostPath": {"path": str(tmp_path)}}
    said = await output_of(
        tmp_path, a_pod_with(tmp_path, "pwd; echo x > file; cat file", host_path)
    )
    assert said.startswith(f"{tmp_path}/data/pods/scratch/")
    assert not (tmp_path / "file").exists()


async def test_exec_starts_in_working_dir_of_container(tmp_path: Path) -> None:
    script = "until [ -e probed ]; do sleep 0.05; done; cat probed"
    pod = a_pod_with(tmp_path, script, {"emptyDir": {}})
    probe = {"exec": {"command": ["sh", "-c", "pwd > probed"]}, "periodSeconds": 1}
    pod["spec"]["containers"][0]["readinessProbe"] = probe
    assert await output_of(tmp_path, pod) == f"{tmp_path}\n"
