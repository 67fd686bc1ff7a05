"""Bare Pods, and waits for their states."""

from collections.abc import Callable
from typing import Any

from tests.e2e.specs.api import PODS, Api, Document, until
from tests.e2e.specs.job import BUSYBOX

#: Finalizer that keeps a Pod's object after its end, so that its last state can be read.
KEEP = "example.com/keep"


def a_pod(name: str, script: str = "", *, image: str = BUSYBOX, **container: Any) -> Document:
    """Return a Pod of one container that is never restarted. Keywords are of the container."""
    only: Document = {"name": "c", "image": image, **container}
    if script:
        only["command"] = ["/bin/sh", "-c", script]
    return {
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [only]},
    }


def mounting(pod: Document, source: Document) -> Document:
    """Return the Pod with a volume of this source at /data."""
    pod["spec"]["volumes"] = [{"name": "data", **source}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return pod


async def pod_when(
    api: Api, namespace: str, name: str, what: str, holds: Callable[[Document], object]
) -> Document:
    async def look() -> Document:
        return await api.get(PODS, namespace, name)

    return await until(f"pod {name}: {what}", look, holds, seconds=60, every=0.1)


async def running_pod(api: Api, namespace: str, name: str) -> Document:
    return await pod_when(
        api, namespace, name, "running", lambda pod: pod["status"]["phase"] == "Running"
    )


async def ended_pod(api: Api, namespace: str, name: str) -> Document:
    return await pod_when(
        *(api, namespace, name, "its end"),
        lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"),
    )


async def output(api: Api, namespace: str, pod: Document) -> str:
    """Run a new Pod, which must succeed, and return its output."""
    name = (await api.create(PODS, namespace, pod))["metadata"]["name"]
    ended = await ended_pod(api, namespace, name)
    text = await api.log(namespace, name)
    assert ended["status"]["phase"] == "Succeeded", text
    return text


def container_status(pod: Document) -> Document:
    status: Document = pod["status"].get("containerStatuses", [{}])[0]
    return status


def conditions(pod: Document) -> dict[str, str]:
    return {found["type"]: found["status"] for found in pod["status"].get("conditions", ())}


async def keep(api: Api, namespace: str, name: str) -> None:
    body: Document = {"metadata": {"finalizers": [KEEP]}}
    await api.patch(PODS, namespace, name, body, type="merge")


async def let_go(api: Api, namespace: str, name: str) -> None:
    body: Document = {"metadata": {"finalizers": None}}
    await api.patch(PODS, namespace, name, body, type="merge")
