"""Rules of the subresource `resize` of Pods."""

import copy
from typing import Any

import pytest

from onejob.api.strategy import Document
from tests.api.kinds.build import a_container, a_pod, created, strategy

POD = strategy("pods")
ONLY_RESOURCES = "spec: Forbidden: only cpu and memory resources are mutable"


def amounts(cpu: str, memory: str = "64Mi") -> Document:
    return {"cpu": cpu, "memory": memory}


def a_running_pod(**spec: Any) -> Document:
    resources = {"requests": amounts("1"), "limits": amounts("2")}
    pod = created(POD, a_pod(**{"containers": [a_container(resources=resources)], **spec}))
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    pod["status"]["containerStatuses"] = [{"name": "main", "state": state, "resources": {}}]
    return pod


def resize(old: Document, new: Document) -> tuple[Document, list[str]]:
    """Return the document as it would be stored, and its validation errors."""
    before, new = copy.deepcopy(old), copy.deepcopy(new)
    POD.default(new, old)
    POD.prepare_resize(new, old)
    errors = [str(error) for error in POD.validate_resize(new, old)]
    assert old == before, "a strategy changed the stored object"
    return new, errors


def resized(old: Document, **resources: Any) -> Document:
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["resources"] = resources
    return new


def test_resize_changes_cpu_and_memory_and_the_generation() -> None:
    old = a_running_pod()
    wanted = {"requests": amounts("500m", "32Mi"), "limits": amounts("3", "1Gi")}
    new, errors = resize(old, resized(old, **wanted))
    assert errors == []
    assert new["spec"]["containers"][0]["resources"] == wanted
    assert new["metadata"]["generation"] == 2


def test_resize_drops_all_other_changes_silently() -> None:
    old = a_running_pod()
    new = resized(old, requests=amounts("1"), limits=amounts("3"))
    new["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    new["spec"]["activeDeadlineSeconds"] = 1
    new["spec"]["containers"][0]["image"] = "other:1"
    new["status"] = {"phase": "Failed"}
    stored, errors = resize(old, new)
    assert errors == []
    assert "labels" not in stored["metadata"]
    assert "annotations" not in stored["metadata"]
    assert "activeDeadlineSeconds" not in stored["spec"]
    assert stored["spec"]["containers"][0]["image"] == "busybox:1"
    assert stored["status"] == old["status"]


def test_resize_without_a_change_keeps_the_generation() -> None:
    old = a_running_pod()
    new, errors = resize(old, old)
    assert errors == []
    assert new["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (
            {"requests": {"cpu": "1"}, "limits": amounts("2")},
            # Defaulting restores a removed request from its limit, as upstream.
            "",
        ),
        (
            {"requests": amounts("1"), "limits": {"cpu": "2"}},
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (
            {"requests": amounts("3"), "limits": amounts("2")},
            'spec.containers[0].resources.requests: Invalid value: "3": '
            "must be less than or equal to cpu limit of 2",
        ),
        (
            {"requests": amounts("2"), "limits": amounts("2")},
            'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of '
            "resizing",
        ),
        (
            {
                "requests": {**amounts("1"), "ephemeral-storage": "1Gi"},
                "limits": {**amounts("2"), "ephemeral-storage": "1Gi"},
            },
            ONLY_RESOURCES,
        ),
    ],
)
def test_resize_refuses_what_may_not_change(wanted: Document, error: str) -> None:
    old = a_running_pod()
    _, errors = resize(old, resized(old, **wanted))
    assert errors == ([error] if error else [])


def test_resize_refuses_another_resize_policy() -> None:
    old = a_running_pod(restartPolicy="Always")
    new = copy.deepcopy(old)
    policy = {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
    new["spec"]["containers"][0]["resizePolicy"] = [policy]
    assert resize(old, new)[1] == [ONLY_RESOURCES]


def test_resize_refuses_added_and_renamed_containers() -> None:
    old = a_running_pod()
    added = copy.deepcopy(old)
    added["spec"]["containers"].append({"name": "more", "image": "busybox:1"})
    assert resize(old, added)[1] == [
        "spec.containers: Forbidden: containers may not be added or removed on resize"
    ]
    renamed = copy.deepcopy(old)
    renamed["spec"]["containers"][0]["name"] = "other"
    assert resize(old, renamed)[1] == [
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    ]


def test_resize_needs_a_node_that_reports_resources() -> None:
    old = a_running_pod()
    del old["status"]["containerStatuses"][0]["resources"]
    _, errors = resize(old, resized(old, requests=amounts("1"), limits=amounts("3")))
    assert errors == ["spec: Forbidden: Pod running on node without support for resize"]


def test_resize_changes_init_containers_and_the_pods_own_resources() -> None:
    init = {"name": "first", "image": "busybox:1", "resources": {"requests": amounts("1")}}
    old = a_running_pod(
        initContainers=[init], resources={"requests": amounts("2"), "limits": amounts("4")}
    )
    new = copy.deepcopy(old)
    new["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = "2"
    new["spec"]["resources"]["limits"]["cpu"] = "5"
    stored, errors = resize(old, new)
    assert errors == []
    assert stored["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] == "2"
    assert stored["spec"]["resources"]["limits"]["cpu"] == "5"
    removed = copy.deepcopy(old)
    del removed["spec"]["resources"]["limits"]["cpu"]
    assert resize(old, removed)[1] == [
        "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"
    ]


def test_an_init_container_cannot_be_restarted_by_a_resize() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    init = {"name": "first", "image": "busybox:1", "resizePolicy": policy}
    pod = a_pod(restartPolicy="Always", initContainers=[init])
    POD.default(pod)
    POD.prepare_create(pod)
    assert [str(error) for error in POD.validate_create(pod)] == [
        'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": '
        "must not be set to 'RestartContainer' for non-sidecar initContainers"
    ]
