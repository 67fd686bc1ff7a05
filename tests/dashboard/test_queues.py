"""Data of the dashboard's queue and mirror pages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Create
from onejob.control_plane import ControlPlane
from onejob.controllers.queueing.config import write_limits
from onejob.dashboard.queues import Queues
from onejob.objects.meta import JOBS
from onejob.planning.mirror.names import MANAGER, TARGET, TARGET_LABEL
from onejob.planning.queue.limits import LIMITS_KEY, QUEUE_LABEL, read_limits
from tests.server_support import a_plane
from tests.ui.demo import a_job

pytestmark = pytest.mark.virtual_time


async def _create(plane: ControlPlane, resource: str, document: dict[str, Any]) -> None:
    await plane.client.write(Create(resource, "default", json.dumps(document).encode()))


async def test_concurrent_requests_share_one_read_with_own_permissions(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await write_limits(plane.client, read_limits("gpu=1,namespace/other=2"))
        for name in ("first", "second"):
            job = a_job(name, "sleep 600")
            job["metadata"]["labels"] = {QUEUE_LABEL: "gpu"}
            lasts = {"onejob.dev/simulated-duration": "600"}
            job["spec"]["template"]["metadata"] = {"annotations": lasts}
            await _create(plane, JOBS, job)
            await asyncio.sleep(1)
        queues = Queues(plane.client, plane.clock)
        everything, *_ = await asyncio.gather(
            *(queues.queue("", lambda key: True) for _ in range(20))
        )
        assert queues.made == 1
        assert [limit["scope"] for limit in everything["limits"]] == ["gpu", "namespace/other"]
        own = await queues.queue("default", lambda key: True)
        assert [limit["scope"] for limit in own["limits"]] == ["gpu"]
        assert [(job["name"], job["place"]) for job in own["jobs"]] == [
            ("first", 0),
            ("second", 1),
        ]
        assert own["jobs"][1]["why"] == "queue gpu: limit reached"
        none = await queues.queue("other", lambda key: True)
        assert (none["limits"], none["jobs"]) == ([], [])


async def test_unreadable_limits_are_reported(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        queues = Queues(plane.client, plane.clock)
        assert (await queues.queue("", lambda key: True))["problem"] == ""
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "onejob-queues"},
            "data": {LIMITS_KEY: "gpu=many"},
        }
        create = Create("configmaps", "kube-system", json.dumps(config_map).encode())
        await plane.client.write(create)
        await asyncio.sleep(60)
        problem = (await queues.queue("", lambda key: True))["problem"]
        assert problem.startswith("configmap kube-system/onejob-queues: ")


async def test_a_target_is_shown_with_its_jobs_and_without_its_credentials(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        job = a_job("there", "true", managedBy=MANAGER)
        job["metadata"]["annotations"] = {TARGET: "prod"}
        await _create(plane, JOBS, job)
        await _create(plane, JOBS, a_job("here", "true", suspend=True))
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "prod", "labels": {TARGET_LABEL: ""}},
            "stringData": {"kubeconfig": "password: swordfish"},
        }
        await _create(plane, "secrets", secret)
        found = await Queues(plane.client, plane.clock).mirrors("default")
        (target,) = found["targets"]
        assert (target["name"], target["jobs"], target["unfinished"]) == ("prod", 1, 1)
        assert target["state"] == "InvalidKubeconfig"
        assert "swordfish" not in json.dumps(found)
