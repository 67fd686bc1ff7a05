"""Reasons why Pods do not start, read from their documents."""

from typing import Any

import msgspec
import pytest

from onejob.diagnosis.pod_waits import PodWait, find_wait, short_resources, start_hint
from onejob.objects.pod_spec import NodePodSpec
from onejob.planning.pod.gang import Gang, gang_problem
from onejob.planning.pod.placement import LONG_AGO, Candidate, NodeView, Taint
from tests.cli.build import pod_document

NODE = NodeView("here", allocatable={"cpu": 2000, "memory": 2**30, "pods": 110})


def wait_of(
    spec: dict[str, Any] | None = None,
    waiting: dict[str, str] | None = None,
    node: NodeView = NODE,
    **status: Any,
) -> PodWait | None:
    pod = pod_document(phase="Pending")
    pod["spec"] |= {"nodeName": "here"} if waiting is not None else {}
    pod["spec"] |= spec or {}
    pod["status"] = {"phase": "Pending", **status}
    if waiting is not None:
        pod["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": waiting}}]
    return find_wait(msgspec.json.encode(pod), node)


def asks(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("reason", "message", "step"),
    [
        ("CreateContainerConfigError", 'configmap "x" not found', "pass the file"),
        ("CreateContainerConfigError", "couldn't find key c in Secret a/b", "add the key"),
        ("CreateContainerConfigError", "container has runAsNonRoot and", "runAsUser"),
        ("ErrImageNeverPull", "not present", "imagePullPolicy: Never"),
        ("InvalidImageName", "invalid reference format", "correct the container's image"),
    ],
)
def test_unsatisfiable_waits_are_recognised(reason: str, message: str, step: str) -> None:
    wait = wait_of(waiting={"reason": reason, "message": message})
    assert wait is not None
    assert (wait.reason, wait.message) == (reason, message)
    assert wait.patience_seconds == 1.5
    assert step in wait.next_step


def test_a_wait_for_slurm_is_reported_and_never_permanent() -> None:
    message = "allocation 7 is pending: QOSMaxCpuPerUserLimit"
    wait = wait_of(waiting={"reason": "WaitingForSlurm", "message": message})
    assert wait is not None
    assert (wait.text, wait.lasting) == (f"WaitingForSlurm: {message}", False)


@pytest.mark.parametrize(
    ("message", "patience"),
    [
        ('MountVolume.SetUp failed for volume "v" : configmap "x" not found', 1.5),
        ('MountVolume.SetUp failed for volume "v" : /x: No space left on device', 16.0),
    ],
)
def test_mounts_that_fail(message: str, patience: float) -> None:
    wait = wait_of(waiting={"reason": "ContainerCreating", "message": message})
    assert wait is not None
    assert (wait.reason, wait.patience_seconds) == ("FailedMount", patience)


def test_an_image_is_tried_again_before_the_run_gives_up() -> None:
    wait = wait_of(waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling"})
    assert wait is not None
    assert wait.patience_seconds == 16.0


@pytest.mark.parametrize(
    "waiting",
    [
        {"reason": "ContainerCreating"},
        {"reason": "PodInitializing"},
        {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"},
        {
            "reason": "CreateContainerConfigError",
            "message": 'configmap "kube-root-ca.crt" not found',
        },
    ],
)
def test_temporary_waits_are_not_reported(waiting: dict[str, str]) -> None:
    assert wait_of(waiting=waiting) is None


def test_a_pod_may_wait_for_one_container_while_another_runs() -> None:
    pod = pod_document(phase="Running")
    pod["spec"] |= {"nodeName": "here", "containers": [{"name": "main"}, {"name": "other"}]}
    blocked = {"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}
    pod["status"]["containerStatuses"].append({"name": "other", "state": blocked})
    wait = find_wait(msgspec.json.encode(pod), NODE)
    assert wait is not None
    assert not wait.idle
    pod["spec"]["initContainers"] = [{"name": "main", "restartPolicy": "Always"}]
    wait = find_wait(msgspec.json.encode(pod), NODE)
    assert wait is not None
    assert wait.idle, "a sidecar alone brings nothing about"


def test_a_request_larger_than_the_node_names_both_amounts() -> None:
    wait = wait_of(asks(cpu="3", memory="1Gi"))
    assert wait is not None
    assert wait.lasting
    assert wait.text == (
        "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu: it requests cpu 3 of 2"
    )
    assert "--capacity cpu=3" in wait.next_step


@pytest.mark.parametrize(
    ("spec", "node", "expected"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, NODE, "node affinity/selector"),
        ({}, NodeView("here", taints=(Taint("a", "b"),)), "untolerated taint"),
        ({"schedulingGates": [{"name": "example.org/hold"}]}, NODE, "example.org/hold"),
        ({"schedulerName": "mine"}, NODE, 'schedulerName is "mine"'),
    ],
)
def test_a_pod_that_fits_no_node(spec: dict[str, Any], node: NodeView, expected: str) -> None:
    wait = wait_of(spec, node=node)
    assert wait is not None
    assert wait.lasting
    assert expected in wait.text
    assert wait.next_step


def test_pod_waiting_for_resources_names_shortage() -> None:
    said = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
    }
    unsaid = wait_of(asks(cpu="1"))
    assert unsaid is not None
    assert not unsaid.explained
    wait = wait_of(asks(cpu="1"), conditions=[said])
    assert wait is not None
    assert wait.explained
    assert not wait.lasting
    assert wait.message == "waiting for capacity: cpu, memory"


@pytest.mark.parametrize(
    ("free", "capacity", "text", "lasting"),
    [
        (1, 3, "needs 2 Pods at once, but there is room for 1", False),
        (1, 1, "needs 2 Pods at once, but the node can never run more than 1", True),
    ],
)
def test_pod_of_a_gang_names_what_its_gang_lacks(
    free: int, capacity: int, text: str, lasting: bool
) -> None:
    group = {"schedulingGroup": {"podGroupName": "g"}}
    one = Candidate("a", NodePodSpec(), {"pods": 1}, LONG_AGO)
    message = gang_problem("g", Gang(2, 0, [one, one]), {"pods": free}, {"pods": capacity})
    said = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    wait = wait_of(group, conditions=[said])
    assert wait is not None
    assert text in wait.message
    assert wait.lasting is lasting


def test_a_node_that_lacks_something_for_now_is_waited_for() -> None:
    full = NodeView("here", taints=(Taint("node.kubernetes.io/disk-pressure"),))
    wait = wait_of(node=full)
    assert wait is not None
    assert not wait.lasting
    assert not wait.for_room
    assert "disk-pressure" in wait.message
    short = wait_of(waiting={"reason": "DiskPressure", "message": "No space left on device"})
    assert short is not None
    assert (short.lasting, short.for_room) == (False, False)


def test_names_of_short_resources() -> None:
    text = "0/1 nodes are available: 1 Insufficient example.com/gpu, 1 Too many pods."
    assert short_resources(text) == ["example.com/gpu", "pods"]
    assert short_resources("0/1 nodes are available: 1 node(s) were unschedulable.") == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('exec: "./x": no such file or directory', "start in /home/me; check that ./x exists"),
        ('exec: "x": executable file not found in $PATH', "check that x is installed"),
        ('exec: "./x": permission denied', "chmod +x ./x"),
        ('exec: "./x.py": permission denied', "its interpreter: python3 ./x.py"),
        ('exec: "./x.yaml": permission denied', "onejob run ./x.yaml, without --"),
        ('exec: "./x": exec format error', "#!/bin/sh"),
        ('exec: "./x": its interpreter was not found', "the first line of ./x"),
        ("something else", ""),
    ],
)
def test_hints_for_programs_that_cannot_be_started(message: str, expected: str) -> None:
    hint = start_hint(message, "/home/me")
    assert expected in hint
    assert bool(hint) == bool(expected)


@pytest.mark.parametrize(
    "spec",
    [{"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, {"schedulerName": "volcano"}],
)
def test_waits_for_other_components_of_a_cluster_are_not_permanent(spec: dict[str, Any]) -> None:
    here = wait_of(spec)
    assert here is not None
    assert here.lasting
    pod = pod_document(phase="Pending")
    pod["spec"] |= spec
    elsewhere = find_wait(msgspec.json.encode(pod), None)
    assert elsewhere is not None
    assert not elsewhere.lasting
