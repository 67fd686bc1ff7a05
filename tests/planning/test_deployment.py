"""Roll-outs, replicas and their status, as pure decisions."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onejob.objects.deployment import Deployment, ReplicaSet, read_deployment, read_replica_set
from onejob.objects.pod import Pod, read_pod
from onejob.planning.deployment.conditions import find
from onejob.planning.deployment.documents import HASH_LABEL, template_hash
from onejob.planning.deployment.replicas import plan_replicas
from onejob.planning.deployment.rollout import Observed, RolloutPlan, plan_rollout
from tests.planning.build import NOON, stamp

LABELS = {"app": "web"}


def a_template(image: str = "one", *, port: int = 0) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": image}
    if port:
        container["ports"] = [{"containerPort": port}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}


def a_deployment(status: dict[str, Any] | None = None, **spec: Any) -> Deployment:
    document = {
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": a_template(),
            "progressDeadlineSeconds": 600,
            **spec,
        },
        "status": status or {},
    }
    return read_deployment(msgspec.json.encode(document))


def a_set(image: str, replicas: int, available: int, *, revision: int = 1) -> ReplicaSet:
    template = a_template(image)
    template["metadata"] = {"labels": {**LABELS, HASH_LABEL: image}}
    annotations = {"deployment.kubernetes.io/revision": str(revision)}
    document = {
        "metadata": {
            "name": f"web-{image}",
            "namespace": "default",
            "uid": image,
            "annotations": annotations,
            "creationTimestamp": stamp(NOON + timedelta(seconds=revision)),
        },
        "spec": {"replicas": replicas, "template": template},
        "status": {
            "replicas": replicas,
            "readyReplicas": available,
            "availableReplicas": available,
        },
    }
    return read_replica_set(msgspec.json.encode(document))


def sizes(plan: RolloutPlan) -> dict[str, int]:
    return {scale.replica_set.metadata.uid: scale.replicas for scale in plan.scales}


def update(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    return {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@pytest.mark.parametrize(
    ("strategy", "old", "new", "expected"),
    [
        # The new set grows first, within the surge.
        (update(1, 0), (4, 4), (0, 0), {"two": 1}),
        # The surge is used up, and the new Pod is not available yet.
        (update(1, 0), (4, 4), (1, 0), {}),
        (update(1, 0), (4, 4), (1, 1), {"one": 3}),
        (update(1, 0), (3, 3), (1, 1), {"two": 2}),
        (update(0, 2), (4, 4), (0, 0), {"one": 2}),
        # Pods that are not available go first, however few may be unavailable.
        (update(1, 0), (4, 2), (1, 1), {"one": 3}),
        (update("25%", "25%"), (4, 4), (1, 1), {"one": 2}),
        # Both percentages round to 0: one Pod may be unavailable.
        ({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}, (4, 4), (0, 0),
         {"one": 3}),
        ({"type": "Recreate"}, (4, 4), (0, 0), {"one": 0}),
    ],
)  # fmt: skip
def test_next_step_of_a_rollout(
    strategy: dict[str, Any],
    old: tuple[int, int],
    new: tuple[int, int],
    expected: dict[str, int],
) -> None:
    deployment = a_deployment(replicas=4, strategy=strategy, template=a_template("two"))
    sets = [a_set("one", *old), a_set("two", *new, revision=2)]
    plan = plan_rollout(deployment, sets, Observed(), NOON)
    assert sizes(plan) == expected
    assert plan.creation == b""


def test_recreate_waits_for_pods_that_are_still_ending() -> None:
    deployment = a_deployment(strategy={"type": "Recreate"}, template=a_template("two"))
    old = a_set("one", 0, 0)
    waiting = plan_rollout(deployment, [old], Observed(frozenset({"one"})), NOON)
    assert (waiting.creation, sizes(waiting)) == (b"", {})
    assert plan_rollout(deployment, [old], Observed(), NOON).creation


def test_pods_on_the_same_ports_are_replaced_one_after_the_other() -> None:
    deployment = a_deployment(template=a_template("two", port=9443))
    old = a_set("one", 1, 1)
    together = plan_rollout(deployment, [old], Observed(), NOON)
    assert (bool(together.creation), sizes(together)) == (True, {})
    apart = plan_rollout(deployment, [old], Observed(replaces_first=True), NOON)
    assert (bool(apart.creation), sizes(apart)) == (False, {"one": 0})


def test_container_that_cannot_start_is_reported_until_the_deadline() -> None:
    deployment, sets = a_deployment(), [a_set("one", 1, 0)]
    observed = Observed(stuck="ErrImageNeverPull: no command for image x")
    plan = plan_rollout(deployment, sets, observed, NOON)
    condition = find(plan.status.conditions, "Progressing")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "ErrImageNeverPull")
    assert condition.message == "no command for image x"
    stuck = msgspec.structs.replace(deployment, status=plan.status)
    later = plan_rollout(stuck, sets, observed, NOON + timedelta(seconds=601))
    condition = find(later.status.conditions, "Progressing")
    assert condition is not None
    assert condition.reason == "ProgressDeadlineExceeded"
    assert condition.message.endswith("ErrImageNeverPull: no command for image x")
    # Started after all, but not ready yet.
    again = plan_rollout(stuck, sets, Observed(), NOON + timedelta(seconds=5))
    condition = find(again.status.conditions, "Progressing")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "ReplicaSetUpdated")


def test_template_hash_ignores_the_order_of_fields() -> None:
    one = {"spec": {"a": 1, "b": 2}}
    assert template_hash(one, 0) == template_hash({"spec": {"b": 2, "a": 1}}, 0)
    assert template_hash(one, 0) != template_hash(one, 1)
    assert template_hash(one, 0) != template_hash({"spec": {"a": 1}}, 0)


def a_pod(name: str, *, phase: str = "Running", ready: bool = True, **metadata: Any) -> Pod:
    document = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": stamp(NOON), **metadata},
        "spec": {"nodeName": "node" if phase == "Running" else ""},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return read_pod(msgspec.json.encode(document))


def test_least_useful_pods_are_deleted_first() -> None:
    cheap = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    pods = [
        a_pod("old"),
        a_pod("young", creationTimestamp=stamp(NOON + timedelta(hours=1))),
        a_pod("unready", ready=False),
        a_pod("cheap", annotations=cheap),
        a_pod("pending", phase="Pending", ready=False),
        a_pod("ended", phase="Failed"),
    ]
    order = [
        [pod.metadata.name for pod in plan_replicas(a_set("one", left, 0), pods, 0, 0).deletions]
        for left in (4, 1)
    ]
    assert order == [["pending"], ["pending", "unready", "cheap", "young"]]


@pytest.mark.parametrize(
    ("failures", "since", "expected"),
    [(0, 0.0, (2, None)), (1, 4.0, (0, 6.0)), (1, 10.0, (2, None)), (3, 0.0, (0, 40.0)),
     (99, 0.0, (0, 300.0))],
)  # fmt: skip
def test_replacement_of_failed_pods_is_delayed(
    failures: int, since: float, expected: tuple[int, float | None]
) -> None:
    plan = plan_replicas(a_set("one", 2, 0), [], failures, since)
    assert (plan.creations, plan.wait_seconds) == expected
