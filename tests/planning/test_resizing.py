"""Decisions about in-place resizes."""

import msgspec
import pytest

from onejob.objects.pod_spec import Container, NodePod, NodePodSpec, QuantityText, Resources
from onejob.planning.pod.resizing import (
    Action,
    Refusal,
    action_for,
    affected,
    allocated_pod,
    refusal,
    reported_pod,
)

NODE = {"cpu": 4000, "memory": 1000, "pods": 10}


def a_pod(requests: dict[str, QuantityText], **spec: object) -> NodePod:
    container = Container(name="c", resources=Resources(requests=requests))
    return NodePod(spec=msgspec.structs.replace(NodePodSpec(containers=(container,)), **spec))


@pytest.mark.parametrize(
    ("demand", "others", "problems", "expected"),
    [
        ({"cpu": 1000, "pods": 1}, {"cpu": 3000, "pods": 10}, {}, None),
        (
            {"cpu": 1001, "pods": 1},
            {"cpu": 3000},
            {},
            Refusal(
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 1001, used: 3000, "
                "capacity: 4000",
            ),
        ),
        (
            {"memory": 1001},
            {},
            {},
            Refusal(
                "Infeasible",
                "Node didn't have enough capacity: memory, requested: 1001, capacity: 1000",
            ),
        ),
        (
            {"cpu": 9999},
            {},
            {"b": "why", "a": "so"},
            Refusal("Infeasible", 'container "a": so; container "b": why'),
        ),
        # A resource of which the Pod wants nothing may be overcommitted.
        ({"cpu": 1, "memory": 0}, {"memory": 2000}, {}, None),
    ],
)
def test_refusal(
    demand: dict[str, int],
    others: dict[str, int],
    problems: dict[str, str],
    expected: Refusal | None,
) -> None:
    assert refusal(demand, others, NODE, problems) == expected


@pytest.mark.parametrize(
    ("limits", "requests", "policies", "expected"),
    [
        ({"cpu": "1"}, {"cpu": "1"}, {}, ""),
        ({"cpu": "1000m"}, {"cpu": 1}, {}, ""),
        ({"cpu": "2"}, {"cpu": "1"}, {}, "update"),
        ({"cpu": "1"}, {"cpu": "500m"}, {}, ""),
        ({"cpu": "1"}, {"cpu": "500m"}, {"cpu": "RestartContainer"}, "restart"),
        ({"cpu": "2"}, {"cpu": "1"}, {"memory": "RestartContainer"}, "update"),
        ({"cpu": "2"}, {"cpu": "1"}, {"cpu": "NotRequired"}, "update"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}, {"memory": "RestartContainer"}, "restart"),
    ],
)
def test_action_for(
    limits: dict[str, str], requests: dict[str, str], policies: dict[str, str], expected: Action
) -> None:
    document = {
        "name": "c",
        "resources": {"limits": limits, "requests": requests},
        "resizePolicy": [
            {"resourceName": name, "restartPolicy": policy} for name, policy in policies.items()
        ],
    }
    container = msgspec.convert(document, Container)
    actual = Resources(limits={"cpu": "1"}, requests={"cpu": "1"})
    assert action_for(container, actual) == expected


def test_equal_resources_keep_the_pod_as_it_is() -> None:
    pod = a_pod({"cpu": "1"})
    assert allocated_pod(pod, a_pod({"cpu": "1000m"})) is pod


def test_allocated_resources_replace_those_of_the_spec() -> None:
    pod, allocated = a_pod({"cpu": "2"}), a_pod({"cpu": "1"})
    found = allocated_pod(pod, allocated)
    assert found.spec.containers[0].resources.requests == {"cpu": "1"}
    assert found.metadata is pod.metadata


def test_limits_of_the_pod_affect_containers_without_their_own() -> None:
    before = a_pod({}, resources=Resources(limits={"cpu": "1"}))
    after = a_pod({}, resources=Resources(limits={"cpu": "2"}))
    ((_, container, action),) = affected(before, after)
    assert (dict(container.resources.limits), action) == ({"cpu": "2"}, "update")


def test_reported_resources_are_those_of_the_status() -> None:
    document = {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    }
    pod = msgspec.convert(document, NodePod)
    assert reported_pod(pod).spec.containers[0].resources.requests == {"cpu": "1"}
    document["status"] = {}
    pod = msgspec.convert(document, NodePod)
    assert reported_pod(pod) is pod
