"""The twelve rules that upstream's end-to-end tests check on a node."""

import os
import re
import signal
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Delete, Evict, Patch
from onejob.objects.meta import NODES, PODS, Key
from tests.node.support import (
    NODE,
    a_pod,
    a_process_node,
    alive,
    condition,
    needs_namespaces,
    shell,
    the_container,
    until_dead,
    with_spec,
)


async def test_rule_1_the_pause_image_sleeps_until_sigterm_and_exits_0(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(a_pod(image="registry.example/pause:3.10"))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await node.client.write(_keep("p"))
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=10))
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 0
        assert ended["status"]["phase"] == "Succeeded"


async def test_rule_1_a_busybox_without_command_exits_0_at_once(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        ended = await node.run(a_pod(image="registry.example/test-images/busybox:1.37"))
        assert ended["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("name", ["sh", "/bin/sh"])
async def test_rule_2_sh_supports_more_than_dash(tmp_path: Path, name: str) -> None:
    script = "[[ 1 == 1 ]] && trap 'exit 7' SIGTERM && kill $$$$; sleep 1; exit $((RANDOM * 0))"
    async with a_process_node(tmp_path) as node:
        ended = await node.run(a_pod(name, "-c", script))
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 7


@needs_namespaces
async def test_rule_3_concurrent_pods_each_see_their_own_empty_dir_at_the_same_path(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path) as node:
        for name in ("p", "q"):
            pod = shell(
                "test ! -e /data/mine && echo $HOSTNAME > /data/mine && cat /data/mine",
                name=name,
                volumeMounts=[{"name": "data", "mountPath": "/data"}],
            )
            await node.create(with_spec(pod, volumes=[{"name": "data", "emptyDir": {}}]))
        for name in ("p", "q"):
            ended = await node.finished(name)
            assert ended["status"]["phase"] == "Succeeded", await node.output(name)
            assert await node.output(name) == f"{name}\n"
    assert not Path("/data/mine").exists()


async def test_rule_3_an_empty_dir_survives_a_container_restart(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        pod = shell(
            "if [[ -r /data/x ]]; then exit 0; else touch /data/x; exit 1; fi",
            policy="OnFailure",
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        )
        ended = await node.run(with_spec(pod, volumes=[{"name": "data", "emptyDir": {}}]))
        assert ended["status"]["phase"] == "Succeeded"
        assert the_container(ended)["restartCount"] == 1


async def test_rule_3_a_host_path_is_shared_and_created_where_asked(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "deep"
    volume = {"name": "v", "hostPath": {"path": str(shared), "type": "DirectoryOrCreate"}}
    async with a_process_node(tmp_path) as node:
        pod = shell("echo here > /data/f", volumeMounts=[{"name": "v", "mountPath": "/data"}])
        ended = await node.run(with_spec(pod, volumes=[volume]))
        assert ended["status"]["phase"] == "Succeeded"
        assert (shared / "f").read_text() == "here\n"


async def test_rule_4_env_comes_from_fields_and_expands(tmp_path: Path) -> None:
    fields = {
        "A": "metadata.labels['k']",
        "B": "metadata.annotations['a.b/c']",
        "C": "metadata.name",
        "D": "metadata.namespace",
        "E": "metadata.uid",
        "F": "spec.nodeName",
        "G": "status.podIP",
    }
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    env.append({"name": "H", "value": "$(A)-$(NOPE)-$$(A)"})
    async with a_process_node(tmp_path) as node:
        pod = shell("echo $A $B $C $D $E $F $G; echo '$(H)'; echo $HOSTNAME", env=env)
        pod["metadata"] |= {"labels": {"k": "v"}, "annotations": {"a.b/c": "w"}}
        ended = await node.run(pod)
        lines = (await node.output("p")).splitlines()
        uid = ended["metadata"]["uid"]
        assert lines[0] == f"v w p default {uid} {NODE} 127.0.0.1"
        assert lines[1] == "v-$(NOPE)-$(A)"
        assert lines[2] == "p"
        await node.run(with_spec(shell("echo $HOSTNAME", name="q"), hostname="chosen"))
        assert await node.output("q") == "chosen\n"


async def test_rule_5_sigterm_reaches_only_the_first_process_and_sigkill_all_of_them(
    tmp_path: Path,
) -> None:
    script = (
        "sh -c 'trap \"echo child got it\" TERM; echo $$$$ > child; while :; do sleep 0.05; done' &"
        "trap 'echo parent got it' TERM; while :; do sleep 0.05; done"
    )
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        await node.create(shell(script))
        await node.client.write(_keep("p"))
        await node.until("p", lambda _: (tmp_path / "child").exists())
        child = int((tmp_path / "child").read_text())
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=1))
        ended = await node.finished("p")
        state = the_container(ended)["state"]["terminated"]
        assert (state["exitCode"], state["signal"]) == (128 + signal.SIGKILL, signal.SIGKILL)
        assert ended["status"]["phase"] == "Failed"
        output = await node.output("p")
        assert "parent got it" in output
        assert "child got it" not in output
        assert not alive(child)


async def test_rule_6_a_crashing_container_backs_off_after_its_first_restart(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(shell("exit 3", policy="OnFailure"))
        pod = await node.until("p", lambda p: "waiting" in _state(p))
        status = the_container(pod)
        assert status["restartCount"] == 1
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["exitCode"] == 3
        assert pod["status"]["phase"] == "Running"
        events = await node.until_told("p")
        assert [reason for reason, _ in events] == ["BackOff"]


def _state(pod: dict[str, object]) -> dict[str, object]:
    statuses = msgspec.convert(pod, dict)["status"].get("containerStatuses")
    return dict(statuses[0]["state"]) if statuses else {}


async def test_rule_7_the_status_is_complete(tmp_path: Path) -> None:
    async def _read_again(path: Path) -> dict[str, object]:
        async with a_process_node(path) as node:
            return await node.pod("p")

    async with a_process_node(tmp_path) as node:
        await node.create(shell("sleep 60"))
        running = await node.until("p", lambda p: p["status"]["phase"] == "Running")
        status = running["status"]
        assert status["startTime"]
        assert status["hostIP"] == status["podIP"] == status["podIPs"][0]["ip"]
        container = the_container(running)
        assert container.keys() >= {
            "name", "image", "imageID", "containerID", "ready", "started", "restartCount",
            "state", "lastState",
        }  # fmt: skip
        assert container["ready"]
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
            assert (condition(running, kind) or {})["status"] == "True", kind
    ended = await _read_again(tmp_path)
    assert (condition(ended, "Ready") or {})["status"] == "False"
    assert the_container(ended)["state"]["terminated"]["reason"] == "Error"


async def test_rule_8_a_deleted_pod_turns_terminal_before_it_goes_and_keeps_its_conditions(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(shell("trap 'exit 0' TERM; while :; do sleep 0.05; done"))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await node.client.write(_keep("p"))
        await node.client.write(Evict(Key(PODS, "default", "p")))
        ended = await node.finished("p")
        assert (condition(ended, "DisruptionTarget") or {})["status"] == "True"
        body = msgspec.json.encode({"metadata": {"finalizers": None}})
        await node.until("p", lambda p: p["metadata"]["deletionGracePeriodSeconds"] == 0)
        await node.client.write(Patch(Key(PODS, "default", "p"), body, "merge"))
        await node.gone("p")


def _keep(name: str) -> Patch:
    """Return a patch that adds a finalizer, so that the object's last state can be read."""
    body = msgspec.json.encode({"metadata": {"finalizers": ["example.com/keep"]}})
    return Patch(Key(PODS, "default", name), body, "merge")


async def test_rule_9_exec_probe_runs_in_container_environment(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        probe = {"exec": {"command": ["sh", "-c", "cat /data/$NAME"]}, "periodSeconds": 1}
        pod = shell(
            "while [[ ! -e /data/go ]]; do sleep 0.05; done; touch /data/foo; sleep 60",
            env=[{"name": "NAME", "value": "foo"}],
            readinessProbe=probe,
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        )
        folder = tmp_path / "shared"
        volume = {"name": "data", "hostPath": {"path": str(folder), "type": ""}}
        await node.create(with_spec(pod, volumes=[volume]))
        early = await node.until("p", lambda p: p["status"]["phase"] == "Running")
        assert not the_container(early)["ready"]
        await node.until_told("p", "Unhealthy")
        (folder / "go").touch()
        ready = await node.until("p", lambda p: the_container(p)["ready"])
        assert (condition(ready, "Ready") or {})["status"] == "True"


async def test_rule_10_a_pod_waits_while_the_node_is_full_or_not_meant_for_it(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path) as node:
        big = {"resources": {"requests": {"cpu": "3"}}}
        await node.create(shell("while [[ ! -e go ]]; do sleep 0.05; done", name="p", **big))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await node.create(shell("exit 0", name="q", **big))
        wrong = {"kubernetes.io/hostname": "elsewhere"}
        await node.create(with_spec(shell("exit 0", name="r"), nodeSelector=wrong))
        unfit = await node.until("r", lambda p: condition(p, "PodScheduled"))
        assert (condition(unfit, "PodScheduled") or {})["reason"] == "Unschedulable"
        assert "nodeName" not in (await node.pod("q"))["spec"]
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
        assert (await node.finished("q"))["status"]["phase"] == "Succeeded"
        right = {"kubernetes.io/hostname": NODE}
        ended = await node.run(with_spec(shell("exit 0", name="s"), nodeSelector=right))
        assert ended["status"]["phase"] == "Succeeded"
        reasons = await node.events("r")
        assert reasons[0][0] == "FailedScheduling"


async def test_rule_10_a_security_context_never_fails_a_pod(tmp_path: Path) -> None:
    context = {"runAsUser": 65534, "runAsGroup": 65534, "runAsNonRoot": True}
    async with a_process_node(tmp_path) as node:
        ended = await node.run(shell("id -u; touch mine", securityContext=context))
        assert ended["status"]["phase"] == "Succeeded"
        expected = "65534" if os.geteuid() == 0 else str(os.geteuid())
        assert await node.output("p") == f"{expected}\n"


async def test_rule_11_the_node_is_ready_untainted_and_named_like_its_host_label(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path) as node:
        document = msgspec.json.decode(await node.client.get(Key(NODES, "", NODE)))
        assert document["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
        assert "taints" not in document.get("spec", {})
        ready = [c for c in document["status"]["conditions"] if c["type"] == "Ready"]
        assert ready[0]["status"] == "True"
        assert document["status"]["allocatable"]["cpu"] == "4"
        assert int(document["status"]["allocatable"]["pods"]) >= 110
        version = document["status"]["nodeInfo"]["kubeletVersion"]
        assert re.fullmatch(r"v1\.\d+\.\d+\+[0-9A-Za-z.-]+", version), version
        lease = Key("leases.coordination.k8s.io", "kube-node-lease", NODE)
        renewed = msgspec.json.decode(await node.client.get(lease))["spec"]["renewTime"]
        assert len(renewed) == len("2026-01-01T12:00:00.000000Z")


async def test_rule_12_processes_end_when_their_pod_object_vanishes(tmp_path: Path) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        await node.create(shell("trap '' TERM; echo $$$$ > pid; while :; do sleep 0.05; done"))
        await node.until("p", lambda _: (tmp_path / "pid").exists())
        pid = int((tmp_path / "pid").read_text())
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
        await node.gone("p")
        await until_dead(pid)
