"""Records of ended Pods: written with their removal, bounded, and removed with their Job."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.history import records
from onejob.api.job_records import JobRecords
from onejob.client.base import Create, Delete, Selection
from onejob.control_plane import ControlPlane
from onejob.node.simulated import EXIT_CODE
from onejob.objects.meta import JOBS, NAMESPACES, PODS, Key
from onejob.planning.history import PodRecord
from tests.queue import support
from tests.queue.support import a_job, a_plane, create

pytestmark = pytest.mark.virtual_time


async def run_job(plane: ControlPlane, name: str = "j", **spec: Any) -> str:
    """Run a Job of simulated Pods to its end; return its UID."""
    await create(plane, a_job(name, **spec))
    await asyncio.sleep(1)
    await support.until_finished(plane)
    return (await support.job(plane, name)).metadata.uid


async def pod_names(plane: ControlPlane) -> list[str]:
    listing = await plane.client.list(Selection(PODS))
    return [msgspec.json.decode(pod)["metadata"]["name"] for pod in listing.documents]


async def delete_pods(plane: ControlPlane) -> list[str]:
    names = await pod_names(plane)
    for name in names:
        await plane.client.write(Delete(Key(PODS, "default", name), grace_seconds=0))
    return names


async def history(plane: ControlPlane, name: str = "j") -> list[PodRecord]:
    found = JobRecords(plane.service, None)
    document = await found.history(await found.job("default", name), None)
    return msgspec.convert(document["pods"], list[PodRecord])


async def dropped(plane: ControlPlane, name: str = "j") -> int:
    found = JobRecords(plane.service, None)
    number: int = (await found.history(await found.job("default", name), None))["dropped"]
    return number


async def test_history_is_the_same_before_and_after_removal(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await run_job(plane, completions=3, parallelism=3, completionMode="Indexed")
        before = await history(plane)
        assert [pod.index for pod in before] == [0, 1, 2]
        await delete_pods(plane)
        after = await history(plane)
        assert [msgspec.structs.replace(pod, deleted=False, log="") for pod in after] == [
            msgspec.structs.replace(pod, log="") for pod in before
        ]
        assert all(pod.deleted for pod in after)


async def test_failed_attempts_are_recorded_with_their_exit_code(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        creation = a_job("j", completions=1, completionMode="Indexed", backoffLimitPerIndex=1)
        document = msgspec.json.decode(creation.document)
        document["spec"]["template"]["metadata"]["annotations"][EXIT_CODE] = "7"
        await create(plane, Create(JOBS, "default", msgspec.json.encode(document)))
        await asyncio.sleep(1)
        await support.until_finished(plane)
        await delete_pods(plane)
        found = await history(plane)
        assert [(pod.phase, pod.exit_code, pod.attempt) for pod in found] == [
            ("Failed", 7, 0),
            ("Failed", 7, 1),
        ]


async def test_acknowledged_removal_has_its_record_after_a_crash(tmp_path: Path) -> None:
    """The files are copied at the moment of the acknowledgement, as kill -9 would leave them."""
    running, crashed = tmp_path / "running", tmp_path / "crashed"
    async with a_plane(running) as plane:
        await run_job(plane, completions=4, parallelism=4)
        for number, name in enumerate(await pod_names(plane)):
            await plane.client.write(Delete(Key(PODS, "default", name), grace_seconds=0))
            shutil.copytree(running, crashed / str(number))
    for number in range(4):
        async with a_plane(crashed / str(number), controllers=frozenset()) as plane:
            found = await history(plane)
            assert len(found) == 4
            assert sum(pod.deleted for pod in found) == number + 1


async def test_only_newest_records_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_SLOTS", 2)
    monkeypatch.setattr(records, "_PER_CHUNK", 3)
    async with a_plane(tmp_path) as plane:
        uid = await run_job(plane, completions=10, parallelism=10)
        names = await delete_pods(plane)
        kept = {pod.name for pod in plane.service.history.deleted_pods("default", uid)}
        assert kept == set(names[6:])
        assert plane.store.count(records.HISTORIES) == 2
        assert await dropped(plane) == 6
    async with a_plane(tmp_path) as plane:
        # Continues where the earlier process stopped.
        assert await dropped(plane) == 6
        await run_job(plane, "other")
        assert {pod.name for pod in await history(plane)} == kept


async def test_total_number_of_records_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MAX_CHUNKS", 2)
    async with a_plane(tmp_path) as plane:
        for name in ("a", "b", "c"):
            await run_job(plane, name)
        await delete_pods(plane)
        assert plane.store.count(records.HISTORIES) == 2
        assert sorted([await dropped(plane, name) for name in ("a", "b", "c")]) == [0, 0, 1]
        # Room is made by the removal of a Job.
        full = [name for name in ("a", "b", "c") if not await dropped(plane, name)]
        await plane.client.write(Delete(Key(JOBS, "default", full[0]), "Background"))
        await run_job(plane, "d")
        await delete_pods(plane)
        assert [pod.deleted for pod in await history(plane, "d")] == [True]
        assert await dropped(plane, "d") == 0


async def test_removed_job_leaves_no_records(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await run_job(plane, completions=30, parallelism=30)
        await delete_pods(plane)
        assert plane.store.count(records.HISTORIES) == 2
        await plane.client.write(Delete(Key(JOBS, "default", "j"), "Background"))
        assert plane.store.count(records.HISTORIES) == 0
        assert plane.store.count(records.ENDS) == 0, "no Job awaits it"


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_pods_removed_with_their_job_are_not_recorded(tmp_path: Path, policy: Any) -> None:
    async with a_plane(tmp_path) as plane:
        await run_job(plane, completions=30, parallelism=30)
        kinds: set[str] = set()
        stage = plane.store.stage

        def staged(key: Key, *rest: Any, **options: Any) -> Any:
            kinds.add(key.resource)
            return stage(key, *rest, **options)

        plane.store.stage = staged  # type: ignore[method-assign]
        await plane.client.write(Delete(Key(JOBS, "default", "j"), policy))
        await asyncio.sleep(60)
        assert await pod_names(plane) == []
        assert PODS in kinds
        assert records.HISTORIES not in kinds


async def test_removed_namespace_leaves_no_records(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await create(plane, Create(NAMESPACES, "", msgspec.json.encode(document)))
        await create(plane, a_job("j", namespace="team"))
        await asyncio.sleep(1)
        await support.until_finished(plane)
        (name,) = await pod_names(plane)
        await plane.client.write(Delete(Key(PODS, "team", name), grace_seconds=0))
        assert plane.store.count(records.HISTORIES) == 1
        await plane.client.write(Delete(Key(NAMESPACES, "", "team")))
        await asyncio.sleep(120)
        assert plane.store.count(records.HISTORIES) == 0


async def test_full_disk_loses_neither_pod_nor_record(tmp_path: Path) -> None:
    """A rolled-back removal is repeated, though its record was staged before."""
    async with a_plane(tmp_path) as plane:
        uid = await run_job(plane, completions=2, parallelism=2)
        first, second = await pod_names(plane)
        await plane.client.write(Delete(Key(PODS, "default", first), grace_seconds=0))
        # As after a rollback: the cached chunk is not the stored one.
        chunk = plane.service.history._newest[uid]
        plane.service.history._newest[uid] = records._Chunk(chunk.number, [], chunk.revision + 99)
        await plane.client.write(Delete(Key(PODS, "default", second), grace_seconds=0))
        assert {pod.name for pod in await history(plane) if pod.deleted} == {first, second}
