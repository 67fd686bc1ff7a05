"""Requests to a server whose controllers and node have not filled their caches yet.

Writes of that time have the same consequences as later ones.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest

from onejob.benchmarks.plane import a_job
from onejob.client.base import Delete, Patch, Selection
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.informers.slim_jobs import read_slim_job
from onejob.node.logs.keeping import kept_attempts, kept_pods
from onejob.node.options import LogRetention, NodeOptions
from onejob.node.runtime import RuntimeUnavailable
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.server import HttpsServer
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock

JOB = Key(JOBS, "default", "j")


async def open_plane(folder: Path) -> ControlPlane:
    return await ControlPlane.open(
        Settings(folder, NodeOptions(runtime="simulated")),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter()),
    )


async def documents(plane: ControlPlane, resource: str) -> list[dict[str, Any]]:
    listing = await plane.client.list(Selection(resource))
    return [msgspec.json.decode(document) for document in listing.documents]


async def is_complete(plane: ControlPlane) -> bool:
    return b'"Complete"' in await plane.client.get(JOB)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 (several things are waited for)
            await asyncio.sleep(0.02)


async def after_a_restart(
    folder: Path,
    write: Callable[[ControlPlane], Awaitable[object]],
    look: Callable[[ControlPlane], Awaitable[None]],
) -> None:
    """Write to a plane that is open and has not begun. It has a complete Job of three Pods."""
    plane = await open_plane(folder)
    await plane.begin()
    await plane.client.write(a_job("j", completions=3, parallelism=3))
    await asyncio.sleep(60)
    assert len(await documents(plane, PODS)) == 3
    await plane.stop()
    plane = await open_plane(folder)
    try:
        await write(plane)
        # No controller runs yet.
        await asyncio.sleep(60)
        await plane.begin()
        await asyncio.sleep(60)
        await look(plane)
        assert not plane.failed.done()
    finally:
        await plane.stop()


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
@pytest.mark.virtual_time
async def test_pods_of_a_job_that_is_deleted_early_go_too(tmp_path: Path, propagation: Any) -> None:
    async def look(plane: ControlPlane) -> None:
        assert await documents(plane, JOBS) == []
        assert await documents(plane, PODS) == []

    await after_a_restart(
        tmp_path, lambda plane: plane.client.write(Delete(JOB, propagation)), look
    )


@pytest.mark.virtual_time
async def test_pods_that_are_orphaned_early_stay(tmp_path: Path) -> None:
    async def look(plane: ControlPlane) -> None:
        assert await documents(plane, JOBS) == []
        pods = await documents(plane, PODS)
        assert len(pods) == 3
        assert all("ownerReferences" not in pod["metadata"] for pod in pods)

    await after_a_restart(tmp_path, lambda plane: plane.client.write(Delete(JOB, "Orphan")), look)


@pytest.mark.virtual_time
async def test_a_job_that_is_created_early_runs(tmp_path: Path) -> None:
    async def look(plane: ControlPlane) -> None:
        by_name = {job["metadata"]["name"]: job for job in await documents(plane, JOBS)}
        assert by_name["early"]["status"]["succeeded"] == 2
        assert by_name["j"]["status"]["succeeded"] == 3

    job = a_job("early", completions=2, parallelism=2)
    await after_a_restart(tmp_path, lambda plane: plane.client.write(job), look)


@pytest.mark.virtual_time
async def test_a_finished_job_that_is_given_a_ttl_early_expires(tmp_path: Path) -> None:
    async def look(plane: ControlPlane) -> None:
        assert await documents(plane, JOBS) == []
        assert await documents(plane, PODS) == []

    patch = Patch(JOB, b'{"spec":{"ttlSecondsAfterFinished":1}}', "merge")
    await after_a_restart(tmp_path, lambda plane: plane.client.write(patch), look)


@pytest.mark.virtual_time
async def test_caches_have_the_same_as_if_they_had_decoded_it_themselves(tmp_path: Path) -> None:
    """A document decoded for validation is not decoded again."""

    async def look(plane: ControlPlane) -> None:
        document = await plane.client.get(JOB)
        job = plane.informers.jobs.cache.get(JOB)
        assert type(job) is Job
        assert job == read_slim_job(document)
        assert seen == {pod: read_pod(await plane.client.get(pod)) for pod in seen}
        assert {type(pod) for pod in seen.values()} == {Pod}
        assert len(seen) == 3

    seen: dict[Key, Pod] = {}

    async def listen(plane: ControlPlane) -> None:
        plane.informers.pods.on_change(
            lambda deltas: seen.update((delta.key, delta.new) for delta in deltas if delta.new)
        )

    await after_a_restart(tmp_path, listen, look)


@pytest.mark.virtual_time
async def test_a_plane_that_never_began_can_be_stopped(tmp_path: Path) -> None:
    plane = await open_plane(tmp_path)
    await plane.client.write(a_job("j", completions=1, parallelism=1))
    await plane.stop()
    plane = await open_plane(tmp_path)
    assert len(await documents(plane, JOBS)) == 1
    await plane.stop()


async def test_the_logs_of_a_pod_that_is_deleted_early_are_kept(tmp_path: Path) -> None:
    retention = LogRetention(timedelta(days=1).total_seconds(), 10**6)
    options = NodeOptions(name="node", pid_namespace="off", kept_logs=retention)
    plane = await ControlPlane.start(Settings(tmp_path, options))
    job = a_job("j", completions=1, parallelism=1, command=("echo", "hello"))
    await plane.client.write(job)
    await until(partial(is_complete, plane))
    await plane.stop()
    plane = await ControlPlane.open(Settings(tmp_path, options))
    (pod,) = await documents(plane, PODS)
    await plane.client.write(Delete(Key(PODS, "default", pod["metadata"]["name"])))
    assert await documents(plane, PODS) == []
    await plane.begin()
    await plane.node.stop(end_pods=True)
    await plane.stop()
    ((_, folder),) = kept_pods(tmp_path)
    (log,) = kept_attempts(folder)["main"]
    assert "hello" in log.read_text()


class Held:
    """Servers whose controllers and nodes begin when the test releases them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.go = asyncio.Event()
        begin = ControlPlane.begin

        async def held(plane: ControlPlane) -> None:
            await self.go.wait()
            await begin(plane)

        patch.setattr(ControlPlane, "begin", held)

    def start(self) -> "asyncio.Task[HttpsServer]":
        return asyncio.create_task(
            HttpsServer.start(
                Settings(self.folder / "data", NodeOptions(runtime="simulated", name="node")),
                host="127.0.0.1",
                port=0,
                kubeconfig=self.folder / "kubeconfig",
            )
        )

    async def session(self) -> aiohttp.ClientSession:
        path = self.folder / "kubeconfig"

        async def is_written() -> bool:
            return path.exists()

        await until(is_written)
        connection = load_kubeconfig(path, SystemClock())
        credential = await connection.credentials.current()
        return aiohttp.ClientSession(
            connection.server,
            headers={"Authorization": credential.authorization},
            connector=aiohttp.TCPConnector(ssl=False),
        )


_PODS = "/api/v1/namespaces/default/pods"
_POD = {
    "metadata": {"name": "p"},
    "spec": {
        "restartPolicy": "Never",
        "nodeName": "node",
        "containers": [{"name": "main", "image": "none", "command": ["true"]}],
    },
}


async def test_a_server_answers_before_its_controllers_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(tmp_path, monkeypatch)
    starting = held.start()
    async with await held.session() as session:
        assert (await session.get("/readyz")).status == 200
        assert (await session.post(_PODS, json=_POD)).status == 201
        assert len((await (await session.get(_PODS)).json())["items"]) == 1
        # Requests that need the node wait for it.
        log = asyncio.create_task(session.get(f"{_PODS}/p/log"))
        page = asyncio.create_task(session.get("/ui/"))
        await asyncio.wait((log, page), timeout=0.3)
        assert not log.done()
        assert not page.done()
        assert not starting.done()
        held.go.set()
        assert (await log).status in (200, 400)
        assert (await page).status

        async def has_ended() -> bool:
            pod = await (await session.get(f"{_PODS}/p")).json()
            return bool(pod["status"]["phase"] == "Succeeded")

        await until(has_ended)
    await (await starting).stop()


async def test_a_server_whose_node_cannot_start_listens_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(plane: ControlPlane) -> None:
        raise RuntimeUnavailable("no such thing")

    monkeypatch.setattr(ControlPlane, "begin", unavailable)
    held = Held(tmp_path, monkeypatch)
    starting = held.start()
    async with await held.session() as session:
        assert (await session.get("/readyz")).status == 200
        held.go.set()
        with pytest.raises(RuntimeUnavailable, match="no such thing"):
            await starting
        with suppress(aiohttp.ClientError):
            answer = await session.get("/readyz")
            pytest.fail(f"answered with {answer.status}")
