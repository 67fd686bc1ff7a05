"""Conditions of a Pod in its status."""

from onejob.objects.meta import Condition
from onejob.objects.pod_spec import Container, NodePod, NodePodSpec, NodePodStatus, ReadinessGate
from onejob.objects.pod_status import ConditionReport
from onejob.planning.pod.lifecycle import ContainerSeen, plan_pod
from onejob.planning.pod.status import NodeFacts, report
from onejob.virtual_time import NOON


def readiness(*conditions: Condition) -> tuple[str, str]:
    gates = (ReadinessGate("example.org/lit"),)
    spec = NodePodSpec(containers=(Container(name="a"),), readiness_gates=gates)
    pod = NodePod(spec=spec, status=NodePodStatus(conditions=conditions))
    seen = {"a": ContainerSeen("running", 0, started_at=NOON, started=True, ready=True)}
    plan = plan_pod(pod, seen, NOON, NOON)
    status = report(
        pod, seen, plan, now=NOON, started_at=NOON, facts=NodeFacts("process"), before={}
    )
    (ready,) = [each for each in status.conditions if each.type == "Ready"]
    assert isinstance(ready, ConditionReport)
    return ready.status, ready.reason or ""


def test_a_pod_is_ready_once_its_readiness_gates_are_true() -> None:
    assert readiness() == ("False", "ReadinessGatesNotReady")
    assert readiness(Condition("example.org/lit", "True")) == ("True", "")
