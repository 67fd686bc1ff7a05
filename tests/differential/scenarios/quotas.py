"""LimitRanges and ResourceQuotas: defaults, refusals and counts."""

import asyncio
import re
from typing import Any, Final

from tests.differential.documents import CONTAINER, job
from tests.differential.registry import scenario
from tests.differential.side import Side

_DRY: Final = {"dryRun": "All"}


def container(
    name: str = "main", requests: Any = None, limits: Any = None, **more: Any
) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    given = {field: amounts for field, amounts in resources.items() if amounts is not None}
    return {**CONTAINER, "name": name, "resources": given, **more}


def pod(name: str, *containers: Any, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": list(containers) or [container()],
            **spec,
        },
    }


async def _limits(it: Side, *items: dict[str, Any]) -> None:
    await it.create(
        "limitranges", {"metadata": {"name": "bounds"}, "spec": {"limits": list(items)}}, whole=True
    )
    await asyncio.sleep(1)


async def _quota(it: Side, name: str, *, hard: Any, **spec: Any) -> None:
    await it.create(
        "resourcequotas", {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}, whole=True
    )
    await it.until("resourcequotas", name, lambda quota: "used" in quota.get("status", {}))


async def _try(it: Side, *pods: dict[str, Any]) -> None:
    for each in pods:
        await it.ask("POST", it.path("pods"), each, query=_DRY)


async def _resources(it: Side, made: dict[str, Any]) -> None:
    """Show the resources that a Pod gets."""
    created = await it.ask("POST", it.path("pods"), made, query=_DRY)
    spec = created.get("spec", {})
    it.show(
        made["metadata"]["name"],
        {
            "resources": [
                each["resources"]
                for field in ("initContainers", "containers")
                for each in spec.get(field, ())
            ],
            "annotations": created["metadata"].get("annotations"),
            "class": created.get("status", {}).get("qosClass"),
        },
    )


@scenario
async def defaults_of_containers(it: Side) -> None:
    await _limits(
        it,
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "256Mi"},
            "defaultRequest": {"cpu": "100m"},
        },
    )
    await _resources(it, pod("nothing"))
    await _resources(it, pod("some", container(requests={"cpu": "200m"})))
    await _resources(it, pod("limits", container(limits={"cpu": "1", "memory": "1Gi"})))
    await _resources(it, pod("two", container("a"), container("b", {"memory": "1Mi"})))
    await _resources(it, pod("init", initContainers=[container("first")]))


@scenario
async def defaults_of_a_limit_range(it: Side) -> None:
    await _limits(
        it,
        {
            "type": "Container",
            "max": {"cpu": "2", "memory": "1Gi"},
            "min": {"cpu": "100m", "ephemeral-storage": "1Mi"},
            "default": {"cpu": "1"},
        },
        {"type": "Pod", "max": {"cpu": "4"}},
    )
    await _resources(it, pod("nothing"))


@scenario
async def bounds_of_containers(it: Side) -> None:
    await _limits(it, {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}})
    await _try(
        it,
        pod("nothing"),
        pod("small", container(requests={"cpu": "50m"}, limits={"cpu": "1"})),
        pod("large", container(requests={"cpu": "500m"}, limits={"cpu": "1500m"})),
        pod("both", container(requests={"cpu": "2"}, limits={"cpu": "3"})),
        pod("fits", container(requests={"cpu": "100m"}, limits={"cpu": "1"})),
        pod("init", initContainers=[container("i", {"cpu": "1"}, {"cpu": "2"})]),
        pod("two", container("a", {"cpu": "1m"}), container("b", {"cpu": "2"}, {"cpu": "2"})),
    )


@scenario
async def bounds_of_pods(it: Side) -> None:
    await _limits(it, {"type": "Pod", "max": {"memory": "1Gi"}, "min": {"memory": "100Mi"}})
    await _try(
        it,
        pod("nothing"),
        pod("half", container(requests={"memory": "200Mi"})),
        pod("sum", *(container(name, {"memory": "600Mi"}, {"memory": "600Mi"}) for name in "ab")),
        pod("small", container(requests={"memory": "10Mi"}, limits={"memory": "20Mi"})),
        pod(
            "init",
            container(requests={"memory": "200Mi"}, limits={"memory": "200Mi"}),
            initContainers=[container("i", {"memory": "2Gi"}, {"memory": "2Gi"})],
        ),
        pod(
            "sidecar",
            container(requests={"memory": "600Mi"}, limits={"memory": "600Mi"}),
            initContainers=[
                container("i", {"memory": "600Mi"}, {"memory": "600Mi"}, restartPolicy="Always")
            ],
        ),
    )


@scenario
async def ratios(it: Side) -> None:
    await _limits(it, {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}})
    await _try(
        it,
        pod("nothing"),
        pod("no-limit", container(requests={"cpu": "1"})),
        pod("far", container(requests={"cpu": "100m"}, limits={"cpu": "250m"})),
        pod("near", container(requests={"cpu": "100m"}, limits={"cpu": "200m"})),
    )


@scenario
async def limit_ranges_that_are_refused(it: Side) -> None:
    for item in (
        {"type": "Other"},
        {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
        {"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "3"}},
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
        {"type": "Pod", "default": {"cpu": "1"}},
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
        {"type": "Container", "max": {"bananas": "1"}},
        {"type": "PersistentVolumeClaim"},
    ):
        made = {"metadata": {"name": "bad"}, "spec": {"limits": [item]}}
        await it.ask("POST", it.path("limitranges"), made, query=_DRY)


@scenario
async def quotas_that_are_refused(it: Side) -> None:
    specs: tuple[dict[str, Any], ...] = (
        {"hard": {"bananas": "1"}},
        {"hard": {"pods": "-1"}},
        {"hard": {"pods": "1500m"}},
        {"hard": {"pods": "1"}, "scopes": ["Sometimes"]},
        {"hard": {"secrets": "1"}, "scopes": ["BestEffort"]},
        {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]},
        {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]},
        {
            "hard": {"pods": "1"},
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]
            },
        },
        {
            "hard": {"pods": "1"},
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "Terminating", "operator": "In", "values": ["a"]}
                ]
            },
        },
    )
    for spec in specs:
        made = {"metadata": {"name": "bad"}, "spec": spec}
        await it.ask("POST", it.path("resourcequotas"), made, query=_DRY)


@scenario
async def a_number_of_pods(it: Side) -> None:
    await _quota(it, "q", hard={"pods": "2", "count/services": "3", "secrets": "1"})
    for name in "abc":
        await it.create("pods", pod(name, nodeName="ghost"))
    await _settled(it, "q")
    await it.create("secrets", {"metadata": {"name": "a"}})
    await it.create("secrets", {"metadata": {"name": "b"}})
    ended = {"status": {"phase": "Succeeded"}}
    await it.patch("pods", "a", ended, subresource="status", kind="strategic")
    await _settled(it, "q")
    await it.create("pods", pod("c", nodeName="ghost"))
    await it.delete("pods", "b", gracePeriodSeconds=0)
    await _settled(it, "q")


async def _settled(it: Side, name: str) -> None:
    """Show the status of a quota once it no longer changes."""
    await asyncio.sleep(3)
    quota = await it.get("resourcequotas", name)
    it.show(f"status of {name}", quota["status"])


@scenario
async def amounts(it: Side) -> None:
    bounds = {"requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "2"}
    await _quota(it, "q", hard={**bounds, "limits.memory": "2Gi"})
    fits = {"cpu": "500m", "memory": "256Mi"}
    burst = {"cpu": "1500m", "memory": "1Gi"}
    first = container("i", limits={"cpu": "3", "memory": "1Mi"})
    await _try(
        it,
        pod("nothing"),
        pod("half", container("a", fits), container("b", limits=fits)),
        pod("fits", container(limits=fits)),
        pod("exact", *(container(name, limits=fits) for name in "ab")),
        pod("large", *(container(name, limits=fits) for name in "abc")),
        pod("init", container(limits=fits), initContainers=[first]),
    )
    await it.create("pods", pod("one", container(requests=fits, limits=burst), nodeName="ghost"))
    await _settled(it, "q")
    more = {**burst, "memory": "2Gi"}
    await it.create("pods", pod("two", container(requests=fits, limits=more), nodeName="ghost"))
    await it.create("pods", pod("three", container(limits=fits), nodeName="ghost"))
    await _settled(it, "q")


@scenario
async def scopes(it: Side) -> None:
    await _quota(it, "best", hard={"pods": "0"}, scopes=["BestEffort"])
    await _quota(it, "short", hard={"pods": "0"}, scopes=["Terminating", "NotBestEffort"])
    urgent = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    await _quota(it, "urgent", hard={"pods": "0"}, scopeSelector={"matchExpressions": [urgent]})
    some = container(requests={"cpu": "1m"})
    await _try(
        it,
        pod("best"),
        pod("zero", container(requests={"cpu": "0"})),
        pod("some", some),
        pod("short", some, activeDeadlineSeconds=5),
        pod("short-best", activeDeadlineSeconds=5),
        pod("urgent", some, priorityClassName="system-node-critical"),
    )


@scenario
async def a_job_over_quota(it: Side) -> None:
    await _quota(it, "q", hard={"pods": "1", "count/jobs.batch": "1"})
    await it.create("jobs", job(parallelism=2, completions=2))
    event = await it.first_event("FailedCreate")
    it.show("event", re.sub(r'"j-[a-z0-9]{5}"', '"j-xxxxx"', event["message"]))
    await it.create("jobs", job("k"))
    await _settled(it, "q")


@scenario
async def a_quota_that_changes(it: Side) -> None:
    await _quota(it, "q", hard={"pods": "0", "services": "1"})
    await it.create("pods", pod("a", nodeName="ghost"))
    await it.patch("resourcequotas", "q", {"spec": {"hard": {"pods": "1", "services": None}}})
    await _settled(it, "q")
    await it.create("pods", pod("a", nodeName="ghost"))
    await it.patch("resourcequotas", "q", {"spec": {"scopes": ["BestEffort"]}})
    await it.delete("resourcequotas", "q")
    await asyncio.sleep(1)
    await it.create("pods", pod("b", nodeName="ghost"))
