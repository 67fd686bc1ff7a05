"""Deadline for Pods that wait to be started, on a whole control plane in virtual time."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Selection
from onejob.control_plane import ControlPlane, Settings
from onejob.informers.cache import Delta
from onejob.node.options import NodeOptions
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.virtual_time import run_virtual
from tests import build
from tests.queue.support import a_plane as a_simulated_plane

CONDITION = "onejob.dev/PendingDeadlineExceeded"


def a_plane(folder: Path) -> AbstractAsyncContextManager[ControlPlane]:
    return a_simulated_plane(folder)


def a_job(deadline: str | None, *, cpu: str = "100000", **spec: Any) -> Create:
    annotations = {"onejob.dev/simulated-duration": "1000"}
    if deadline is not None:
        annotations["onejob.dev/pending-deadline-seconds"] = deadline
    greedy = build.container(resources={"requests": {"cpu": cpu}})
    template = build.template(greedy, metadata={"annotations": annotations})
    return build.creation(build.a_job("job", **{"backoffLimit": 0, **spec}, template=template))


async def pods(plane: ControlPlane) -> list[dict[str, Any]]:
    listing = await plane.client.list(Selection(PODS))
    return [msgspec.json.decode(document) for document in listing.documents]


async def conditions(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    job = msgspec.json.decode(await plane.client.get(Key(JOBS, "default", "job")))
    return {one["type"]: one for one in job["status"].get("conditions", ())}


@pytest.mark.virtual_time
async def test_a_pod_without_room_fails_when_its_time_is_over_and_its_job_with_it(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        await plane.client.write(a_job("60"))
        await asyncio.sleep(58)
        (pod,) = await pods(plane)
        assert pod["status"]["phase"] == "Pending"
        await asyncio.sleep(5)
        (pod,) = await pods(plane)
        status = pod["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "PendingDeadlineExceeded")
        assert "Insufficient cpu" in status["message"]
        assert {one["type"] for one in status["conditions"]} >= {CONDITION, "PodScheduled"}
        failed = (await conditions(plane))["Failed"]
        assert failed["reason"] == "BackoffLimitExceeded"


@pytest.mark.virtual_time
async def test_a_failure_policy_can_tell_such_pods(tmp_path: Path) -> None:
    rule = {"action": "FailJob", "onPodConditions": [{"type": CONDITION, "status": "True"}]}
    async with a_plane(tmp_path) as plane:
        await plane.client.write(a_job("5", backoffLimit=6, podFailurePolicy={"rules": [rule]}))
        await asyncio.sleep(10)
        assert (await conditions(plane))["Failed"]["reason"] == "PodFailurePolicy"


def test_pods_that_start_or_have_no_deadline_are_left_alone(tmp_path: Path) -> None:
    async def started() -> None:
        async with a_plane(tmp_path) as plane:
            await plane.client.write(a_job("5", cpu="1"))
            await asyncio.sleep(100)
            (pod,) = await pods(plane)
            assert pod["status"]["phase"] == "Running"

    async def without() -> None:
        async with a_plane(tmp_path / "other") as plane:
            await plane.client.write(a_job(None))
            await asyncio.sleep(1000)
            (pod,) = await pods(plane)
            assert pod["status"]["phase"] == "Pending"

    run_virtual(started())
    run_virtual(without())


@pytest.mark.virtual_time
async def test_a_restart_does_not_prolong_the_wait(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await plane.client.write(a_job("60"))
        await asyncio.sleep(50)
    async with a_plane(tmp_path) as plane:
        await asyncio.sleep(15)
        (pod,) = await pods(plane)
        assert pod["status"]["phase"] == "Failed"


async def test_a_pod_that_the_node_cannot_start_fails_too(tmp_path: Path) -> None:
    """In real time, with a runtime that waits for a ConfigMap that never exists."""
    document = msgspec.json.decode(a_job("1", cpu="1m").document)
    container = document["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["true"], "envFrom": [{"configMapRef": {"name": "absent"}}]}
    node = NodeOptions(name="node", pods_end_with_server=True)
    plane = await ControlPlane.start(Settings(tmp_path, node))
    finished = asyncio.Event()

    def see(deltas: Sequence[Delta[Job]]) -> None:
        if any(delta.new is not None and delta.new.finished for delta in deltas):
            finished.set()

    plane.informers.jobs.on_change(see)
    try:
        await plane.client.write(Create(JOBS, "default", msgspec.json.encode(document)))
        await asyncio.wait_for(finished.wait(), 30)
        status = (await pods(plane))[0]["status"]
    finally:
        await plane.stop()
    assert (status["phase"], status["reason"]) == ("Failed", "PendingDeadlineExceeded")
    assert 'configmap "absent" not found' in status["message"]
