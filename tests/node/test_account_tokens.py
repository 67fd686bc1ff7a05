"""Service-account tokens in Pods, at the path that client libraries read."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Selection
from onejob.control_plane import ControlPlane, Dependencies, Front, Settings
from onejob.node.images import Images
from onejob.node.options import NodeOptions
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.process.runtime_settings import ProcessSettings
from onejob.node.runtime import NodeContext, Runtime, RuntimeTraits
from onejob.node.setup.volume_refresh import VolumeRefresh
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import NodePod
from onejob.planning.pod.account_volume import ACCOUNT_FOLDER
from tests.node.support import Document, Node, needs_namespaces, shell, with_spec

ROOT_CA = "a certificate"


@asynccontextmanager
async def a_plane(
    folder: Path, *, isolation: bool | None = None, api_url: str = "https://127.0.0.1:1"
) -> AsyncIterator[tuple[ControlPlane, Node]]:
    """Run a server that issues tokens; its Pods are processes."""
    (folder / "pki").mkdir(mode=0o700)
    options = NodeOptions(pid_namespace="off", pods_end_with_server=True)

    def runtime(context: NodeContext) -> Runtime:
        settings = ProcessSettings(
            context, {"PATH": os.environ["PATH"]}, options, Images(), isolation=isolation
        )
        return ProcessRuntime(folder, world.clock, settings)

    world = Dependencies(runtime=runtime)
    settings = Settings(folder, options, with_access=True)
    plane = await ControlPlane.start(settings, world, Front(root_ca=ROOT_CA, api_url=api_url))
    try:
        await until_there(plane, Key("configmaps", "default", "kube-root-ca.crt"))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker"}}
        body = msgspec.json.encode(account)
        await plane.client.write(Create("serviceaccounts", "default", body))
        yield plane, Node(plane.client, plane.node)
    finally:
        await plane.stop()


async def until_there(plane: ControlPlane, key: Key) -> None:
    async with asyncio.timeout(60):
        while plane.store.get(key) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def worker(script: str) -> Document:
    return with_spec(shell(script), serviceAccountName="worker")


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


@needs_namespaces
async def test_a_pod_finds_token_certificate_namespace_and_server(tmp_path: Path) -> None:
    script = (
        f"cd {ACCOUNT_FOLDER}; cat token; echo; cat ca.crt; echo; cat namespace; echo; "
        "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; "
        "env | grep ^KUBERNETES | sort | tr '\\n' ' '"
    )
    async with a_plane(tmp_path) as (plane, node):
        ended = await node.run(worker(script))
        token, certificate, namespace, server, all_ = (await node.output("p")).splitlines()
        assert (certificate, namespace, server) == (ROOT_CA, "default", "127.0.0.1:1")
        assert all_.split() == [
            "KUBERNETES_PORT=tcp://127.0.0.1:1",
            "KUBERNETES_PORT_1_TCP=tcp://127.0.0.1:1",
            "KUBERNETES_PORT_1_TCP_ADDR=127.0.0.1",
            "KUBERNETES_PORT_1_TCP_PORT=1",
            "KUBERNETES_PORT_1_TCP_PROTO=tcp",
            "KUBERNETES_SERVICE_HOST=127.0.0.1",
            "KUBERNETES_SERVICE_PORT=1",
            "KUBERNETES_SERVICE_PORT_HTTPS=1",
        ]
        bound = claims(token)["kubernetes.io"]
        assert bound["serviceaccount"]["name"] == "worker"
        assert bound["pod"] == {"name": "p", "uid": ended["metadata"]["uid"]}
        assert bound["node"]["name"] == plane.node.node_name
    assert not Path(ACCOUNT_FOLDER).exists()


@needs_namespaces
async def test_a_pod_without_a_token_has_neither_folder_nor_mounts(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as (_, node):
        await node.run(shell(f"ls {ACCOUNT_FOLDER} 2>&1 || echo none"))
        assert (await node.output("p")).endswith("none\n")


async def test_missing_mount_namespaces_are_reported_by_event_and_condition(tmp_path: Path) -> None:
    async with a_plane(tmp_path, isolation=False) as (plane, node):
        ended = await node.run(worker(f"ls -d {ACCOUNT_FOLDER} 2>/dev/null; true"))
        assert ended["status"]["phase"] == "Succeeded", "it does not wait"
        assert await node.output("p") == ""
        assert any("mount namespaces" in text for _, text in await node.until_told("p"))
        listing = await plane.client.list(Selection("nodes"))
        (found,) = [msgspec.json.decode(document) for document in listing.documents]
        conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
        assert conditions["TokensUnavailable"] == "True"
    assert not os.path.lexists(ACCOUNT_FOLDER)


@needs_namespaces
async def test_a_refresh_writes_another_token(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as (plane, node):
        script = f"cd {ACCOUNT_FOLDER}; cat token; echo; a=$(cat token); "
        script += 'while [ "$(cat token)" = "$a" ]; do sleep 0.05; done; cat token; echo'
        made = await node.create(worker(script))
        await node.until("p", lambda pod: pod["status"].get("phase") == "Running")
        await node.until_output("p", ".")
        pod = msgspec.json.decode(await plane.client.get(Key(PODS, "default", "p")), type=NodePod)
        assert isinstance(plane.node.runtime, ProcessRuntime)
        await plane.node.runtime.refresh_volumes(pod)
        await node.finished("p")
        first, second = (await node.output("p")).splitlines()
        assert first != second
        assert claims(second)["kubernetes.io"]["pod"]["uid"] == made["metadata"]["uid"]


async def test_a_pod_waits_until_the_server_listens(tmp_path: Path) -> None:
    async with a_plane(tmp_path, api_url="") as (plane, node):
        await node.create(worker("true"))
        waits = await node.until("p", lambda pod: pod["status"].get("containerStatuses"))
        (status,) = waits["status"]["containerStatuses"]
        assert status["state"]["waiting"]["message"] == "the API server is not listening yet"
        plane.api_url = "https://127.0.0.1:1"


class CountsRefreshes:
    """Runtime that only refreshes volumes, and counts it."""

    traits = RuntimeTraits()

    def __init__(self) -> None:
        self.at: list[float] = []

    async def refresh_volumes(self, pod: NodePod) -> None:
        self.at.append(asyncio.get_running_loop().time())


@pytest.mark.virtual_time
async def test_tokens_are_renewed_when_four_fifths_of_their_life_are_over() -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    volume = {"name": "v", "projected": {"sources": [source]}}
    pod = msgspec.convert({"metadata": {"uid": "u"}, "spec": {"volumes": [volume]}}, NodePod)
    runtime = CountsRefreshes()
    refresh = VolumeRefresh(runtime, lambda pod, reason, message: None)  # type: ignore[arg-type]
    refresh.follow(pod)
    await asyncio.sleep(1500)
    assert runtime.at == [480, 960, 1440]
    refresh.forget("u")
    await asyncio.sleep(1500)
    assert len(runtime.at) == 3


@pytest.mark.virtual_time
async def test_a_clock_that_jumped_has_tokens_renewed_at_once() -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    volumes = [{"name": "v", "projected": {"sources": [source]}}]
    with_token = msgspec.convert({"metadata": {"uid": "u"}, "spec": {"volumes": volumes}}, NodePod)
    plain = [{"name": "v", "configMap": {"name": "c"}}]
    without = msgspec.convert({"metadata": {"uid": "w"}, "spec": {"volumes": plain}}, NodePod)
    runtime = CountsRefreshes()
    refresh = VolumeRefresh(runtime, lambda pod, reason, message: None)  # type: ignore[arg-type]
    refresh.follow(with_token)
    refresh.follow(without)
    await asyncio.sleep(100)
    refresh.clock_jumped()
    await asyncio.sleep(479)
    assert runtime.at == [100]
    await asyncio.sleep(2)
    assert runtime.at == [100, 580], "and the next time a whole share of its life later"
    refresh.close()
