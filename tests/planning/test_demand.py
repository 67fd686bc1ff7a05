"""Demand of Pods with resources of their own."""

import pytest

from onejob.objects.pod_spec import Container, NodePodSpec, QuantityText, Resources
from onejob.planning.pod.demand import demand_of, with_pod_limits

ONE_CPU = Container(name="a", resources=Resources(requests={"cpu": "1"}))


@pytest.mark.parametrize(
    ("limits", "requests", "cpu", "memory"),
    [
        ({}, {"cpu": "3"}, 3000, None),
        ({"cpu": "4"}, {}, 1000, None),
        ({"memory": "1Ki"}, {}, 1000, 1024),
        ({"memory": "1Ki"}, {"memory": "512"}, 1000, 512),
    ],
)
def test_pod_level_requests_replace_the_sum_of_the_containers(
    limits: dict[str, QuantityText], requests: dict[str, QuantityText], cpu: int, memory: int | None
) -> None:
    spec = NodePodSpec(containers=(ONE_CPU,), resources=Resources(limits, requests))
    demand = demand_of(spec)
    assert (demand["cpu"], demand.get("memory"), demand["pods"]) == (cpu, memory, 1)


def test_overhead_is_added_to_pod_level_requests() -> None:
    resources = Resources(requests={"cpu": "3"})
    spec = NodePodSpec(containers=(ONE_CPU,), resources=resources, overhead={"cpu": "1"})
    assert demand_of(spec)["cpu"] == 4000


def test_pod_level_limits_apply_to_containers_without_their_own() -> None:
    spec = NodePodSpec(resources=Resources(limits={"cpu": "2", "memory": "1Gi"}))
    limited = Container(name="a", resources=Resources(limits={"cpu": "1"}))
    assert with_pod_limits(spec, limited).resources.limits == {"cpu": "1", "memory": "1Gi"}
    assert with_pod_limits(NodePodSpec(), limited) is limited
