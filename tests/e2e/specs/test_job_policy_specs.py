"""Upstream's end-to-end specs for Job: indexes, and policies for success, failure and retries."""

import asyncio

import pytest

from tests.e2e.specs.api import JOBS, POD_SECONDS, PODS, Api, Document, an_informer, until
from tests.e2e.specs.job import (
    COMPLETION_INDEX,
    FAIL,
    FAIL_ODD_INDEXES,
    FAIL_ONCE,
    FAIL_ONCE_PER_INDEX,
    FAILURE_COUNT,
    STAY_ONCE_PER_INDEX,
    SUCCEED,
    a_job,
    a_schedulable_node,
    completed_job,
    in_phase,
    is_at_rest,
    job_when,
    job_with_condition,
    on_one_node,
    pod_spec,
    pods_of,
    random_name,
    running_pods,
    the_container,
)
from tests.e2e.specs.running import Runs, Spec, Suite

suite = Suite(level="privileged")


def _on_exit_code(action: str, code: int, **more: str) -> Document:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [code], **more}}
    return {"rules": [{**rule, "onPodConditions": None}]}


@suite.it("should allow to use the pod failure policy on exit code to fail the job early")
async def _(api: Api, namespace: str) -> None:
    name = "pod-failure-failjob"
    job = a_job(name, FAIL_ONCE, podFailurePolicy=_on_exit_code("FailJob", 1))
    with on_one_node(job, await a_schedulable_node(api)):
        await api.create(JOBS, namespace, job)
        await job_with_condition(api, namespace, name, "Failed", "PodFailurePolicy")


@suite.it(
    "should allow to use a pod failure policy to ignore failure matching on exit code", slow=True
)
async def _(api: Api, namespace: str) -> None:
    name = "fail-pod-ignore-on-exit-code"
    job = a_job(
        *(name, FAIL_ONCE_PER_INDEX),
        parallelism=3,
        completions=3,
        backoffLimit=2,
        completionMode="Indexed",
        podFailurePolicy=_on_exit_code("Ignore", 42),
    )
    with on_one_node(job, await a_schedulable_node(api)):
        await api.create(JOBS, namespace, job)
        await completed_job(api, namespace, name, 3)


@suite.it(
    "should allow to use a pod failure policy to ignore failure matching on "
    "DisruptionTarget condition",
    slow=True,
)
async def _(api: Api, namespace: str) -> None:
    name = "evicted-pod-ignore-on-disruption-condition"
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    job = a_job(
        *(name, STAY_ONCE_PER_INDEX),
        parallelism=3,
        completions=3,
        backoffLimit=2,
        completionMode="Indexed",
        podFailurePolicy={
            "rules": [{"action": "Ignore", "onExitCodes": None, "onPodConditions": disrupted}]
        },
    )
    pod_spec(job)["terminationGracePeriodSeconds"] = 1
    look = "cat /data/foo-$JOB_COMPLETION_INDEX"
    the_container(job)["readinessProbe"] = {
        "exec": {"command": ["/bin/sh", "-c", look]},
        "periodSeconds": 1,
    }

    async def evict(pod: Document) -> None:
        victim = pod["metadata"]["name"]
        await api.evict(namespace, victim)

        async def there() -> bool:
            return await api.exists(PODS, namespace, victim)

        await until("its end", there, lambda is_there: not is_there, seconds=POD_SECONDS)

    with on_one_node(job, await a_schedulable_node(api)):
        await api.create(JOBS, namespace, job)
        await job_when(
            api, namespace, name, "all ready", lambda seen: seen["status"].get("ready") == 3
        )
        pods = in_phase(await pods_of(api, namespace, name), "Running")
        assert len(pods) == 3
        await asyncio.gather(*map(evict, pods))
        await completed_job(api, namespace, name, 3)


@suite.it(
    "should recreate pods only after they have failed if pod replacement policy is set to Failed"
)
async def _(api: Api, namespace: str) -> None:
    name = "pod-recreate-failed"
    slow_to_end = "end() { sleep 5; exit 143; }\ntrap end SIGTERM\nwhile true; do sleep 1; done"
    one: Document = {"parallelism": 1, "completions": 1, "backoffLimit": 1}
    job = a_job(name, slow_to_end, podReplacementPolicy="Failed", **one)
    await api.create(JOBS, namespace, job)
    await running_pods(api, namespace, name, 1)
    for pod in await pods_of(api, namespace, name):
        await api.delete(PODS, namespace, pod["metadata"]["name"], gracePeriodSeconds=30)

    async def counted(active: int, failed: int, terminating: int) -> None:
        def holds(seen: Document) -> bool:
            status = seen["status"]
            counts = (status.get("active", 0), status.get("failed", 0), status["terminating"])
            return counts == (active, failed, terminating)

        what = f"{active} active, {failed} failed, {terminating} terminating"
        await job_when(api, namespace, name, what, holds, seconds=POD_SECONDS)

    await counted(active=0, failed=0, terminating=1)
    await counted(active=1, failed=1, terminating=0)


@suite.it("should create pods for an Indexed job with completion indexes and specified hostname")
async def _(api: Api, namespace: str) -> None:
    name = "indexed-job"
    await api.create(JOBS, namespace, a_job(name, SUCCEED, completionMode="Indexed"))
    await completed_job(api, namespace, name, 4)
    pods = in_phase(await pods_of(api, namespace, name), "Succeeded")
    hostnames = {
        pod["metadata"]["annotations"][COMPLETION_INDEX]: pod["spec"]["hostname"] for pod in pods
    }
    assert hostnames == {str(index): f"{name}-{index}" for index in range(4)}


@suite.it("should create pods with completion indexes for an Indexed Job")
async def _(api: Api, namespace: str) -> None:
    name = "indexed-job"
    await api.create(JOBS, namespace, a_job(name, SUCCEED, completionMode="Indexed"))
    await completed_job(api, namespace, name, 4)
    pods = await pods_of(api, namespace, name)
    labels = {pod["metadata"]["labels"][COMPLETION_INDEX] for pod in pods}
    assert labels == {"0", "1", "2", "3"}


async def _succeeds_by_policy(api: Api, namespace: str, job: Document, succeeded: int) -> Document:
    name = job["metadata"]["name"]
    await api.create(JOBS, namespace, job)
    await job_with_condition(api, namespace, name, "SuccessCriteriaMet", "SuccessPolicy")
    done = await completed_job(api, namespace, name, succeeded, "SuccessPolicy")
    assert is_at_rest(done)
    return done


@suite.it("with successPolicy should succeeded when all indexes succeeded")
async def _(api: Api, namespace: str) -> None:
    # Without a command: the image's own one, which ends at once.
    job = a_job(
        "with-success-policy-all-index-succeeded",
        parallelism=2,
        completions=2,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededCount": 2}]},
    )
    done = await _succeeds_by_policy(api, namespace, job, 2)
    assert done["status"].get("failed", 0) == 0


@suite.it(
    "with successPolicy succeededIndexes rule should succeeded "
    "even when some indexes remain pending"
)
async def _(api: Api, namespace: str) -> None:
    job = a_job(
        *("with-success-policy-succeeded-indexed", FAIL_ODD_INDEXES),
        completions=5,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededIndexes": "0"}]},
    )
    done = await _succeeds_by_policy(api, namespace, job, 1)
    assert done["status"]["completedIndexes"] == "0"


@suite.it(
    "with successPolicy succeededCount rule should succeeded even when some indexes remain pending"
)
async def _(api: Api, namespace: str) -> None:
    job = a_job(
        *("with-success-policy-succeeded-count", FAIL_ODD_INDEXES),
        completions=5,
        backoffLimit=2**31 - 1,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededCount": 1}]},
    )
    done = await _succeeds_by_policy(api, namespace, job, 1)
    assert done["status"]["completedIndexes"] == "0"


async def _fails_by_index(api: Api, namespace: str, job: Document) -> Document:
    """Return the counters of a Job with per-index limits."""
    job["spec"] |= {"completionMode": "Indexed", "backoffLimit": None}
    name = job["metadata"]["name"]
    await api.create(JOBS, namespace, job)
    status: Document = (await job_with_condition(api, namespace, name, "Failed"))["status"]
    names = ("failed", "succeeded", "completedIndexes", "failedIndexes")
    return {field: status[field] for field in names if field in status}


@suite.it("should execute all indexes despite some failing when using backoffLimitPerIndex")
async def _(api: Api, namespace: str) -> None:
    job = a_job("with-backoff-limit-per-index", FAIL_ODD_INDEXES, backoffLimitPerIndex=1)
    counts = await _fails_by_index(api, namespace, job)
    assert counts == {
        "failedIndexes": "1,3",
        "completedIndexes": "0,2",
        "failed": 4,
        "succeeded": 2,
    }


@suite.it(
    "should terminate job execution when the number of failed indexes exceeds maxFailedIndexes"
)
async def _(api: Api, namespace: str) -> None:
    limits: Document = {"parallelism": 1, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    job = a_job("with-max-failed-indexes", FAIL, **limits)
    counts = await _fails_by_index(api, namespace, job)
    assert counts == {"failedIndexes": "0", "failed": 1}


@suite.it("should record the failure-count in the Pod annotation when using backoffLimitPerIndex")
async def _(api: Api, namespace: str) -> None:
    name = random_name("e2e-backofflimitperindex-")
    job = a_job(name, FAIL, completions=2, backoffLimitPerIndex=1)
    selector = f"batch.kubernetes.io/job-name={name}"
    async with an_informer(api, PODS, namespace, labelSelector=selector) as pods:
        counts = await _fails_by_index(api, namespace, job)

        async def recorded() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {"0": [], "1": []}
            for annotations in (pod["metadata"]["annotations"] for pod in pods.added):
                found[annotations[COMPLETION_INDEX]].append(annotations[FAILURE_COUNT])
            return found

        expected = {"0": ["0", "1"], "1": ["0", "1"]}
        await until("its record", recorded, lambda seen: seen == expected, seconds=15, every=0.5)
        for before, after in pods.changed:
            assert _failure_count(before) == _failure_count(after)
    assert counts == {"failedIndexes": "0,1", "failed": 4}


def _failure_count(pod: Document) -> str:
    return str(pod["metadata"]["annotations"][FAILURE_COUNT])


@suite.it("should mark indexes as failed when the FailIndex action is matched in podFailurePolicy")
async def _(api: Api, namespace: str) -> None:
    job = a_job(
        *("matching-fail-index-action", FAIL_ODD_INDEXES),
        completions=2,
        backoffLimitPerIndex=1,
        podFailurePolicy=_on_exit_code("FailIndex", 1),
    )
    counts = await _fails_by_index(api, namespace, job)
    assert counts == {
        "failedIndexes": "1",
        "completedIndexes": "0",
        "failed": 1,
        "succeeded": 1,
    }


@suite.it(
    "containers restarted by container restart policy should not trigger PodFailurePolicy "
    "[FeatureGate:ContainerRestartRules] [Beta] [NodeConformance]"
)
async def _(api: Api, namespace: str) -> None:
    name = "managed-by"
    job = a_job(
        *(name, FAIL_ONCE),
        parallelism=1,
        completions=1,
        backoffLimit=1,
        podFailurePolicy=_on_exit_code("FailJob", 1, containerName="c"),
    )
    the_container(job)["restartPolicy"] = "OnFailure"
    with on_one_node(job, await a_schedulable_node(api)):
        await api.create(JOBS, namespace, job)
        await completed_job(api, namespace, name, 1)
        assert is_at_rest(await api.get(JOBS, namespace, name))
        (pod,) = await pods_of(api, namespace, name)
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


@pytest.mark.parametrize("spec", suite.parameters())
def test_job(spec: Spec, runs: Runs) -> None:
    runs.result(spec)
