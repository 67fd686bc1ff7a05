"""Controllers of cluster mode against the API of a onejob server, over HTTPS."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import CoroutineType
from typing import Any

import msgspec

from onejob.client.base import Create, Patch, Selection
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import LoopClock, SystemClock
from onejob.cluster import manager as manager_module
from onejob.cluster.election import LEASES
from onejob.cluster.manager import DEFAULT_MANAGER, Manager, Settings
from onejob.cluster.probes import ProbeServer
from onejob.objects.job import Job, read_job
from onejob.objects.meta import EVENTS, JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.leadership import Timing, read_lease
from onejob.planning.names import AFTER_ANNOTATION
from tests import build
from tests.cli.command_line import CommandLine
from tests.harness import HttpPlane, ensure_namespace, running_http
from tests.job.terms import template
from tests.scripted_cluster import ScriptedNode

QUICK = Timing(3, 2, 0.1)
LEASE = Key(LEASES, "default", "onejob.dev-job-controller")


def a_job(name: str, manager: str | None = DEFAULT_MANAGER, **spec: Any) -> dict[str, Any]:
    annotations = spec.pop("annotations", {})
    managed = {"managedBy": manager} if manager else {}
    return build.a_job(name, metadata={"annotations": annotations}, **managed, **spec)


@asynccontextmanager
async def managing(plane: HttpPlane, settings: Settings) -> AsyncIterator[Manager]:
    connection = load_kubeconfig(plane.kubeconfig, SystemClock())
    manager = Manager(settings, connection)
    await manager.check()
    stopping = asyncio.Event()
    task = asyncio.create_task(manager.run(stopping))
    try:
        yield manager
        stopping.set()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def on_a_server(
    folder: Path,
    test: Callable[[HttpPlane], Coroutine[Any, Any, None]],
    script: Callable[[Pod], int | None] = lambda pod: 0,
) -> None:
    async with running_http(folder) as plane, asyncio.timeout(60):
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop, SystemClock().now() - timedelta(seconds=loop.time()))
        node = ScriptedNode(plane.client, clock, script, runs_seconds=0.01)
        task = asyncio.create_task(node.run())
        try:
            await test(plane)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def create(plane: HttpPlane, document: dict[str, Any], namespace: str = "default") -> Key:
    await plane.client.write(Create(JOBS, namespace, msgspec.json.encode(document)))
    return Key(JOBS, namespace, document["metadata"]["name"])


async def job(plane: HttpPlane, key: Key) -> Job:
    return read_job(await plane.client.get(key))


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - remote state without an event
        await asyncio.sleep(0.01)


async def finished(plane: HttpPlane, key: Key) -> Job:
    async def is_finished() -> bool:
        return (await job(plane, key)).finished

    await until(is_finished)
    return await job(plane, key)


async def pods(plane: HttpPlane) -> list[Pod]:
    return [read_pod(d) for d in (await plane.client.list(Selection(PODS))).documents]


async def test_jobs_that_ask_for_the_manager_are_run_and_others_left_alone(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        others = [
            await create(plane, a_job("builtin", None)),
            await create(plane, a_job("other", "example.com/other")),
        ]
        ours = await create(plane, a_job("ours", completions=5, parallelism=3))
        async with managing(plane, Settings()) as manager:
            status = (await finished(plane, ours)).status
            assert (status.succeeded, status.failed) == (5, 0)
            for key in others:
                assert (await job(plane, key)).status.start_time is None
            assert manager.readiness() == (200, "ok, leading\n")
            assert "onejob_controller_leading 1" in manager.metrics.exposition()

            async def is_told() -> bool:
                found = (await plane.client.list(Selection(EVENTS))).documents
                events = [msgspec.json.decode(document) for document in found]
                return any(event["reason"] == "Completed" for event in events) and all(
                    event["source"]["component"] == DEFAULT_MANAGER for event in events
                )

            await until(is_told)
        assert len(await pods(plane)) == 5

    await on_a_server(tmp_path, test)


async def test_jobs_wait_for_their_dependencies(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        async with managing(plane, Settings()):
            after = {AFTER_ANNOTATION: "first,second:Finished"}
            last = await create(plane, a_job("last", annotations=after))
            doomed = await create(plane, a_job("doomed", annotations={AFTER_ANNOTATION: "second"}))

            async def is_held() -> bool:
                return (await job(plane, last)).spec.suspend

            await until(is_held)
            first = await create(plane, a_job("first"))
            await finished(plane, first)
            assert not (await job(plane, last)).finished
            await create(plane, a_job("second", backoffLimit=0))
            assert (await finished(plane, last)).condition_is_true("Complete")
            condition = (await finished(plane, doomed)).finished_condition
            assert condition is not None
            assert condition.reason == "DependencyFailed"
            assert "job second failed" in condition.message

    def script(pod: Pod) -> int:
        return 1 if pod.metadata.name.startswith("second") else 0

    await on_a_server(tmp_path, test, script)


async def test_only_the_named_namespaces_are_looked_at(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        for namespace in ("a", "b", "c"):
            await ensure_namespace(plane.client, namespace)
        keys = [await create(plane, a_job("job"), namespace) for namespace in ("a", "b", "c")]
        async with managing(plane, Settings(namespaces=("a", "b"))):
            for key in keys[:2]:
                assert (await finished(plane, key)).status.succeeded == 1
        assert (await job(plane, keys[2])).status.start_time is None

    await on_a_server(tmp_path, test)


async def test_extension_fields_are_read_from_annotations(tmp_path: Path) -> None:
    ends: list[str] = []

    def three_failures(pod: Pod) -> int:
        ends.append(pod.metadata.uid)
        return int(len(ends) <= 3)

    async def test(plane: HttpPlane) -> None:
        annotations = {"onejob.dev/backoff-seconds": "0", "onejob.dev/failed-pods-limit": "1"}
        key = await create(plane, a_job("job", annotations=annotations))
        async with managing(plane, Settings()):
            assert (await finished(plane, key)).status.failed == 3

            async def one_is_kept() -> bool:
                return sum(pod.status.phase == "Failed" for pod in await pods(plane)) == 1

            await until(one_is_kept)

    await on_a_server(tmp_path, test, three_failures)


async def test_pods_with_a_time_to_live_are_deleted_and_finished_jobs_left_to_the_cluster(
    tmp_path: Path,
) -> None:
    async def test(plane: HttpPlane) -> None:
        metadata = {
            "name": "bare",
            "annotations": {"onejob.dev/ttl-seconds-after-finished": "0"},
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template()["spec"]}
        key = await create(plane, a_job("job", ttlSecondsAfterFinished=0))
        async with managing(plane, Settings()):
            await plane.client.write(Create(PODS, "default", msgspec.json.encode(pod)))
            await finished(plane, key)

            async def is_gone() -> bool:
                return all(pod.metadata.name != "bare" for pod in await pods(plane))

            await until(is_gone)
        assert (await job(plane, key)).finished

    await on_a_server(tmp_path, test)


async def test_a_leader_that_stops_hands_over_at_once(tmp_path: Path) -> None:
    settings = Settings(leader_elect=True, timing=Timing(60, 40, 0.1))

    async def test(plane: HttpPlane) -> None:
        async with managing(plane, settings) as first:

            async def first_leads() -> bool:
                return first.leading

            await until(first_leads)
            async with managing(plane, settings) as second:
                assert second.readiness() == (200, "ok, not the leader\n")
                assert not second.leading
        # Replicas that did not lead ended first, so the leader's release is the last write.
        lease = read_lease(await plane.client.get(LEASE))
        assert lease.spec.holder_identity == ""
        key = await create(plane, a_job("job"))
        async with managing(plane, settings):
            await finished(plane, key)

    await on_a_server(tmp_path, test)


async def test_a_cancelled_leader_leaves_no_controller_running(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        settings = Settings(leader_elect=True, timing=QUICK)
        leader = Manager(settings, load_kubeconfig(plane.kubeconfig, SystemClock()))
        task = asyncio.create_task(leader.run(asyncio.Event()))
        try:

            async def leads() -> bool:
                return leader.leading

            await until(leads)
            assert "_Controllers.run" in cluster_tasks()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert cluster_tasks() == []

    await on_a_server(tmp_path, test)


def cluster_tasks() -> list[str]:
    """Return the names of the unfinished coroutines of cluster mode that run as tasks."""
    folder = str(Path(manager_module.__file__).parent)
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    return [
        found.__qualname__
        for found in coroutines
        if isinstance(found, CoroutineType) and found.cr_code.co_filename.startswith(folder)
    ]


async def test_a_replica_takes_over_from_one_that_lost_the_lease(tmp_path: Path) -> None:
    settings = Settings(leader_elect=True, timing=QUICK)

    async def test(plane: HttpPlane) -> None:
        async with managing(plane, settings) as manager:

            async def leads() -> bool:
                return manager.leading

            await until(leads)
            stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}
            await plane.client.write(Patch(LEASE, json.dumps(stolen).encode(), "merge"))

            async def has_stopped() -> bool:
                return not manager.leading

            await until(has_stopped)
            # The other holder never renews it: it is free again after its second.
            await until(leads)
            key = await create(plane, a_job("job"))
            assert (await finished(plane, key)).status.succeeded == 1

    await on_a_server(tmp_path, test)


async def get(port: int, target: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_probe_server_serves_only_probes() -> None:
    server = ProbeServer({"/healthz": lambda: (200, "ok\n"), "/readyz": lambda: (503, "no\n")})
    port = await server.start("127.0.0.1", 0)
    assert await get(port, "/healthz?verbose") == (200, "ok\n")
    assert await get(port, "/healthz", "HEAD") == (200, "")
    assert await get(port, "/readyz") == (503, "no\n")
    assert (await get(port, "/secrets"))[0] == 404
    assert (await get(port, "/healthz", "POST"))[0] == 405
    assert (await get(port, "/healthz and more"))[0] == 400
    await server.stop()


async def test_the_command_runs_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        line = CommandLine(tmp_path)
        process = await asyncio.create_subprocess_exec(
            *line.arguments(
                "controller", "--kubeconfig", str(plane.kubeconfig), "--leader-elect",
                "--metrics-listen", "127.0.0.1:0",
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=line.environment,
        )  # fmt: skip
        assert process.stdout is not None
        found = re.search(r":(\d+)/metrics", (await process.stdout.readline()).decode())
        assert found is not None
        assert DEFAULT_MANAGER in (await process.stdout.readline()).decode()
        key = await create(plane, a_job("job", completions=3))
        assert (await finished(plane, key)).status.succeeded == 3
        port = int(found[1])
        assert await get(port, "/readyz") == (200, "ok, leading\n")
        assert (await get(port, "/healthz"))[0] == 200
        assert "job_controller_jobs_finished_total" in (await get(port, "/metrics"))[1]
        assert read_lease(await plane.client.get(LEASE)).spec.holder_identity
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert "Traceback" not in errors.decode()
        assert read_lease(await plane.client.get(LEASE)).spec.holder_identity == ""

    await on_a_server(tmp_path, test)
