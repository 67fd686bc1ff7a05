"""Leftovers of deleted Jobs in the memory and on the disk of a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.client.base import Client, Create, Delete
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.node.simulated import DURATION, EXIT_CODE
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, NAMESPACES, PODS, Key
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import ApiError, NotFound
from tests.holdings import Holdings, holdings
from tests.node.support import until_true

JOBS_A_ROUND = 60
#: Long enough for TTLs, for Events, and for history that watches may resume from.
AN_AGE_SECONDS = 2 * 3600

#: Containers that may keep entries of deleted objects, since something else bounds them, by a part
#: of the path.
BOUNDED = (
    # Recently used, up to 4,096; of each kind of event up to nine messages.
    "._orphans._gone",
    "ecorder._allowances._items",
    "ecorder._similar._items",
    "ecorder._written._items",
    # Last written status, of a limited number of Pods.
    "._quick._pods",
    # The newest changes, up to 8,192, and one mark per period.
    "._fanout._recent",
    "._history._marks",
    # Commit times of revisions, of up to 100,000 seconds.
    ".store._times.",
    # The newest batches of events, up to 4 MiB of documents.
    "._reading.shared.",
    # Common parts of the Pods of a Job, of up to 16 Jobs.
    ".writes.templates",
    # Timers of present waiters.
    "._loop._scheduled",
)


@pytest.mark.virtual_time
async def test_nothing_remembers_jobs_that_are_gone(tmp_path: Path) -> None:
    found = []
    async with a_plane(tmp_path) as plane:
        for number in range(3):
            await live_through_jobs(plane.client, f"round-{number}")
            await asyncio.sleep(AN_AGE_SECONDS)
            assert [plane.store.count(kind) for kind in (JOBS, PODS, EVENTS)] == [0, 0, 0]
            found.append(holdings(plane))
    first, _, last = found
    assert len(first) > 50, "the way into the control plane is lost"
    assert grown(first, last) == {}


@pytest.mark.virtual_time
async def test_a_cronjob_and_a_namespace_leave_nothing_behind(tmp_path: Path) -> None:
    found = []
    async with a_plane(tmp_path) as plane:
        for number in range(3):
            await live_in_a_namespace(plane.client, f"round-{number}")
            await asyncio.sleep(AN_AGE_SECONDS)
            found.append(holdings(plane))
    first, _, last = found
    assert grown(first, last) == {}


async def test_real_pods_that_are_gone_leave_no_files(tmp_path: Path) -> None:
    """Neither logs nor anything else, except empty folders that the next Pods will use.

    In real time, with processes.
    """
    pods = tmp_path / "pods"

    def folders() -> set[str]:
        return {path.name for path in pods.iterdir()} - {"scratch"}

    settings = Settings(tmp_path, NodeOptions(name="node", pods_end_with_server=True))
    plane = await ControlPlane.start(settings)
    try:
        for number in range(3):
            await plane.client.write(Create(JOBS, "default", _talker(f"talker-{number}")))
        await until_true(folders)
        await until_true(lambda: not any(map(plane.store.count, (JOBS, PODS))))
        await until_true(lambda: not folders())
        left = [path for path in pods.rglob("*") if not path.is_dir()]
        assert left == []
    finally:
        await plane.stop()


def grown(before: Holdings, after: Holdings) -> dict[str, tuple[int, int]]:
    return {
        path: (before.get(path, 0), size)
        for path, size in after.items()
        if size > before.get(path, 0) and not any(part in path for part in BOUNDED)
    }


@asynccontextmanager
async def a_plane(folder: Path) -> AsyncIterator[ControlPlane]:
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated", name="node")),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter(0.001)),
    )
    try:
        yield plane
    finally:
        await plane.stop()


async def live_through_jobs(client: Client, prefix: str) -> None:
    """Run Jobs that succeed, fail or are stopped, and are deleted by TTL or by hand."""
    names = [f"{prefix}-{number}" for number in range(JOBS_A_ROUND)]
    creations = [Create(JOBS, "default", _job(name, n)) for n, name in enumerate(names)]
    for result in await client.write_many(creations):
        assert not isinstance(result, ApiError), result
    await asyncio.sleep(30)
    for number, name in enumerate(names):
        if not number % 3:
            how = "Foreground" if number % 2 else "Background"
            await client.write(Delete(Key(JOBS, "default", name), how))  # type: ignore[arg-type]


def _job(name: str, number: int) -> bytes:
    annotations = {EXIT_CODE: "1"} if not number % 5 else {}
    if not number % 7:
        annotations[DURATION] = "1000"
    spec: dict[str, Any] = {
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 1,
        "completionMode": "NonIndexed" if number % 2 else "Indexed",
        "template": {"metadata": {"annotations": annotations}, "spec": _POD},
    }
    if number % 3:
        spec["ttlSecondsAfterFinished"] = 60
    if not number % 4:
        spec["activeDeadlineSeconds"] = 10**7
    return _document("batch/v1", "Job", name, spec)


def _talker(name: str) -> bytes:
    container = {"name": "main", "image": "x", "command": ["sh", "-c", "echo hello; sleep 0.2"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {"template": {"spec": pod}, "ttlSecondsAfterFinished": 0}
    return _document("batch/v1", "Job", name, spec)


async def live_in_a_namespace(client: Client, namespace: str) -> None:
    await client.write(Create(NAMESPACES, "", _document("v1", "Namespace", namespace)))
    template = {"spec": {"template": {"spec": _POD}}}
    for name in ("often", "seldom"):
        schedule = "* * * * *" if name == "often" else "0 0 1 1 *"
        document = _document(
            "batch/v1", "CronJob", name, {"schedule": schedule, "jobTemplate": template}
        )
        await client.write(Create(CRONJOBS, namespace, document))
    await asyncio.sleep(600)
    await client.write(Delete(Key(NAMESPACES, "", namespace)))
    await asyncio.sleep(60)
    try:
        await client.get(Key(NAMESPACES, "", namespace))
    except NotFound:
        return
    raise AssertionError(f"{namespace} is still there")


_POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}


def _document(api_version: str, kind: str, name: str, spec: dict[str, Any] | None = None) -> bytes:
    return msgspec.json.encode(
        {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec or {}}
    )
