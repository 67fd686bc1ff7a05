"""Concurrent changes between two steps of the controller."""

import asyncio
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
import pytest

from onejob.client.base import Bind, Create, Delete, Op, Patch, Result, Written
from onejob.gates import FeatureGates
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod
from onejob.planning.job.claiming import REMOVE_TRACKING_PATCH
from onejob.planning.names import TRACKING
from onejob.wire.errors import ApiError, Conflict, Forbidden, InternalError, TooManyRequests
from tests.build import a_pod
from tests.job.clients import Interceptor
from tests.scripted_cluster import Cluster, a_cluster

pytestmark = pytest.mark.virtual_time

BY_HAND: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": {"app": "x"}}}
LABELLED: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
}


def a_pod_without_owner(name: str = "stray", **metadata: Any) -> dict[str, Any]:
    return a_pod(name, metadata={"labels": {"app": "x"}, **metadata})


async def create_pod(cluster: Cluster, document: dict[str, Any]) -> Key:
    await cluster.client.write(Create(PODS, "default", msgspec.json.encode(document)))
    return Key(PODS, "default", document["metadata"]["name"])


def frees(op: Op) -> bool:
    return isinstance(op, Patch) and b"$deleteFromPrimitiveList/finalizers" in op.body


def adopts(op: Op) -> bool:
    return isinstance(op, Patch) and op.key.resource == PODS and b"ownerReferences" in op.body


def writes_status(op: Op) -> TypeGuard[Patch]:
    return isinstance(op, Patch) and op.key.resource == JOBS and op.subresource == "status"


async def end_pod(cluster: Cluster, pod: Key, phase: str = "Succeeded") -> None:
    body = msgspec.json.encode({"status": {"phase": phase}})
    await cluster.client.write(Patch(pod, body, "merge", "status"))


async def test_a_pod_that_ends_while_it_is_adopted_is_seen_to_have_ended(tmp_path: Path) -> None:
    """Its end may be seen before the response to the adoption."""
    async with a_cluster(tmp_path) as cluster:
        pod = await create_pod(cluster, a_pod_without_owner())

        async def late(op: Op, result: Result) -> Result:
            if adopts(op):
                await end_pod(cluster, pod)
                await asyncio.sleep(1)
            return result

        client = Interceptor(cluster.client, after=late)
        job = await cluster.create_job(template=LABELLED, **BY_HAND)
        controller = await cluster.start_job_controller(client)
        finished = await cluster.until_finished(job)
        assert finished.status.succeeded == 1
        await controller.stop()


async def test_a_pod_that_is_adopted_is_not_freed_as_an_orphan_afterwards(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        pod = await create_pod(cluster, a_pod_without_owner(finalizers=[TRACKING]))

        async def hesitates(op: Op) -> Result | None:
            if frees(op):
                await asyncio.sleep(1)
            return None

        client = Interceptor(cluster.client, before=hesitates)
        job = await cluster.create_job(template=LABELLED, **BY_HAND)
        controller = await cluster.start_job_controller(client)
        await asyncio.sleep(30)
        (adopted,) = await cluster.pods()
        assert adopted.metadata.controller_ref is not None
        assert TRACKING in adopted.metadata.finalizers
        await end_pod(cluster, pod)
        finished = await cluster.until_finished(job)
        assert finished.status.succeeded == 1
        assert len(await cluster.pods()) == 1, "its work is not done again"
        await controller.stop()


async def test_pods_that_have_just_begun_to_run_are_stopped_at_the_first_attempt(
    tmp_path: Path,
) -> None:
    """Binding and start of a Pod are quiet changes: a cache may not show them yet."""
    async with a_cluster(tmp_path) as cluster:
        refused: list[Result] = []

        async def note(op: Op, result: Result) -> Result:
            if isinstance(result, Conflict):
                refused.append(result)
            return result

        job = await cluster.create_job(parallelism=2, completions=2)
        controller = await cluster.start_job_controller(Interceptor(cluster.client, after=note))
        await asyncio.sleep(5)
        for pod in await cluster.pods():
            await cluster.client.write(Bind(pod.key, "node"))
            running = msgspec.json.encode({"status": {"phase": "Running"}})
            await cluster.client.write(Patch(pod.key, running, subresource="status"))
        suspend = msgspec.json.encode({"spec": {"suspend": True}})
        await cluster.client.write(Patch(job, suspend, "merge"))
        await asyncio.sleep(0.05)
        assert [pod.metadata.deleting for pod in await cluster.pods()] == [True, True]
        assert refused == []
        await controller.stop()


async def test_a_pod_is_no_orphan_because_its_job_is_not_in_the_cache_yet(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        client = Interceptor(cluster.client)
        controller = await cluster.start_job_controller(client)
        client.hold_back(JOBS)
        key = await cluster.create_job(suspend=True)
        job = await cluster.job(key)
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": key.name,
            "uid": job.metadata.uid, "controller": True,
        }  # fmt: skip
        labels = {"batch.kubernetes.io/controller-uid": job.metadata.uid}
        pod = await create_pod(
            cluster,
            a_pod_without_owner(finalizers=[TRACKING], ownerReferences=[owner], labels=labels),
        )
        await end_pod(cluster, pod)
        await cluster.client.write(Delete(pod))
        await asyncio.sleep(10)
        assert [f for p in await cluster.pods() for f in p.metadata.finalizers] == [TRACKING]
        client.release(JOBS)
        finished = await cluster.until_finished(key)
        assert finished.status.succeeded == 1, "it was counted once its Job was known"
        assert await cluster.pods() == []
        await controller.stop()


async def test_a_pod_that_appears_after_its_job_has_finished_is_freed(tmp_path: Path) -> None:
    """For example one whose creation was answered late."""
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(lambda pod: 0)
        controller = await cluster.start_job_controller()
        job = await cluster.until_finished(await cluster.create_job())
        await asyncio.sleep(5)
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name,
            "uid": job.metadata.uid, "controller": True,
        }  # fmt: skip
        await create_pod(
            cluster, a_pod_without_owner(finalizers=[TRACKING], ownerReferences=[owner])
        )
        await asyncio.sleep(5)
        assert all(not pod.metadata.finalizers for pod in await cluster.pods())
        await controller.stop()


@pytest.mark.parametrize("jobs_first", [True, False])
async def test_jobs_counted_by_existence_find_their_ended_pods_after_a_restart(
    tmp_path: Path, jobs_first: bool
) -> None:
    """The order in which Jobs and Pods are listed does not matter."""
    gates = FeatureGates({"JobTrackingWithFinalizers": False})
    async with a_cluster(tmp_path, gates=gates) as cluster:
        seen: list[str] = []

        def two_succeed(pod: Pod) -> int | None:
            seen.append(pod.metadata.uid)
            return 0 if len(seen) <= 2 else None

        cluster.start_node(two_succeed)
        controller = await cluster.start_job_controller()
        job = await cluster.create_job(completions=3, parallelism=1)
        await asyncio.sleep(10)
        await controller.stop()
        client = Interceptor(cluster.client)
        slow = PODS if jobs_first else JOBS
        client.hold_back(slow)
        starting = asyncio.create_task(cluster.start_job_controller(client))
        await asyncio.sleep(1)
        client.release(slow)
        controller = await starting
        last = next(pod for pod in await cluster.pods() if not pod.terminal)
        await end_pod(cluster, last.key)
        await cluster.until_finished(job)
        assert len(seen) == 3, "no work is done again"
        await controller.stop()


@pytest.mark.parametrize("error", [Conflict("changed"), TooManyRequests("slow down")])
async def test_a_refused_status_write_is_repeated_and_counts_once(
    tmp_path: Path, error: ApiError
) -> None:
    async with a_cluster(tmp_path) as cluster:
        refusals = [error, error, error]

        async def refuses(op: Op) -> Result | None:
            lists_failures = writes_status(op) and b'"failed":["' in op.body
            return refusals.pop() if lists_failures and refusals else None

        client = Interceptor(cluster.client, before=refuses)
        node = cluster.start_node(lambda pod: 3 if len(node.exits) < 2 else 0)
        controller = await cluster.start_job_controller(client)
        policy = {
            "rules": [
                {"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}},
            ]
        }
        job = await cluster.until_finished(
            await cluster.create_job(completions=2, parallelism=2, podFailurePolicy=policy)
        )
        assert not refusals
        assert (job.status.succeeded, job.status.failed) == (2, node.failed)
        matches = cluster.metrics.failure_policy_matches
        assert matches.value(action="Count") == node.failed
        await controller.stop()


async def test_failed_pods_beyond_the_limit_go_though_the_first_try_to_delete_them_fails(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path) as cluster:
        refusals: list[ApiError] = [Forbidden("not now")] * 2

        async def refuses(op: Op) -> Result | None:
            return refusals.pop() if isinstance(op, Delete) and refusals else None

        client = Interceptor(cluster.client, before=refuses)
        cluster.start_node(lambda pod: 1)
        controller = await cluster.start_job_controller(client)
        await cluster.until_finished(
            await cluster.create_job(backoffLimit=1, failedPodsLimit=0, backoffSeconds=0)
        )
        await asyncio.sleep(60)
        assert not refusals
        assert await cluster.pods() == []
        await controller.stop()


def test_a_patch_that_frees_a_pod_names_both_finalizers() -> None:
    body = msgspec.json.decode(REMOVE_TRACKING_PATCH)
    assert body == {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": [
                "batch.kubernetes.io/job-tracking",
                "batch.kubernetes.io/job-completion",
            ]
        }
    }


async def test_a_pod_whose_creation_was_not_answered_is_not_created_again(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:

        async def delay(op: Op) -> Result | None:
            if isinstance(op, Create) and op.resource == PODS:
                client.hold_back(PODS, lists=False)
            return None

        async def lose(op: Op, result: Result) -> Result:
            if isinstance(op, Create) and op.resource == PODS:
                return InternalError("lost")
            return result

        client = Interceptor(cluster.client, delay, lose)
        await cluster.create_job(completions=1, completionMode="Indexed")
        controller = await cluster.start_job_controller(client)
        await asyncio.sleep(60)
        assert len(await cluster.pods()) == 1
        client.release(PODS)
        await asyncio.sleep(60)
        assert len(await cluster.pods()) == 1
        await controller.stop()


async def test_a_pod_whose_going_is_not_seen_is_counted_once(tmp_path: Path) -> None:
    """Removing the finalizer of a deleted Pod removes the Pod.

    The response is lost, and the watch shows it late.
    """
    async with a_cluster(tmp_path) as cluster:
        node = cluster.start_node(lambda pod: None)

        async def delay(op: Op) -> Result | None:
            if frees(op):
                client.hold_back(PODS, lists=False)
            return None

        async def lose(op: Op, result: Result) -> Result:
            return InternalError("lost") if frees(op) and isinstance(result, Written) else result

        client = Interceptor(cluster.client, delay, lose)
        job = await cluster.create_job(backoffLimit=3)
        controller = await cluster.start_job_controller(client)
        await asyncio.sleep(5)
        (pod,) = await cluster.pods()
        await cluster.client.write(Delete(pod.key))
        await asyncio.sleep(60)
        client.release(PODS)
        node.script = lambda pod: 0
        await asyncio.sleep(60)
        assert (await cluster.job(job)).status.failed == 1
        await controller.stop()


async def test_a_pod_that_ends_while_the_job_is_suspended_is_counted(tmp_path: Path) -> None:
    """It may have ended since it was chosen to be stopped, and its work is done."""
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(lambda pod: None)

        async def end(op: Op) -> Result | None:
            if frees(op) and isinstance(op, Patch):
                await end_pod(cluster, op.key)
            return None

        client = Interceptor(cluster.client, before=end)
        job = await cluster.create_job()
        controller = await cluster.start_job_controller(client)
        await asyncio.sleep(5)
        await cluster.client.write(Patch(job, b'{"spec":{"suspend":true}}', "merge"))
        finished = await cluster.until_finished(job)
        assert (finished.status.succeeded, finished.status.failed) == (1, 0)
        await controller.stop()


async def test_a_pod_that_ends_while_its_job_fails_is_counted_by_how_it_ended(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(lambda pod: None)
        first = True

        async def end(op: Op) -> Result | None:
            nonlocal first
            if isinstance(op, Delete) and first:
                first = False
                await end_pod(cluster, op.key)
            return None

        client = Interceptor(cluster.client, before=end)
        job = await cluster.create_job(
            backoffLimit=0, completions=5, parallelism=3, completionMode="Indexed"
        )
        controller = await cluster.start_job_controller(client)
        await asyncio.sleep(5)
        await end_pod(cluster, (await cluster.pods())[0].key, "Failed")
        finished = await cluster.until_finished(job)
        assert (finished.status.succeeded, finished.status.failed) == (1, 2)
        await controller.stop()
