"""Jobs of upstream's specs, and waits for their states."""

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.e2e.specs.api import (
    JOBS,
    NODES,
    POD_SECONDS,
    PODS,
    Api,
    Document,
    an_informer,
    until,
)

JOB_SECONDS: Final = 900.0
PAUSE: Final = "registry.example/pause:3.10"
BUSYBOX: Final = "registry.example/e2e-test-images/busybox:1.37"

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT: Final = "batch.kubernetes.io/job-index-failure-count"

SUCCEED: Final = "exit 0"
FAIL: Final = "exit 1"
FAIL_ODD_INDEXES: Final = "exit `expr $JOB_COMPLETION_INDEX % 2`"
#: The next three leave a mark in their volume and check it.
FAIL_ONCE: Final = "if [[ -r /data/foo ]]; then exit 0; else touch /data/foo; exit 1; fi"
FAIL_ONCE_PER_INDEX: Final = (
    "mark=/data/foo-$JOB_COMPLETION_INDEX; "
    "if [[ -r $mark ]]; then exit 0; else touch $mark; exit 42; fi"
)
STAY_ONCE_PER_INDEX: Final = (
    "mark=/data/foo-$JOB_COMPLETION_INDEX; "
    "if [[ -r $mark ]]; then exit 0; else touch $mark; sleep 1000000; fi"
)


def a_job(name: str, script: str = "", *, image: str = BUSYBOX, **spec: Any) -> Document:
    """Return a Job as a typed Go client sends it: with nulls and empty objects.

    Keywords are of its spec.
    """
    container: Document = {
        "name": "c",
        "image": image,
        "resources": {},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": {},
    }
    if script:
        container["command"] = ["/bin/sh", "-c", script]
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {"name": name, "creationTimestamp": None},
        "spec": {
            "parallelism": 2,
            "completions": 4,
            "backoffLimit": 6,
            "manualSelector": False,
            "template": {
                "metadata": {"creationTimestamp": None, "labels": {"job": name}},
                "spec": {
                    "volumes": [{"name": "data", "emptyDir": {}}],
                    "containers": [container],
                    "restartPolicy": "Never",
                },
            },
            **spec,
        },
        "status": {},
    }


def a_staying_job(name: str, **spec: Any) -> Document:
    """Return a Job whose Pods pause until they are stopped."""
    return a_job(name, image=PAUSE, **spec)


def random_name(prefix: str) -> str:
    return prefix + secrets.token_hex(3)[:5]


def pod_spec(job: Document) -> Document:
    spec: Document = job["spec"]["template"]["spec"]
    return spec


def the_container(job: Document) -> Document:
    container: Document = pod_spec(job)["containers"][0]
    return container


async def a_schedulable_node(api: Api) -> str:
    """Return the name of a node that is ready and schedulable."""
    nodes = await api.items(
        NODES, "", fieldSelector="spec.unschedulable=false", resourceVersion="0"
    )
    for node in nodes:
        ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        if ready == ["True"] and not node["spec"].get("taints"):
            return str(node["metadata"]["name"])
    raise AssertionError(f"no node is ready: {nodes}")


@contextmanager
def on_one_node(job: Document, node: str) -> Iterator[Document]:
    """Let the Job's Pods share a folder of the node, created for the first of them."""
    with tempfile.TemporaryDirectory(prefix="job-e2e-") as folder:
        path = {"path": f"{folder}/{secrets.token_hex(5)}", "type": "DirectoryOrCreate"}
        pod_spec(job)["volumes"] = [{"name": "data", "hostPath": path}]
        pod_spec(job)["nodeSelector"] = {"kubernetes.io/hostname": node}
        the_container(job)["securityContext"] = {"privileged": True}
        yield job


def condition(job: Document, kind: str) -> Document | None:
    """Return the condition of this type if it is true, else None."""
    for found in job["status"].get("conditions", ()):
        if found["type"] == kind and found["status"] == "True":
            return dict(found)
    return None


def finished(job: Document) -> bool:
    return bool(condition(job, "Complete") or condition(job, "Failed"))


def is_at_rest(job: Document) -> bool:
    """Return whether no Pod is active, ready or terminating; the last two must be reported."""
    status = job["status"]
    return (status.get("active", 0), status["ready"], status["terminating"]) == (0, 0, 0)


async def job_when(
    api: Api,
    namespace: str,
    name: str,
    what: str,
    holds: Callable[[Document], object],
    *,
    seconds: float = JOB_SECONDS,
) -> Document:
    async def look() -> Document:
        return await api.get(JOBS, namespace, name)

    return await until(f"job {name}: {what}", look, holds, seconds=seconds)


async def job_with_condition(
    api: Api, namespace: str, name: str, kind: str, reason: str | None = None
) -> Document:
    def holds(job: Document) -> bool:
        found = condition(job, kind)
        return found is not None and reason in (None, found["reason"])

    return await job_when(api, namespace, name, f"{kind} because of {reason}", holds)


async def completed_job(
    api: Api, namespace: str, name: str, succeeded: int, reason: str = "CompletionsReached"
) -> Document:
    """Wait for completion with exactly this many successes. Raises at once if the Job fails."""

    def holds(job: Document) -> bool:
        assert condition(job, "Failed") is None, job["status"]
        return bool(job["status"].get("succeeded", 0) == succeeded)

    await job_when(api, namespace, name, f"{succeeded} succeeded", holds)
    return await job_with_condition(api, namespace, name, "Complete", reason)


async def pods_of(api: Api, namespace: str, name: str) -> list[Document]:
    """Return the Job's Pods, by the label of its template."""
    return await api.items(PODS, namespace, labelSelector=f"job={name}")


def in_phase(pods: list[Document], phase: str) -> list[Document]:
    return [pod for pod in pods if pod["status"]["phase"] == phase]


async def running_pods(api: Api, namespace: str, name: str, count: int) -> list[Document]:
    """Return all of the Job's running Pods once there are exactly this many."""

    async def look() -> list[Document]:
        return in_phase(await pods_of(api, namespace, name), "Running")

    return await until(
        f"{count} running pods", look, lambda pods: len(pods) == count, seconds=JOB_SECONDS
    )


async def no_pods(api: Api, namespace: str, name: str) -> None:
    async def look() -> list[Document]:
        return await pods_of(api, namespace, name)

    await until(f"no pods of {name}", look, lambda pods: not pods, seconds=JOB_SECONDS)


async def suspend(api: Api, namespace: str, name: str, wanted: bool) -> None:
    def change(job: Document) -> None:
        job["spec"]["suspend"] = wanted

    await api.change(JOBS, namespace, name, change)


async def delete_and_await_collection(api: Api, namespace: str, name: str) -> None:
    """Delete the Job; a watch opened before must show the deletion of each of its Pods."""
    labels = (await api.get(JOBS, namespace, name))["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    async with an_informer(api, PODS, namespace, labelSelector=selector) as pods:
        assert pods.current, "a Job without Pods shows nothing"
        await api.delete(JOBS, namespace, name, propagationPolicy="Background")

        async def look() -> list[str]:
            return list(pods.current)

        await until("its pods to go", look, lambda left: not left, seconds=POD_SECONDS)
