"""Claims that wait, and the Pods that wait for them: the reasons are told."""

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.control_plane import Dependencies
from onejob.node.agent.claims import ClaimHolds
from onejob.node.options import NodeOptions
from onejob.objects.claims import CLAIMS, CLASSES, VOLUMES
from onejob.objects.meta import PODS
from onejob.objects.pod_spec import NodePod
from onejob.planning.claims.names import SELECTED_NODE
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Forbidden, Invalid
from tests.build import a_job, creation
from tests.claims.support import a_claim, a_class, a_volume, a_world, phase, using

SIMULATED = NodeOptions(runtime="simulated", name="here")


def a_simulation() -> Dependencies:
    return Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter(0.001))


async def test_a_claim_beyond_the_disk_says_so_and_is_bound_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.controllers.claims.controller._RETRY_SECONDS", 0.05)
    async with a_world(tmp_path) as world:
        await world.create(CLAIMS, _huge())
        message = await world.told("ProvisioningFailed")
        assert message.startswith("the claim requests 1048576Ti, but the file system of ")
        assert phase(await world.get(CLAIMS, "data")) == "Pending"
        await world.job("true")
        pod = await world.waiting_pod("pod has unbound immediate PersistentVolumeClaims")
        assert "has room for" in str(pod["status"]["conditions"])
        assert not world.volumes.exists() or list(world.volumes.iterdir()) == []
        await world.create(VOLUMES, a_volume(storage="9E", storageClassName="standard"))
        assert (await world.bound())["spec"]["volumeName"] == "disk"


def _huge() -> dict[str, object]:
    return a_claim(storage="1Ei")


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"storageClassName": "other"}, "ProvisioningFailed", '"other" not found'),
        ({"storageClassName": ""}, "FailedBinding", "no storage class is set"),
        ({"volumeMode": "Block"}, "ProvisioningFailed", "Block volumes are not provided"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "ProvisioningFailed", "with a selector"),
        (
            {"dataSource": {"kind": "PersistentVolumeClaim", "name": "b"}},
            "ProvisioningFailed",
            "from a dataSource",
        ),
        ({"storageClassName": "foreign"}, "ExternalProvisioning", "'example.com/disks'"),
        ({"storageClassName": "late"}, "WaitForFirstConsumer", "waiting for first consumer"),
        ({"volumeName": "absent"}, "FailedBinding", '"absent", which does not exist'),
    ],
)
async def test_a_pending_claim_tells_its_reason(
    tmp_path: Path, spec: dict[str, Any], reason: str, message: str
) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.create(CLASSES, a_class("foreign", provisioner="example.com/disks"))
        await world.create(CLASSES, a_class("late", volumeBindingMode="WaitForFirstConsumer"))
        await world.claim(**spec)
        assert message in await world.told(reason)
        assert phase(await world.get(CLAIMS, "data")) == "Pending"


_DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


@pytest.mark.virtual_time
async def test_a_claim_is_bound_to_the_smallest_static_volume_that_matches(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.create(VOLUMES, a_volume("large", storage="9Gi"))
        await world.create(VOLUMES, a_volume("small", storage="1Gi"))
        await world.create(VOLUMES, a_volume("tiny", storage="1Ki"))
        await world.create(VOLUMES, a_volume("shared", "ReadWriteMany", storage="1Gi"))
        await world.until(VOLUMES, "small", lambda volume: phase(volume) == "Available")
        await world.claim(storageClassName="")
        assert (await world.bound())["spec"]["volumeName"] == "small"
        await world.until(VOLUMES, "small", lambda volume: phase(volume) == "Bound")
        await world.delete(CLAIMS, "data")
        # Its policy is Retain.
        await world.until(VOLUMES, "small", lambda volume: phase(volume) == "Released")


@pytest.mark.virtual_time
async def test_a_claim_whose_volume_was_removed_is_lost(tmp_path: Path) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.create(VOLUMES, a_volume())
        await world.claim(storageClassName="")
        await world.bound()
        await world.delete(VOLUMES, "disk")
        assert "deletionTimestamp" in (await world.get(VOLUMES, "disk"))["metadata"], "protected"
        await world.patch(VOLUMES, "disk", {"metadata": {"finalizers": None}})
        await world.until(CLAIMS, "data", lambda claim: phase(claim) == "Lost")
        assert "lost its PersistentVolume" in await world.told("ClaimLost")


@pytest.mark.virtual_time
async def test_a_claim_that_waits_for_a_pod_is_bound_for_it(tmp_path: Path) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.create(CLASSES, a_class("late", volumeBindingMode="WaitForFirstConsumer"))
        await world.claim(storageClassName="late")
        await world.told("WaitForFirstConsumer")
        await world.job("true")
        await world.finished()
        claim = await world.bound()
        assert claim["metadata"]["annotations"][SELECTED_NODE] == "here"


@pytest.mark.virtual_time
async def test_a_pod_waits_until_its_claim_is_created(tmp_path: Path) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.job("true")
        await world.waiting_pod('0/1 nodes are available: persistentvolumeclaim "data" not found.')
        await world.claim()
        await world.finished()


@pytest.mark.virtual_time
async def test_read_write_once_pod_admits_one_pod_at_a_time(tmp_path: Path) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.claim(accessModes=["ReadWriteOncePod"])
        slow = {"metadata": {"annotations": {"onejob.dev/simulated-duration": "20"}}}
        template = {**using("data", "true"), **slow}
        for name in ("a", "b"):
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = {**slow["metadata"], "name": name}
            await world.create(PODS, pod)
        waiting = await world.waiting_pod("ReadWriteOncePod access mode")
        assert "nodeName" not in waiting["spec"]
        other = {"a": "b", "b": "a"}[waiting["metadata"]["name"]]
        assert phase(await world.get(PODS, other)) in ("Pending", "Running")
        name = waiting["metadata"]["name"]
        await world.until(PODS, name, lambda pod: phase(pod) == "Succeeded")
        assert phase(await world.get(PODS, other)) == "Succeeded"


@pytest.mark.virtual_time
async def test_a_new_default_class_is_assigned_to_a_claim_without_one(tmp_path: Path) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.create(CLASSES, a_class("standard", annotations={}))
        await world.claim()
        await world.told("FailedBinding")
        await world.create(CLASSES, a_class("mine", annotations=_DEFAULT))
        assert (await world.bound())["spec"]["storageClassName"] == "mine"


@pytest.mark.virtual_time
async def test_the_spec_of_a_claim_is_immutable_and_grows_only_by_leave_of_its_class(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, a_simulation(), node=SIMULATED) as world:
        await world.create(CLASSES, a_class("grows", allowVolumeExpansion=True))
        await world.claim()
        await world.bound()
        with pytest.raises(Invalid, match="spec is immutable after creation except"):
            await world.patch(CLAIMS, "data", {"spec": {"accessModes": ["ReadWriteMany"]}})
        with pytest.raises(Invalid, match=r"can not be less than status\.capacity"):
            await world.patch(CLAIMS, "data", {"spec": _requesting("1Ki")})
        with pytest.raises(Forbidden, match="must support resize"):
            await world.patch(CLAIMS, "data", {"spec": _requesting("2Mi")})
        await world.claim("large", storageClassName="grows")
        await world.bound("large")
        await world.patch(CLAIMS, "large", {"spec": _requesting("2Mi")})


def _requesting(storage: str) -> dict[str, object]:
    return {"resources": {"requests": {"storage": storage}}}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
async def test_a_pod_that_was_bound_by_its_creator_waits_for_its_claim(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
        await world.create(PODS, {**pod, **using("data", "true", nodeName="here")})
        assert 'persistentvolumeclaim "data" not found' in await world.told("FailedMount")
        await world.claim()
        await world.until(PODS, "p", lambda found: phase(found) == "Succeeded")


@pytest.mark.virtual_time
async def test_pods_that_wait_for_room_are_not_reconsidered_at_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    hold = ClaimHolds.hold

    def counted(holds: ClaimHolds, pod: NodePod) -> str:
        nonlocal calls
        calls += 1
        return hold(holds, pod)

    monkeypatch.setattr(ClaimHolds, "hold", counted)
    node = NodeOptions(runtime="simulated", name="here", capacity={"pods": "5"})
    async with a_world(tmp_path, a_simulation(), node=node) as world:
        await world.claim()
        await world.bound()
        many = a_job("j", template=using("data", "true"), completions=100, parallelism=100)
        await world.plane.client.write(creation(many))
        await world.finished()
    # When it is created, when it is placed, and when the reason of its wait is reported.
    assert calls <= 4 * 100
