"""The subresource `resize` of Pods: what may change, on Pods without a node and on running ones."""

import copy

from tests.build import a_pod, container
from tests.differential.registry import scenario
from tests.differential.side import Document, Side

_SIZES: Document = {
    "requests": {"cpu": "1", "memory": "64Mi"},
    "limits": {"cpu": "2", "memory": "64Mi"},
}


def _pod(name: str) -> Document:
    return a_pod(name, container(resources=_SIZES))


def _limits(**limits: str | None) -> Document:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


async def _resize(it: Side, name: str, body: Document) -> Document:
    return await it.patch("pods", name, body, subresource="resize", kind="strategic")


@scenario
async def what_may_change(it: Side) -> None:
    await it.create("pods", _pod("p"))
    await _resize(it, "p", _limits(cpu="3"))
    for body in (
        _limits(cpu="500m"),
        _limits(**{"example.com/device": "1"}),
        _limits(**{"ephemeral-storage": "1Gi"}),
        {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": None}}}]}},
        {"spec": {"containers": [{"name": "other", "image": "busybox"}]}},
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}},
        {"metadata": {"labels": {"a": "b"}}, "spec": {"activeDeadlineSeconds": 5}},
        {"spec": {"containers": [{"name": "c", "image": "other"}]}},
        {"spec": {"resources": {"limits": {"cpu": "9"}}}},
        {"spec": {"containers": [{"name": "c", "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"}]}]}},
    ):  # fmt: skip
        await _resize(it, "p", body)
    document = await it.get("pods", "p")
    it.show("spec", document["spec"]["containers"][0]["resources"])
    it.show("generation", document["metadata"]["generation"])


@scenario
async def replaced(it: Side) -> None:
    document = await it.create("pods", _pod("p"))
    changed = copy.deepcopy(document)
    changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    changed["spec"]["containers"][0]["image"] = "other"
    changed["metadata"]["annotations"] = {"a": "b"}
    path = it.path("pods", "p", "resize")
    stored = await it.ask("PUT", path, changed)
    it.show("container", stored["spec"]["containers"][0])
    it.show("annotations", stored["metadata"].get("annotations"))
    await it.ask("PUT", path, document)
    await it.ask("DELETE", path)
    await it.ask("GET", path)


@scenario
async def quotas_and_limits(it: Side) -> None:
    await it.create("pods", _pod("p"))
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.cpu": "4"}}}
    await it.create("resourcequotas", quota)
    limit = {"type": "Container", "max": {"cpu": "3"}}
    await it.create("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    await it.until("resourcequotas", "q", lambda seen: "limits.cpu" in (
        seen.get("status", {}).get("used", {})))  # fmt: skip
    await _resize(it, "p", _limits(cpu="3500m"))
    await _resize(it, "p", _limits(cpu="2500m"))


@scenario
async def a_node_that_does_not_resize(it: Side) -> None:
    """The node of the scenario reports no resources."""
    await it.create("pods", _pod("p"))
    await it.start([await it.get("pods", "p")])
    await _resize(it, "p", _limits(cpu="2500m"))


@scenario
async def resize_policies(it: Side) -> None:
    never = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    always = a_pod("always", container(resources=_SIZES, resizePolicy=never))
    await it.create("pods", {**always, "spec": {**always["spec"], "restartPolicy": "Always"}})
    refused: tuple[list[Document], ...] = (
        never,
        [{"resourceName": "memory", "restartPolicy": "NotRequired"}] * 2,
        [{"resourceName": "storage", "restartPolicy": "NotRequired"}],
        [{"resourceName": "cpu", "restartPolicy": "Perhaps"}],
        [{}],
    )
    for policies in refused:
        await it.create("pods", a_pod("p", container(resizePolicy=policies), restartPolicy="Never"))
    init = container(name="i", resizePolicy=never)
    await it.create("pods", a_pod("p", container(), initContainers=[init], restartPolicy="Always"))
