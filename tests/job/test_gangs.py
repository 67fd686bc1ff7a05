"""Gang scheduling in a whole control plane: GenericWorkload and WorkloadWithJob."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Patch
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.gates import UnknownGate, parse_gates
from onejob.node.options import NodeOptions
from onejob.node.simulated import DURATION, EXIT_CODE
from onejob.objects.job import read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.planning.job.workload import pod_group_name, workload_document, workload_name
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Invalid, NotFound
from tests import build
from tests.job.terms import create, create_job, names

pytestmark = pytest.mark.virtual_time

GROUPS = "podgroups.scheduling.k8s.io"
WORKLOADS = "workloads.scheduling.k8s.io"
GANGS = "GenericWorkload=true"
JOB_GANGS = "GenericWorkload=true,WorkloadWithJob=true"
HOUR = {DURATION: "3600"}


@asynccontextmanager
async def a_plane(
    folder: Path, gates: str, *, pods: int = 3, **settings: Any
) -> AsyncIterator[ControlPlane]:
    """Run everything that `onejob serve` runs except HTTPS, with a node for so many Pods."""
    plane = await ControlPlane.start(
        Settings(
            data_dir=folder,
            node=NodeOptions(runtime="simulated", name="node", capacity={"pods": str(pods)}),
            gates=parse_gates(gates),
            **settings,
        ),
        Dependencies(
            virtual_clock(), Random(int(asyncio.get_running_loop().time())), LoopCommitter()
        ),
    )
    try:
        yield plane
    finally:
        await plane.stop()


def pod_group(name: str = "g", min_count: int = 3) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


def member(name: str, group: str = "g", **annotations: str) -> dict[str, Any]:
    return build.a_pod(
        name,
        metadata={"annotations": HOUR | annotations},
        schedulingGroup={"podGroupName": group},
    )


async def document(plane: ControlPlane, resource: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(
        await plane.client.get(Key(resource, "default", name))
    )
    return found


async def placed(plane: ControlPlane) -> list[str]:
    """Return the names of the Pods that have a node, sorted."""
    pods = [await document(plane, PODS, name) for name in await names(plane, PODS)]
    return sorted(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))


async def unscheduled_message(plane: ControlPlane, name: str) -> str:
    status = (await document(plane, PODS, name))["status"]
    (condition,) = [c for c in status["conditions"] if c["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    message: str = condition["message"]
    return message


async def test_pods_of_a_gang_start_once_its_quorum_exists(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        await create(plane, PODS, member("a"))
        await asyncio.sleep(5)
        assert 'waiting for the PodGroup "g"' in await unscheduled_message(plane, "a")
        await create(plane, GROUPS, pod_group())
        await create(plane, PODS, member("b"))
        await asyncio.sleep(400)
        assert await placed(plane) == []
        assert "only 2 exist" in await unscheduled_message(plane, "b")
        await create(plane, PODS, member("c"))
        await asyncio.sleep(5)
        assert await placed(plane) == ["a", "b", "c"]


async def test_gang_without_room_leaves_it_to_others(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        await create(plane, GROUPS, pod_group())
        await create(plane, PODS, build.a_pod("single", metadata={"annotations": HOUR}))
        for name in "abc":
            await create(plane, PODS, member(name))
        await asyncio.sleep(5)
        assert await placed(plane) == ["single"]
        assert "needs 3 Pods at once, but there is room for 2" in await unscheduled_message(
            plane, "a"
        )
        await plane.client.write(Delete(Key(PODS, "default", "single")))
        await asyncio.sleep(60)
        assert await placed(plane) == ["a", "b", "c"]


async def test_lower_min_count_lets_a_gang_start(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        await create(plane, GROUPS, pod_group(min_count=4))
        for name in "abcd":
            await create(plane, PODS, member(name))
        await asyncio.sleep(5)
        assert "can never run more than 3" in await unscheduled_message(plane, "a")
        patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        await plane.client.write(
            Patch(Key(GROUPS, "default", "g"), msgspec.json.encode(patch), "merge")
        )
        await asyncio.sleep(5)
        assert len(await placed(plane)) == 3


async def test_gang_that_waits_starts_after_a_restart(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS, pods=2) as plane:
        await create(plane, GROUPS, pod_group())
        for name in "abc":
            await create(plane, PODS, member(name))
        await asyncio.sleep(5)
        assert await placed(plane) == []
    async with a_plane(tmp_path, GANGS, pods=3) as plane:
        await asyncio.sleep(5)
        assert await placed(plane) == ["a", "b", "c"]


async def test_interrupted_gang_is_completed_before_other_pods(tmp_path: Path) -> None:
    """The state that a kill leaves between two bindings: one member is bound, two are not."""
    async with a_plane(tmp_path, GANGS, pods=1) as plane:
        await create(plane, GROUPS, pod_group())
        bound = member("a")
        bound["spec"]["nodeName"] = "node"
        await create(plane, PODS, bound)
        await create(plane, PODS, build.a_pod("other", metadata={"annotations": HOUR}))
        for name in "bc":
            await create(plane, PODS, member(name))
        await asyncio.sleep(5)
        assert await placed(plane) == ["a"]
    async with a_plane(tmp_path, GANGS, pods=3) as plane:
        await asyncio.sleep(5)
        assert await placed(plane) == ["a", "b", "c"]


async def test_groups_are_neither_served_nor_considered_without_the_gate(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "") as plane:
        with pytest.raises(NotFound):
            await create(plane, GROUPS, pod_group())
        await create(plane, PODS, member("a"))
        await asyncio.sleep(1)
        assert await placed(plane) == ["a"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "spec.schedulingPolicy: Required value"),
        ({"schedulingPolicy": {}}, "exactly one of"),
        ({"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}, "exactly one of"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "greater than or equal to 1"),
    ],
)
async def test_invalid_pod_group_is_refused(
    tmp_path: Path, spec: dict[str, Any], text: str
) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        with pytest.raises(Invalid, match=text):
            await create(plane, GROUPS, pod_group() | {"spec": spec})


async def test_policy_of_a_pod_group_is_immutable(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        await create(plane, GROUPS, pod_group())
        patch: dict[str, Any] = {"spec": {"schedulingPolicy": {"gang": None, "basic": {}}}}
        with pytest.raises(Invalid, match="field is immutable"):
            await plane.client.write(
                Patch(Key(GROUPS, "default", "g"), msgspec.json.encode(patch), "merge")
            )


async def test_invalid_scheduling_group_is_refused(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        with pytest.raises(Invalid, match=r"spec.schedulingGroup.podGroupName"):
            await create(plane, PODS, member("a", "Not A Name"))


# --- Jobs ------------------------------------------------------------------------------------


def gang_job(**spec: Any) -> dict[str, Any]:
    return {
        "parallelism": 3,
        "completions": 3,
        "scheduling": {"schedulingPolicy": {"gang": {}}},
        "template": build.template(metadata={"annotations": HOUR}),
        **spec,
    }


async def test_job_gets_a_workload_and_a_pod_group_and_starts_as_a_gang(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS, pods=2) as plane:
        await create_job(plane, "job", **gang_job())
        await asyncio.sleep(5)
        (workload,) = await names(plane, WORKLOADS)
        (group,) = await names(plane, GROUPS)
        stored = await document(plane, GROUPS, group)
        assert stored["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert stored["spec"]["workloadRef"]["workloadName"] == workload
        assert len(await names(plane, PODS)) == 3
        assert await placed(plane) == []
    async with a_plane(tmp_path, JOB_GANGS, pods=3) as plane:
        await asyncio.sleep(5)
        assert len(await placed(plane)) == 3
        assert await names(plane, GROUPS) == [group]


async def test_job_starts_with_fewer_pods_if_min_count_permits(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS, pods=2) as plane:
        fewer = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        await create_job(plane, "job", **gang_job(scheduling=fewer))
        await asyncio.sleep(5)
        assert len(await placed(plane)) == 2


async def test_failed_pod_of_a_gang_is_replaced(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        template = build.template(metadata={"annotations": {DURATION: "5", EXIT_CODE: "1"}})
        key = await create_job(plane, "job", **gang_job(template=template, backoffLimit=3))
        await asyncio.sleep(600)
        status = (await document(plane, JOBS, key.name))["status"]
        assert status["failed"] > 3


async def test_job_without_scheduling_gets_a_basic_group(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS, pods=2) as plane:
        await create_job(plane, "job", **gang_job(scheduling=None))
        await asyncio.sleep(5)
        (group,) = await names(plane, GROUPS)
        policy = (await document(plane, GROUPS, group))["spec"]["schedulingPolicy"]
        assert policy == {"basic": {}}
        assert len(await placed(plane)) == 2


async def test_min_count_follows_the_parallelism_of_the_job(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS, pods=2) as plane:
        key = await create_job(plane, "job", **gang_job(completions=9))
        await asyncio.sleep(5)
        assert await placed(plane) == []
        await plane.client.write(Patch(key, b'{"spec": {"parallelism": 2}}', "merge"))
        await asyncio.sleep(60)
        assert len(await placed(plane)) == 2
        (workload,) = await names(plane, WORKLOADS)
        (template,) = (await document(plane, WORKLOADS, workload))["spec"]["podGroupTemplates"]
        assert template["schedulingPolicy"] == {"gang": {"minCount": 2}}


async def test_job_that_started_without_the_gate_stays_without_a_group(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GANGS) as plane:
        await create_job(plane, "job", **gang_job())
        await asyncio.sleep(5)
        assert len(await placed(plane)) == 3
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        await plane.client.write(
            Patch(Key(JOBS, "default", "job"), b'{"spec": {"parallelism": 2}}', "merge")
        )
        await asyncio.sleep(60)
        assert await names(plane, GROUPS) == []


async def test_pod_group_of_the_template_is_kept(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        await create(plane, GROUPS, pod_group(min_count=2))
        template = build.template(
            metadata={"annotations": HOUR}, schedulingGroup={"podGroupName": "g"}
        )
        await create_job(plane, "job", **gang_job(scheduling=None, template=template))
        await asyncio.sleep(5)
        assert await names(plane, WORKLOADS) == []
        assert len(await placed(plane)) == 3


async def test_groups_are_deleted_with_their_job(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        key = await create_job(plane, "job", **gang_job())
        await asyncio.sleep(5)
        await plane.client.write(Delete(key, propagation="Background"))
        await asyncio.sleep(120)
        assert await names(plane, WORKLOADS) == await names(plane, GROUPS) == []


async def test_workload_of_a_killed_controller_is_completed(tmp_path: Path) -> None:
    """The state that a kill leaves between the Workload and the PodGroup."""
    async with a_plane(tmp_path, JOB_GANGS, controllers=frozenset()) as plane:
        key = await create_job(plane, "job", **gang_job())
        job = read_job(await plane.client.get(key))
        document = msgspec.json.encode(workload_document(job))
        await plane.client.write(Create(WORKLOADS, "default", document))
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        await asyncio.sleep(5)
        assert await names(plane, WORKLOADS) == [workload_name(job)]
        assert await names(plane, GROUPS) == [pod_group_name(job)]
        assert len(await placed(plane)) == 3


async def test_suspended_job_starts_as_a_gang_once_it_is_resumed(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS, pods=2) as plane:
        key = await create_job(plane, "job", **gang_job(suspend=True))
        await asyncio.sleep(5)
        groups = await names(plane, GROUPS)
        await plane.client.write(Patch(key, b'{"spec": {"suspend": false}}', "merge"))
        await asyncio.sleep(5)
        assert len(await names(plane, PODS)) == 3
        assert await placed(plane) == []
        assert await names(plane, GROUPS) == groups != []


@pytest.mark.parametrize(
    ("scheduling", "text"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 4}}}, "must not be greater than parallelism"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "greater than or equal to 1"),
        ({"schedulingPolicy": {}}, "exactly one of"),
        ({"disruptionMode": {"all": {}}}, "requires the policy gang"),
        ({"disruptionMode": {"all": {}, "single": {}}}, "exactly one of"),
    ],
)
async def test_invalid_scheduling_of_a_job_is_refused(
    tmp_path: Path, scheduling: dict[str, Any], text: str
) -> None:
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        with pytest.raises(Invalid, match=text):
            await create_job(plane, "job", **gang_job(scheduling=scheduling))


async def test_only_min_count_of_a_jobs_scheduling_may_change(tmp_path: Path) -> None:
    async with a_plane(tmp_path, JOB_GANGS) as plane:
        key = await create_job(plane, "job", **gang_job())
        basic = b'{"spec": {"scheduling": {"schedulingPolicy": {"gang": null, "basic": {}}}}}'
        with pytest.raises(Invalid, match="field is immutable"):
            await plane.client.write(Patch(key, basic, "merge"))
        fewer = b'{"spec": {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}}}'
        await plane.client.write(Patch(key, fewer, "merge"))


def test_gate_of_jobs_requires_the_gate_of_groups() -> None:
    with pytest.raises(UnknownGate, match="requires GenericWorkload=true"):
        parse_gates("WorkloadWithJob=true")
