"""Strategy of Pods: fields set by the server, permitted updates, deletion."""

from typing import Any

import pytest

from tests.api.kinds.build import (
    a_container,
    a_pod,
    create,
    created,
    strategy,
    update,
    update_status,
)

POD = strategy("pods")


def test_a_new_pod_is_pending() -> None:
    pod = a_pod()
    pod["status"] = {"phase": "Succeeded"}
    stored = created(POD, pod)
    assert stored["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert stored["metadata"]["generation"] == 1
    assert stored["spec"]["enableServiceLinks"] is True
    assert stored["spec"]["serviceAccountName"] == "default"
    assert stored["spec"]["serviceAccount"] == "default"


def test_the_old_name_of_the_service_account_still_works() -> None:
    spec = created(POD, a_pod(serviceAccount="robot"))["spec"]
    assert spec["serviceAccountName"] == "robot"


def test_limits_are_the_default_of_requests() -> None:
    container = a_container(resources={"limits": {"cpu": "2", "memory": "1Gi"},
                                       "requests": {"cpu": "1"}})  # fmt: skip
    (stored,) = created(POD, a_pod(containers=[container]))["spec"]["containers"]
    assert stored["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        (
            [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}],
            "Guaranteed",
        ),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}], "Burstable"),
    ],
)
def test_quality_of_service(resources: list[dict[str, Any]], quality: str) -> None:
    containers = [a_container(name=f"c{i}", resources=r) for i, r in enumerate(resources)]
    assert created(POD, a_pod(containers=containers))["status"]["qosClass"] == quality


def test_scheduling_gates_hold_a_pod_back() -> None:
    pod = created(POD, a_pod(schedulingGates=[{"name": "example.com/wait"}]))
    assert pod["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    ]
    gated = a_pod(schedulingGates=[{"name": "example.com/wait"}], nodeName="n")
    assert create(POD, gated)[1] == [
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
    ]


# --- TTL --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "seconds", "errors"),
    [
        ("Never", 0, []),
        ("OnFailure", 5, []),
        (
            "Never",
            -1,
            ["spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "Always",
            5,
            [
                "spec.ttlSecondsAfterFinished: Forbidden: "
                'may only be set when restartPolicy is "Never" or "OnFailure"'
            ],
        ),
    ],
)
def test_a_ttl_needs_a_pod_that_can_finish(policy: str, seconds: int, errors: list[str]) -> None:
    pod = a_pod(restartPolicy=policy, ttlSecondsAfterFinished=seconds)
    assert create(POD, pod)[1] == errors


def test_a_ttl_may_come_and_go() -> None:
    pod = created(POD, a_pod())
    with_ttl, errors = update(POD, pod, ttlSecondsAfterFinished=5)
    assert errors == []
    assert with_ttl["metadata"]["generation"] == 2
    assert update(POD, with_ttl, ttlSecondsAfterFinished=None)[1] == []


def test_without_its_gate_a_ttl_is_dropped_unless_it_is_stored() -> None:
    off = strategy("pods", TTLAfterFinishedPods=False)
    assert "ttlSecondsAfterFinished" not in created(off, a_pod(ttlSecondsAfterFinished=1))["spec"]
    without = created(off, a_pod())
    assert (
        "ttlSecondsAfterFinished" not in update(off, without, ttlSecondsAfterFinished=1)[0]["spec"]
    )
    stored = created(POD, a_pod(ttlSecondsAfterFinished=1))
    assert update(off, stored, ttlSecondsAfterFinished=2)[0]["spec"]["ttlSecondsAfterFinished"] == 2


# --- updates ----------------------------------------------------------------------------------

REFUSAL = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)\n"
)

TOLERATION = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        ({}, {"containers": [a_container(image="other:2")]}),
        ({}, {"activeDeadlineSeconds": 10}),
        ({"activeDeadlineSeconds": 10}, {"activeDeadlineSeconds": 5}),
        ({"tolerations": [TOLERATION]}, {"tolerations": [TOLERATION, {"operator": "Exists"}]}),
        ({"schedulingGates": [{"name": "a/b"}]}, {"schedulingGates": None}),
        ({"schedulingGates": [{"name": "a/b"}]}, {"nodeSelector": {"a": "b"}}),
        ({"terminationGracePeriodSeconds": -5}, {"terminationGracePeriodSeconds": 1}),
        ({}, {"volumes": []}),
    ],
)
def test_what_may_change(before: dict[str, Any], changes: dict[str, Any]) -> None:
    assert update(POD, created(POD, a_pod(**before)), **changes)[1] == []


@pytest.mark.parametrize(
    ("before", "changes", "error"),
    [
        ({}, {"nodeName": "n"}, f"{REFUSAL}  spec.nodeName: None -> 'n'\n"),
        (
            {},
            {"containers": [a_container(command=["x"])]},
            f"{REFUSAL}  spec.containers[0].command: None -> ['x']\n",
        ),
        ({}, {"nodeSelector": {"a": "b"}}, f"{REFUSAL}  spec.nodeSelector: None -> {{'a': 'b'}}\n"),
        (
            {"terminationGracePeriodSeconds": 0},
            {"terminationGracePeriodSeconds": 1},
            f"{REFUSAL}  spec.terminationGracePeriodSeconds: 0 -> 1\n",
        ),
        (
            {},
            {"terminationGracePeriodSeconds": 1},
            f"{REFUSAL}  spec.terminationGracePeriodSeconds: 30 -> 1\n",
        ),
        (
            {},
            {"containers": [a_container(), a_container(name="b")]},
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            {"activeDeadlineSeconds": 10},
            {"activeDeadlineSeconds": 11},
            "spec.activeDeadlineSeconds: Invalid value: 11: "
            "must be less than or equal to previous value",
        ),
        (
            {"activeDeadlineSeconds": 10},
            {"activeDeadlineSeconds": None},
            "spec.activeDeadlineSeconds: Invalid value: null: "
            "must not update from a positive integer to nil value",
        ),
        (
            {"tolerations": [TOLERATION]},
            {"tolerations": []},
            "spec.tolerations: Forbidden: "
            "existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            {},
            {"schedulingGates": [{"name": "a/b"}]},
            "spec.schedulingGates[0]: Forbidden: "
            "only deletion is allowed, but found new scheduling gate 'a/b'",
        ),
    ],
)
def test_what_may_not_change(before: dict[str, Any], changes: dict[str, Any], error: str) -> None:
    assert update(POD, created(POD, a_pod(**before)), **changes)[1] == [error]


def test_metadata_may_change_freely() -> None:
    pod = created(POD, a_pod())
    pod["metadata"]["labels"] = {"a": "b"}
    new = {**pod, "metadata": {**pod["metadata"], "labels": {}, "ownerReferences": []}}
    assert POD.validate_update(new, pod) == []


# --- status -----------------------------------------------------------------------------------


def ended(exit_code: int) -> dict[str, Any]:
    return {"name": "main", "state": {"terminated": {"exitCode": exit_code}}}


RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
REVIVED = (
    "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
)


@pytest.mark.parametrize(
    ("policy", "container", "exit_code", "errors"),
    [
        ("Never", {}, 1, [REVIVED]),
        ("OnFailure", {}, 1, []),
        ("OnFailure", {}, 0, [REVIVED]),
        ("Always", {}, 0, []),
        ("Never", {"restartPolicy": "OnFailure"}, 1, []),
        ("OnFailure", {"restartPolicy": "Never"}, 1, [REVIVED]),
        (
            "Never",
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
                ],
            },
            42,
            [],
        ),
    ],
)
def test_ended_container_restarts_only_if_policy_allows(
    policy: str, container: dict[str, Any], exit_code: int, errors: list[str]
) -> None:
    pod = created(POD, a_pod(restartPolicy=policy, containers=[a_container(**container)]))
    pod["status"]["containerStatuses"] = [ended(exit_code)]
    assert update_status(POD, pod, RUNNING) == errors


def test_any_phase_may_follow_any_other() -> None:
    pod = created(POD, a_pod())
    pod["status"] = {"phase": "Succeeded"}
    assert update_status(POD, pod, {"phase": "Failed"}) == []


def test_a_status_write_touches_neither_owners_nor_quality() -> None:
    pod = created(POD, a_pod())
    owner = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}
    pod["metadata"]["ownerReferences"] = [owner]
    metadata = {"name": "p", "namespace": "default"}
    new: dict[str, Any] = {"metadata": metadata, "status": {"phase": "Running"}}
    POD.prepare_status_update(new, pod)
    assert new["metadata"]["ownerReferences"] == [owner]
    assert new["status"]["qosClass"] == "BestEffort"
    assert new["spec"] == pod["spec"]


# --- deletion and selection -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "phase", "requested", "grace"),
    [
        ({"nodeName": "n"}, "Running", None, 30),
        ({"nodeName": "n"}, "Running", 5, 5),
        ({"nodeName": "n"}, "Running", 0, 0),
        ({"nodeName": "n"}, "Running", -7, 1),
        ({"nodeName": "n", "terminationGracePeriodSeconds": -1}, "Running", None, 1),
        ({}, "Pending", None, 0),
        ({}, "Pending", 30, 0),
        ({"nodeName": "n"}, "Succeeded", None, 0),
        ({"nodeName": "n"}, "Failed", 30, 0),
    ],
)
def test_grace_of_a_deleted_pod(
    spec: dict[str, Any], phase: str, requested: int | None, grace: int
) -> None:
    pod = created(POD, a_pod(**spec))
    pod["status"]["phase"] = phase
    assert POD.deletion_grace_seconds(pod, requested) == grace


def test_pods_are_selected_by_where_they_run_and_how_they_are() -> None:
    pod = created(POD, a_pod(nodeName="n"))
    pod["status"] |= {"podIP": "10.0.0.1"}
    assert POD.selectable_fields(pod) == {
        "spec.nodeName": "n",
        "spec.restartPolicy": "Never",
        "spec.schedulerName": "default-scheduler",
        "spec.serviceAccountName": "default",
        "spec.hostNetwork": "false",
        "status.phase": "Pending",
        "status.podIP": "10.0.0.1",
        "status.podIPs": "10.0.0.1",
        "status.nominatedNodeName": "",
    }
    for field in POD.selectable_fields(pod):
        assert POD.field_label_error(field) is None
    assert POD.field_label_error("spec.x") == "field label not supported: spec.x"


def test_a_dotted_name_makes_a_surprising_hostname() -> None:
    assert POD.warnings_on_create(created(POD, a_pod(name="a.b"))) == [
        "metadata.name: this is used in the Pod's hostname, which can result in surprising "
        "behavior; a DNS label is recommended: [must not contain dots]"
    ]


def test_ephemeral_containers_come_later() -> None:
    assert create(POD, a_pod(ephemeralContainers=[{"name": "e"}]))[1] == [
        "spec.ephemeralContainers: Forbidden: cannot be set on create"
    ]
