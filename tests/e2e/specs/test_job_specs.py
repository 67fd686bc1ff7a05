"""Upstream's end-to-end specs for Job: running, updating, ending and deleting."""

from collections.abc import Callable

import pytest

from onejob.clock import SystemClock
from tests.e2e.specs.api import JOBS, NODES, PODS, Api, Document, throughout, until
from tests.e2e.specs.job import (
    FAIL,
    FAIL_ONCE,
    JOB_SECONDS,
    PAUSE,
    SUCCEED,
    a_job,
    a_schedulable_node,
    a_staying_job,
    completed_job,
    condition,
    delete_and_await_collection,
    in_phase,
    is_at_rest,
    job_when,
    job_with_condition,
    no_pods,
    on_one_node,
    pod_spec,
    pods_of,
    random_name,
    running_pods,
    suspend,
    the_container,
)
from tests.e2e.specs.running import Runs, Spec, Suite

suite = Suite(level="privileged")


@suite.it("should run a job to completion when tasks succeed")
async def _(api: Api, namespace: str) -> None:
    await api.create(JOBS, namespace, a_job("all-succeed", SUCCEED))
    await completed_job(api, namespace, "all-succeed", 4)
    assert len(in_phase(await pods_of(api, namespace, "all-succeed"), "Succeeded")) == 4


@suite.it("should not create pods when created in suspend state")
async def _(api: Api, namespace: str) -> None:
    name = "suspend-true-to-false"
    await api.create(JOBS, namespace, a_job(name, SUCCEED, suspend=True))
    await job_with_condition(api, namespace, name, "Suspended")
    assert await pods_of(api, namespace, name) == []
    await suspend(api, namespace, name, False)
    await completed_job(api, namespace, name, 4)


@suite.it("should delete pods when suspended")
async def _(api: Api, namespace: str) -> None:
    name = "suspend-false-to-true"
    await api.create(JOBS, namespace, a_staying_job(name, suspend=False))
    await running_pods(api, namespace, name, 2)
    await suspend(api, namespace, name, True)
    await no_pods(api, namespace, name)
    assert condition(await api.get(JOBS, namespace, name), "Suspended")


@suite.it("should remove pods when job is deleted")
async def _(api: Api, namespace: str) -> None:
    await api.create(JOBS, namespace, a_staying_job("all-pods-removed"))
    await running_pods(api, namespace, "all-pods-removed", 2)
    await delete_and_await_collection(api, namespace, "all-pods-removed")
    await no_pods(api, namespace, "all-pods-removed")


@suite.it("should run a job to completion when tasks sometimes fail and are locally restarted")
async def _(api: Api, namespace: str) -> None:
    job = a_job("fail-once-local", FAIL_ONCE)
    pod_spec(job)["restartPolicy"] = "OnFailure"
    await api.create(JOBS, namespace, job)
    await completed_job(api, namespace, "fail-once-local", 4)
    for pod in await pods_of(api, namespace, "fail-once-local"):
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


@suite.it("should run a job to completion when tasks sometimes fail and are not locally restarted")
async def _(api: Api, namespace: str) -> None:
    name = "fail-once-non-local"
    with on_one_node(a_job(name, FAIL_ONCE), await a_schedulable_node(api)) as job:
        await api.create(JOBS, namespace, job)
        await job_with_condition(api, namespace, name, "SuccessCriteriaMet", "CompletionsReached")
        await completed_job(api, namespace, name, 4)
        assert is_at_rest(await api.get(JOBS, namespace, name))


@suite.it("should fail when exceeds active deadline")
async def _(api: Api, namespace: str) -> None:
    name = "exceed-active-deadline"
    await api.create(JOBS, namespace, a_staying_job(name, activeDeadlineSeconds=1))
    await job_with_condition(api, namespace, name, "FailureTarget", "DeadlineExceeded")
    job = await job_with_condition(api, namespace, name, "Failed", "DeadlineExceeded")
    assert is_at_rest(job)


@suite.it("should delete a job")
async def _(api: Api, namespace: str) -> None:
    await api.create(JOBS, namespace, a_staying_job("foo"))
    await running_pods(api, namespace, "foo", 2)
    await delete_and_await_collection(api, namespace, "foo")
    assert not await api.exists(JOBS, namespace, "foo")


@suite.it("should adopt matching orphans and release non-matching pods")
async def _(api: Api, namespace: str) -> None:
    created = await api.create(JOBS, namespace, a_staying_job("adopt-release"))
    await running_pods(api, namespace, "adopt-release", 2)
    pods = await pods_of(api, namespace, "adopt-release")
    assert len(pods) == 2
    name = pods[0]["metadata"]["name"]

    async def owners() -> list[Document]:
        pod = await api.get(PODS, namespace, name)
        references = pod["metadata"].get("ownerReferences", ())
        return [reference for reference in references if reference.get("controller")]

    await api.change(PODS, namespace, name, _without("ownerReferences"))
    (owner,) = await until("adoption", owners, bool, seconds=JOB_SECONDS)
    expected = ("Job", "adopt-release", created["metadata"]["uid"])
    assert (owner["kind"], owner["name"], owner["uid"]) == expected

    await api.change(PODS, namespace, name, _without("labels"))
    await until("release", owners, lambda found: not found, seconds=JOB_SECONDS)


def _without(field: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        del document["metadata"][field]

    return change


@suite.it("should fail to exceed backoffLimit")
async def _(api: Api, namespace: str) -> None:
    name = "backofflimit"
    job = a_job(name, FAIL, parallelism=1, completions=1, backoffLimit=1)
    await api.create(JOBS, namespace, job)
    await job_with_condition(api, namespace, name, "FailureTarget", "BackoffLimitExceeded")
    failed = await job_with_condition(api, namespace, name, "Failed", "BackoffLimitExceeded")
    pods = await pods_of(api, namespace, name)
    assert [pod["status"]["phase"] for pod in pods] == ["Failed", "Failed"]
    assert is_at_rest(failed)


@suite.it("should run a job to completion with CPU requests [Serial]", serial=True)
async def _(api: Api, namespace: str) -> None:
    node = await api.get(NODES, "", await _node_that_runs_a_pod(api, namespace))
    cpu = node["status"]["allocatable"]["cpu"]
    # Go rounds a quantity up to whole units.
    cores = -(-int(cpu[:-1]) // 1000) if cpu.endswith("m") else int(cpu)
    job = a_job("all-succeed", SUCCEED, parallelism=90, completions=90, backoffLimit=0)
    the_container(job)["resources"] = {"requests": {"cpu": str(int(0.2 * cores))}}
    pod_spec(job)["nodeSelector"] = {"kubernetes.io/hostname": node["metadata"]["name"]}
    await api.create(JOBS, namespace, job)
    await completed_job(api, namespace, "all-succeed", 90)
    assert len(in_phase(await pods_of(api, namespace, "all-succeed"), "Succeeded")) == 90


async def _node_that_runs_a_pod(api: Api, namespace: str) -> str:
    """Return a node, found by running a Pod, which is then removed without grace."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "c", "image": PAUSE, "resources": {}, "securityContext": restricted}
    pod: Document = {
        "metadata": {"name": "without-label"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    await api.create(PODS, namespace, pod)

    async def look() -> Document:
        return await api.get(PODS, namespace, "without-label")

    running = await until(
        "a running pod", look, lambda seen: seen["status"]["phase"] == "Running", seconds=120
    )
    await api.delete(PODS, namespace, "without-label", gracePeriodSeconds=0)
    return str(running["spec"]["nodeName"])


@suite.it("should apply changes to a job status")
async def _(api: Api, namespace: str) -> None:
    name = "suspend-false-to-true"
    created = await api.create(JOBS, namespace, a_staying_job(name))
    await running_pods(api, namespace, name, 2)

    first = _second()
    custom = {"type": "CustomConditionType", "status": "True", "lastProbeTime": None}
    patched = await api.patch(
        *(JOBS, namespace, name),
        {
            "metadata": {"annotations": {"patchedstatus": "true"}},
            "status": {"conditions": [{**custom, "lastTransitionTime": first}]},
        },
        type="merge",
        subresource="status",
    )
    assert (condition(patched, "CustomConditionType") or {})["lastTransitionTime"] == first
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"

    # The controller writes this status too, and must preserve unknown parts.
    await suspend(api, namespace, name, True)
    job = await job_with_condition(api, namespace, name, "Suspended")
    assert condition(job, "CustomConditionType")

    second = _second()
    job = await job_when(api, namespace, name, "rest", is_at_rest)
    for found in job["status"]["conditions"]:
        if found["type"] == "CustomConditionType":
            found["lastTransitionTime"] = second
    updated = await api.replace(JOBS, job, "status")
    assert (condition(updated, "CustomConditionType") or {})["lastTransitionTime"] == second
    whole = await api.get(JOBS, namespace, name, "status")
    assert whole["metadata"]["uid"] == created["metadata"]["uid"]
    assert whole["spec"] == updated["spec"]


def _second() -> str:
    """Return the present time in the precision of the API."""
    now = SystemClock().now()
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


@suite.it("should manage the lifecycle of a job")
async def _(api: Api, namespace: str) -> None:
    name = random_name("e2e-")
    selector = f"e2e-job-label={name}"
    before = await api.listing(JOBS, namespace, labelSelector=selector)
    job = a_job(name, SUCCEED, suspend=True)
    job["metadata"]["labels"] = {"e2e-job-label": name}
    created = await api.create(JOBS, namespace, job)

    label = {"metadata": {"labels": {name: "patched"}}}
    patched = await api.patch(JOBS, namespace, name, label, type="strategic")
    assert _version(patched) > _version(created)
    assert patched["metadata"]["labels"][name] == "patched"

    async def event_after(version: str, wanted: str, field: str, key: str, value: str) -> None:
        watch = api.watch(JOBS, namespace, labelSelector=selector, resourceVersion=version)
        async for event, seen in watch:
            assert seen["metadata"]["name"] == name
            if event == wanted and seen["metadata"].get(field, {}).get(key) == value:
                break

    since = before["metadata"]["resourceVersion"]
    await event_after(since, "MODIFIED", "labels", name, "patched")

    def resume(document: Document) -> None:
        document["spec"]["suspend"] = False
        document["metadata"].setdefault("annotations", {})["updated"] = "true"

    updated = await api.change(JOBS, namespace, name, resume)
    since = patched["metadata"]["resourceVersion"]
    await event_after(since, "MODIFIED", "annotations", "updated", "true")
    assert updated["metadata"]["annotations"]["updated"] == "true"

    everywhere = await api.items(JOBS, "", labelSelector=selector)
    assert [found["metadata"]["name"] for found in everywhere] == [name]
    await completed_job(api, namespace, name, 4)
    await api.delete_collection(JOBS, namespace, selector, propagationPolicy="Background")
    since = updated["metadata"]["resourceVersion"]
    await event_after(since, "DELETED", "labels", "e2e-job-label", name)
    assert await api.items(JOBS, "", labelSelector=selector) == []


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


@suite.it("should update the status ready field")
async def _(api: Api, namespace: str) -> None:
    name = "all-ready"
    await api.create(JOBS, namespace, a_staying_job(name, suspend=True))

    async def ready(count: int) -> None:
        what = f"{count} ready"
        await job_when(api, namespace, name, what, lambda job: job["status"].get("ready") == count)

    await ready(0)
    await suspend(api, namespace, name, False)
    await ready(2)
    await suspend(api, namespace, name, True)
    await ready(0)


@suite.it("should allow to delegate reconciliation to external controller")
async def _(api: Api, namespace: str) -> None:
    job = a_job("managed-by", SUCCEED, managedBy="example.com/custom-job-controller")
    await api.create(JOBS, namespace, job)

    async def status() -> Document:
        seen: Document = (await api.get(JOBS, namespace, "managed-by"))["status"]
        return seen

    await throughout("untouched", status, lambda seen: seen == {}, seconds=3, every=1)


_SMALL = {"requests": {"cpu": "100m", "memory": "128Mi"}}
_LARGE = {"requests": {"cpu": "200m", "memory": "256Mi"}}


def _enlarge(job: Document) -> None:
    the_container(job)["resources"] = _LARGE


def _sizes(pods: list[Document]) -> list[Document]:
    return [pod["spec"]["containers"][0]["resources"] for pod in pods]


@suite.it(
    "should allow updating pod resources for a suspended job "
    "[FeatureGate:MutablePodResourcesForSuspendedJobs] [Beta]"
)
async def _(api: Api, namespace: str) -> None:
    name = random_name("e2e-mutable-resources")
    job = a_job(name, SUCCEED, parallelism=1, completions=1, suspend=True)
    the_container(job)["resources"] = _SMALL
    await api.create(JOBS, namespace, job)
    await job_with_condition(api, namespace, name, "Suspended")
    assert await pods_of(api, namespace, name) == []
    await api.change(JOBS, namespace, name, _enlarge)
    await suspend(api, namespace, name, False)
    await completed_job(api, namespace, name, 1)
    assert _sizes(await pods_of(api, namespace, name)) == [_LARGE]


@suite.it(
    "should allow updating pod resources for a job that started and then was suspended "
    "[FeatureGate:MutablePodResourcesForSuspendedJobs] [Beta]"
)
async def _(api: Api, namespace: str) -> None:
    name = random_name("e2e-start-suspend")
    job = a_staying_job(name, suspend=False)
    the_container(job)["resources"] = _SMALL
    await api.create(JOBS, namespace, job)
    assert _sizes(await running_pods(api, namespace, name, 2)) == [_SMALL, _SMALL]
    await suspend(api, namespace, name, True)
    await no_pods(api, namespace, name)
    await job_with_condition(api, namespace, name, "Suspended")
    await api.change(JOBS, namespace, name, _enlarge)
    await suspend(api, namespace, name, False)
    assert _sizes(await running_pods(api, namespace, name, 2)) == [_LARGE, _LARGE]


@pytest.mark.parametrize("spec", suite.parameters())
def test_job(spec: Spec, runs: Runs) -> None:
    runs.result(spec)
