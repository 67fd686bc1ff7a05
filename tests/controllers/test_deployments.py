"""Deployments, ReplicaSets and addresses of Services on a whole control plane, in virtual time."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Patch, Propagation, Selection
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.node.simulated import DURATION
from onejob.objects.deployment import DEPLOYMENTS, REPLICA_SETS
from onejob.objects.meta import EVENTS, PODS, SERVICES, Key
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock

pytestmark = pytest.mark.virtual_time

LABELS = {"app": "web"}
WEB = Key(DEPLOYMENTS, "default", "web")
SLICES = "endpointslices.discovery.k8s.io"
Document = dict[str, Any]


@dataclass
class World:
    plane: ControlPlane

    async def all(self, resource: str) -> list[Document]:
        page = await self.plane.client.list(Selection(resource))
        return [msgspec.json.decode(document) for document in page.documents]

    async def get(self, key: Key) -> Document:
        document: Document = msgspec.json.decode(await self.plane.client.get(key))
        return document

    async def create(self, resource: str, document: Document) -> None:
        body = msgspec.json.encode(document)
        await self.plane.client.write(Create(resource, "default", body))

    async def patch(self, key: Key, body: Document, subresource: str = "") -> None:
        patch = msgspec.json.encode(body)
        await self.plane.client.write(Patch(key, patch, "merge", subresource))

    async def delete(self, key: Key, propagation: Propagation = "Background") -> None:
        await self.plane.client.write(Delete(key, propagation))

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - what holds is a state of the API
                await asyncio.sleep(0.1)

    async def rolled_out(self) -> bool:
        document = await self.get(WEB)
        status, wanted = document.get("status") or {}, document["spec"]["replicas"]
        return bool(
            status.get("observedGeneration") == document["metadata"]["generation"]
            and status.get("updatedReplicas", 0) == status.get("replicas", 0) == wanted
            and status.get("availableReplicas", 0) == wanted
        )


@asynccontextmanager
async def a_world(folder: Path, **settings: Any) -> AsyncIterator[World]:
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated", name="node"), **settings),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter()),
    )
    try:
        yield World(plane)
    finally:
        await plane.stop()


def a_template(image: str = "one", *, seconds: int = 10**6) -> Document:
    return {
        "metadata": {"labels": LABELS, "annotations": {DURATION: str(seconds)}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }


def a_deployment(**spec: Any) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": LABELS},
        "spec": {"selector": {"matchLabels": LABELS}, "template": a_template(), **spec},
    }


def progressing(document: Document) -> tuple[str, str]:
    conditions = document["status"]["conditions"]
    (found,) = [each for each in conditions if each["type"] == "Progressing"]
    return found["status"], found["reason"]


async def test_replicas_run_and_are_replaced(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(replicas=3))
        await world.until(world.rolled_out)
        (replica_set,) = await world.all(REPLICA_SETS)
        assert replica_set["metadata"]["ownerReferences"][0]["name"] == "web"
        assert replica_set["status"]["availableReplicas"] == 3
        document = await world.get(WEB)
        assert progressing(document) == ("True", "NewReplicaSetAvailable")
        assert document["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        pods = await world.all(PODS)
        await world.delete(Key(PODS, "default", pods[0]["metadata"]["name"]))
        await asyncio.sleep(5)
        uids = {pod["metadata"]["uid"] for pod in await world.all(PODS)}
        assert len(uids) == 3
        assert pods[0]["metadata"]["uid"] not in uids


async def test_rolling_update_stays_within_its_limits(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        update = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
        await world.create(DEPLOYMENTS, a_deployment(replicas=4, strategy=update))
        await world.until(world.rolled_out)
        counts: set[tuple[int, int]] = set()

        async def watch() -> bool:
            pods = [
                pod for pod in await world.all(PODS) if not pod["metadata"].get("deletionTimestamp")
            ]
            ready = [
                pod
                for pod in pods
                if {"type": "Ready", "status": "True"}.items()
                <= next(
                    (c for c in pod["status"].get("conditions", []) if c["type"] == "Ready"), {}
                ).items()
            ]
            counts.add((len(pods), len(ready)))
            return await world.rolled_out()

        await world.patch(WEB, {"spec": {"template": a_template("two")}})
        await world.until(watch)
        assert max(count for count, _ in counts) <= 5
        assert min(ready for _, ready in counts) >= 3
        assert {pod["spec"]["containers"][0]["image"] for pod in await world.all(PODS)} == {"two"}
        sizes = sorted(each["spec"]["replicas"] for each in await world.all(REPLICA_SETS))
        assert sizes == [0, 4]
        revision = (await world.get(WEB))["metadata"]["annotations"]
        assert revision["deployment.kubernetes.io/revision"] == "2"


async def test_recreate_never_mixes_templates(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(replicas=2, strategy={"type": "Recreate"}))
        await world.until(world.rolled_out)
        mixtures: set[frozenset[str]] = set()

        async def watch() -> bool:
            pods = await world.all(PODS)
            mixtures.add(frozenset(pod["spec"]["containers"][0]["image"] for pod in pods))
            return await world.rolled_out()

        await world.patch(WEB, {"spec": {"template": a_template("two")}})
        await world.until(watch)
        assert mixtures <= {frozenset(), frozenset({"one"}), frozenset({"two"})}
        assert frozenset({"two"}) in mixtures


async def test_roll_back_reuses_the_replica_set_and_history_is_limited(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(revisionHistoryLimit=1))
        await world.until(world.rolled_out)
        (first,) = await world.all(REPLICA_SETS)
        for image in ("two", "one"):
            await world.patch(WEB, {"spec": {"template": a_template(image)}})
            await world.until(world.rolled_out)
        sets = {each["metadata"]["name"]: each for each in await world.all(REPLICA_SETS)}
        again = sets[first["metadata"]["name"]]
        assert again["metadata"]["uid"] == first["metadata"]["uid"]
        annotations = again["metadata"]["annotations"]
        assert annotations["deployment.kubernetes.io/revision"] == "3"
        assert annotations["deployment.kubernetes.io/revision-history"] == "1"
        await world.patch(WEB, {"spec": {"template": a_template("three")}})
        await world.until(world.rolled_out)
        await asyncio.sleep(5)
        assert len(await world.all(REPLICA_SETS)) == 2


async def test_scaling_and_pausing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(replicas=1))
        await world.until(world.rolled_out)
        await world.patch(WEB, {"spec": {"replicas": 3}})
        await world.until(world.rolled_out)
        await world.patch(WEB, {"spec": {"paused": True, "template": a_template("two")}})
        await world.patch(WEB, {"spec": {"replicas": 2}})
        await asyncio.sleep(5)
        assert {pod["spec"]["containers"][0]["image"] for pod in await world.all(PODS)} == {"one"}
        assert len(await world.all(PODS)) == 2
        assert progressing(await world.get(WEB)) == ("Unknown", "DeploymentPaused")
        await world.patch(WEB, {"spec": {"paused": False}})
        await world.until(world.rolled_out)
        assert {pod["spec"]["containers"][0]["image"] for pod in await world.all(PODS)} == {"two"}
        await world.patch(WEB, {"spec": {"replicas": 0}})
        await asyncio.sleep(5)
        assert await world.all(PODS) == []


async def test_progress_deadline_passes_if_pods_never_become_ready(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        spec = {"replicas": 1, "minReadySeconds": 60, "progressDeadlineSeconds": 90}
        # The container ends again and again before it counts as available.
        await world.create(DEPLOYMENTS, a_deployment(**spec, template=a_template(seconds=20)))
        await asyncio.sleep(80)
        assert progressing(await world.get(WEB))[0] == "True"
        await asyncio.sleep(300)
        document = await world.get(WEB)
        assert progressing(document) == ("False", "ProgressDeadlineExceeded")
        assert document["status"].get("availableReplicas", 0) == 0


async def test_min_ready_seconds_delay_availability(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(minReadySeconds=30))
        await asyncio.sleep(20)
        status = (await world.get(WEB))["status"]
        assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (1, 0)
        await asyncio.sleep(20)
        assert await world.rolled_out()


async def test_deletion_removes_everything_and_orphans_are_adopted(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(replicas=2))
        await world.until(world.rolled_out)
        before = {pod["metadata"]["uid"] for pod in await world.all(PODS)}
        await world.delete(WEB, "Orphan")
        await asyncio.sleep(5)
        (replica_set,) = await world.all(REPLICA_SETS)
        assert not replica_set["metadata"].get("ownerReferences")
        await world.delete(Key(REPLICA_SETS, "default", replica_set["metadata"]["name"]), "Orphan")
        await asyncio.sleep(5)
        assert await world.all(REPLICA_SETS) == []
        await world.create(DEPLOYMENTS, a_deployment(replicas=2))
        await world.until(world.rolled_out)
        # The new ReplicaSet has the same name and selector, and adopts the Pods.
        assert {pod["metadata"]["uid"] for pod in await world.all(PODS)} == before
        await world.delete(WEB, "Foreground")
        await asyncio.sleep(5)
        for resource in (DEPLOYMENTS, REPLICA_SETS, PODS):
            assert await world.all(resource) == []


async def test_a_relabelled_pod_is_released_and_replaced(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment())
        await world.until(world.rolled_out)
        (pod,) = await world.all(PODS)
        key = Key(PODS, "default", pod["metadata"]["name"])
        await world.patch(key, {"metadata": {"labels": {"app": "other"}}})
        await asyncio.sleep(5)
        assert not (await world.get(key))["metadata"].get("ownerReferences")
        assert len(await world.all(PODS)) == 2


async def test_pods_that_are_denied_are_reported_and_retried(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        await world.create("resourcequotas", quota)
        await world.create(DEPLOYMENTS, a_deployment(replicas=2))
        await asyncio.sleep(10)
        document = await world.get(WEB)
        failures = {each["type"]: each for each in document["status"]["conditions"]}
        assert failures["ReplicaFailure"]["reason"] == "FailedCreate"
        assert "exceeded quota" in failures["ReplicaFailure"]["message"]
        assert "FailedCreate" in [event["reason"] for event in await world.all(EVENTS)]
        await world.patch(Key("resourcequotas", "default", "q"), {"spec": {"hard": {"pods": "5"}}})
        await world.until(world.rolled_out)
        conditions = [each["type"] for each in (await world.get(WEB))["status"]["conditions"]]
        assert sorted(conditions) == ["Available", "Progressing"]


async def test_pods_that_fail_at_once_are_replaced_more_and_more_slowly(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment())
        await world.until(world.rolled_out)
        for _ in range(4):
            for pod in await world.all(PODS):
                if pod["status"]["phase"] != "Failed":
                    key = Key(PODS, "default", pod["metadata"]["name"])
                    failed = {"status": {"phase": "Failed", "reason": "Evicted"}}
                    await world.patch(key, failed, "status")
            await asyncio.sleep(1)
        # One replacement is due at once only after a Pod that had been available.
        assert len(await world.all(PODS)) <= 2
        await asyncio.sleep(60)
        assert await world.rolled_out()


async def test_restart_continues_a_roll_out(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(DEPLOYMENTS, a_deployment(replicas=3))
        await world.until(world.rolled_out)
        await world.patch(WEB, {"spec": {"template": a_template("two")}})
    async with a_world(tmp_path) as world:
        await world.until(world.rolled_out)
        images = {pod["spec"]["containers"][0]["image"] for pod in await world.all(PODS)}
        assert images == {"two"}
        assert len(await world.all(PODS)) == 3


async def test_services_get_the_addresses_of_ready_pods(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        ports = [
            {"name": "https", "port": 443, "targetPort": "webhook"},
            {"name": "plain", "port": 80, "targetPort": 8080},
        ]
        spec = {"selector": LABELS, "ports": ports}
        await world.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
        template = a_template()
        template["spec"]["containers"][0]["ports"] = [{"name": "webhook", "containerPort": 9443}]
        await world.create(DEPLOYMENTS, a_deployment(replicas=2, template=template))
        await world.until(world.rolled_out)
        await asyncio.sleep(2)
        (subset,) = (await world.get(Key("endpoints", "default", "web")))["subsets"]
        assert [address["ip"] for address in subset["addresses"]] == ["127.0.0.1"] * 2
        assert {port["name"]: port["port"] for port in subset["ports"]} == {
            "https": 9443,
            "plain": 8080,
        }
        (piece,) = await world.all(SLICES)
        assert piece["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
        assert [each["conditions"]["ready"] for each in piece["endpoints"]] == [True, True]
        await world.patch(WEB, {"spec": {"replicas": 0}})
        await asyncio.sleep(5)
        assert "subsets" not in await world.get(Key("endpoints", "default", "web"))
        assert [each.get("endpoints") or [] for each in await world.all(SLICES)] == [[]]
        await world.delete(Key(SERVICES, "default", "web"))
        await asyncio.sleep(5)
        assert await world.all("endpoints") == []
        assert await world.all(SLICES) == []


_AT_REST = """
import asyncio, sys
from pathlib import Path

from onejob.benchmarks.plane import a_job
from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions
from onejob.objects.meta import JOBS, Key

PACKAGES = ("onejob.controllers.deployments", "onejob.controllers.endpoints",
            "onejob.planning.deployment", "onejob.planning.endpoints", "onejob.objects.deployment")

async def main(folder):
    node = NodeOptions(runtime="simulated", pods_end_with_server=True)
    plane = await ControlPlane.start(Settings(folder, node))
    await plane.client.write(a_job("j", completions=1, parallelism=1))
    while b'"Complete"' not in await plane.client.get(Key(JOBS, "default", "j")):
        await asyncio.sleep(0.01)
    print([name for name in sys.modules if name.startswith(PACKAGES)])
    await plane.stop()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_server_without_deployments_imports_nothing_of_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AT_REST, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "[]\n"


async def test_nothing_is_written_without_a_deployment_or_selecting_service(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await world.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
        template = a_template()
        await world.create(PODS, {**template, "metadata": {**template["metadata"], "name": "p"}})
        await asyncio.sleep(5)
        assert await world.all("endpoints") == []
        assert await world.all(SLICES) == []
