"""Guarantees of real containers: those of processes, plus the files of the image."""

import os
import signal
from pathlib import Path

import pytest

from onejob.client.base import Delete, Patch
from onejob.objects.meta import PODS, Key
from tests.node.podman.support import (
    ENGINE,
    IMAGE,
    NEEDS_PODMAN,
    a_podman_node,
    in_image,
    script,
)
from tests.node.support import NODE, Document, Node, the_container, with_spec

pytestmark = NEEDS_PODMAN


def exit_of(pod: Document) -> Document:
    state: Document = the_container(pod)["state"]["terminated"]
    return state


async def keep(node: Node, name: str) -> None:
    """Add a finalizer, so that a deleted Pod can still be read."""
    body = b'{"metadata":{"finalizers":["example.com/keep"]}}'
    await node.client.write(Patch(Key(PODS, "default", name), body))


async def test_container_runs_its_image_and_reports_end(place: Path) -> None:
    async with a_podman_node(place) as node:
        ended = await node.run(in_image())
        assert ended["status"]["phase"] == "Succeeded"
        assert exit_of(ended)["reason"] == "Completed"
        assert the_container(ended)["containerID"].startswith(f"{node.agent.runtime.name}://")
        assert await node.output("p") == "by default\n"


async def test_command_and_args_replace_those_of_the_image_each_as_kubernetes_has_it(
    place: Path,
) -> None:
    async with a_podman_node(place) as node:
        await node.create(in_image(name="args", args=["only", "args"]))
        await node.create(in_image("echo", name="command"))
        await node.create(
            in_image("echo", "-n", name="both", args=["$(A)", "$$(A)", "$(NOPE)"],
                     env=[{"name": "A", "value": "two words"}])
        )  # fmt: skip
        expected = {"args": "only args\n", "command": "\n", "both": "two words $(A) $(NOPE)"}
        for name, text in expected.items():
            await node.finished(name)
            assert await node.output(name) == text


async def test_environment_identity_working_dir_and_hostname_are_as_the_pod_asks(
    place: Path,
) -> None:
    env = [
        {"name": "LINES", "value": "a\nb"},
        {"name": "EMPTY", "value": ""},
        {"name": "PATH", "value": "/bin:/elsewhere"},
        {"name": "HOME", "value": "/here"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    text = 'echo "$LINES|$EMPTY|$PATH|$HOME|$NODE|$OF_IMAGE|$HOSTNAME"; id; pwd; hostname'
    async with a_podman_node(place) as node:
        pod = script(text, env=env, workingDir="/bin", securityContext={"runAsUser": 1234})
        shared = {"runAsGroup": 55, "fsGroup": 66, "supplementalGroups": [77]}
        await node.run(with_spec(pod, securityContext=shared, hostname="chosen"))
        assert (await node.output("p")).splitlines() == [
            "a",
            f"b||/bin:/elsewhere|/here|{NODE}|1|chosen",
            "uid=1234 gid=55 groups=55,66,77",
            "/bin",
            "chosen",
        ]


async def test_volumes_are_at_their_mount_paths_and_shared_by_the_containers_of_a_pod(
    place: Path,
) -> None:
    mounts = [
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "config", "mountPath": "/etc/config", "readOnly": True},
        {"name": "scratch", "mountPath": "/part", "subPath": "a/b"},
    ]
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "settings"}},
    ]
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"greeting": "hello"},
    }
    first = {
        "name": "first",
        "image": IMAGE,
        "command": ["sh", "-c", "cat /etc/config/greeting > /scratch/said; echo x > /part/c"],
        "volumeMounts": mounts,
    }
    async with a_podman_node(place) as node:
        await node.create(config)
        pod = script("cat /scratch/said /scratch/a/b/c; touch /etc/config/new", volumeMounts=mounts)
        ended = await node.run(with_spec(pod, initContainers=[first], volumes=volumes))
        output = await node.output("p")
        assert "hellox\n" in output
        assert "Read-only file system" in output
        assert exit_of(ended)["exitCode"] == 1


async def test_host_aliases_and_memory_volumes_are_as_the_pod_asks(place: Path) -> None:
    aliases = [
        {"ip": "203.0.113.7", "hostnames": ["one.example", "two.example"]},
        {"ip": "2001:db8::7", "hostnames": ["six.example"]},
    ]
    mount = [{"name": "v", "mountPath": "/memory"}]
    pod = script("cat /etc/hosts /proc/mounts", volumeMounts=mount)
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    async with a_podman_node(place) as node:
        await node.run(with_spec(pod, hostAliases=aliases, volumes=volumes))
        lines = [line.split() for line in (await node.output("p")).splitlines()]
        names = {name: line[0] for line in lines for name in line[1:]}
        assert names["one.example"] == names["two.example"] == "203.0.113.7"
        assert names["six.example"] == "2001:db8::7"
        if os.geteuid() == 0:
            (memory,) = (line for line in lines if line[1] == "/memory")
            assert memory[2] == "tmpfs"
            assert "size=1024k" in memory[3].split(",")


async def test_a_config_map_changes_in_a_running_container(place: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"a": "1", "old": "x"},
    }
    pod = script(
        "until [ ! -e /etc/config/old ]; do sleep 0.1; done; cat /etc/config/a",
        volumeMounts=[{"name": "v", "mountPath": "/etc/config"}],
    )
    pod = with_spec(pod, volumes=[{"name": "v", "configMap": {"name": "settings"}}])
    async with a_podman_node(place) as node:
        await node.create(config)
        await node.create(pod)
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        key = Key("configmaps", "default", "settings")
        await node.client.write(Patch(key, b'{"data":{"a":"2","old":null}}', "merge"))
        await node.finished("p")
        assert await node.output("p") == "2"


async def test_the_termination_message_is_read_from_its_file_or_from_the_end_of_the_log(
    place: Path,
) -> None:
    async with a_podman_node(place) as node:
        await node.create(script("echo farewell > /dev/termination-log", name="file"))
        await node.create(
            script("echo went wrong; exit 4", name="log",
                   terminationMessagePolicy="FallbackToLogsOnError")
        )  # fmt: skip
        assert exit_of(await node.finished("file"))["message"] == "farewell\n"
        failed = exit_of(await node.finished("log"))
        assert (failed["exitCode"], failed["message"]) == (4, "went wrong\n")


async def test_a_program_that_is_not_in_the_image_is_a_start_error(place: Path) -> None:
    async with a_podman_node(place) as node:
        ended = await node.run(in_image("no-such-program"))
        state = exit_of(ended)
        assert (state["exitCode"], state["reason"]) == (128, "StartError")
        assert "no-such-program" in state["message"]


async def test_a_container_above_its_memory_limit_is_oom_killed(place: Path) -> None:
    limits = {"limits": {"memory": "20Mi", "cpu": "500m"}}
    async with a_podman_node(place) as node:
        ended = await node.run(script("x=a; while :; do x=$x$x; done", resources=limits))
        state = exit_of(ended)
        assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")


@pytest.mark.parametrize(
    ("on_term", "grace", "code"),
    [("exit 3", 30, 3), ("echo not me", 1, 128 + signal.SIGKILL)],
    ids=["one that obeys", "one that does not"],
)
async def test_a_deleted_pod_is_asked_to_end_and_killed_after_its_grace(
    place: Path, on_term: str, grace: int, code: int
) -> None:
    async with a_podman_node(place) as node:
        await node.create(script(f"trap '{on_term}' TERM; while :; do sleep 0.05; done"))
        await keep(node, "p")
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=grace))
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Failed"
        assert exit_of(ended)["exitCode"] == code
        assert exit_of(ended)["reason"] == "Error"


async def test_a_container_restarts_with_its_volumes_and_its_earlier_log_stays(place: Path) -> None:
    async with a_podman_node(place) as node:
        pod = script(
            "if test -e /data/x; then echo second; else touch /data/x; echo first; exit 1; fi",
            policy="OnFailure",
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        )
        ended = await node.run(with_spec(pod, volumes=[{"name": "data", "emptyDir": {}}]))
        assert ended["status"]["phase"] == "Succeeded"
        assert the_container(ended)["restartCount"] == 1
        assert await node.output("p") == "second\n"
        assert await node.output("p", previous=True) == "first\n"


async def test_an_engine_that_fails_after_the_program_began_does_not_run_it_again(
    place: Path,
) -> None:
    engine = place / "podman"
    command = " ".join(ENGINE)
    engine.write_text(
        f'#!/bin/sh\n[ "$1" = run ] || exec {command} "$@"\n{command} "$@"\nexit 125\n'
    )
    engine.chmod(0o755)
    async with a_podman_node(place, engine=(str(engine),)) as node:
        pod = script(
            "echo run >> /data/runs; cat /data/runs",
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        )
        ended = await node.run(with_spec(pod, volumes=[{"name": "data", "emptyDir": {}}]))
        assert ended["status"]["phase"] == "Succeeded"
        assert await node.output("p") == "run\n"


async def test_exec_probes_run_inside_the_container(place: Path) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    async with a_podman_node(place) as node:
        await node.create(script("sleep 0.3; touch /tmp/ready; sleep 60", readinessProbe=probe))
        pod = await node.until("p", lambda p: p["status"]["phase"] == "Running")
        assert not the_container(pod)["ready"]
        await node.until("p", lambda p: the_container(p)["ready"])
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
        await node.gone("p")


async def test_logs_can_be_followed_and_keep_the_time_of_each_line(place: Path) -> None:
    async with a_podman_node(place) as node:
        await node.create(script("echo one; sleep 0.1; echo two >&2; sleep 0.2; echo -n three"))
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        assert await node.output("p", follow=True) == "one\ntwo\nthree"
        await node.finished("p")
        stamped = (await node.output("p", timestamps=True)).splitlines()
        assert [line.split(" ", 1)[1] for line in stamped] == ["one", "two", "three"]
        times = [line.split(" ", 1)[0] for line in stamped]
        assert times == sorted(times)
        assert all(time.endswith("Z") for time in times)
        assert await node.output("p", tail_lines=1) == "three"


async def test_the_engine_enforces_the_security_context(place: Path) -> None:
    context = {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        "seccompProfile": {"type": "Unconfined"},
    }
    text = (
        "(echo x > /new) 2>/dev/null || echo kept; "
        "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'"
    )
    async with a_podman_node(place) as node:
        await node.run(script(text, securityContext=context))
        assert (await node.output("p")).splitlines() == [
            "kept",
            "CapEff:0000000000000001",
            "NoNewPrivs:1",
            "Seccomp:0",
        ]
        await node.create(script("true", name="q", securityContext={"runAsNonRoot": True}))
        pod = await node.until("q", lambda p: p["status"].get("containerStatuses"))
        waiting = the_container(pod)["state"]["waiting"]
        assert waiting["reason"] == "CreateContainerConfigError"
        assert waiting["message"].startswith(
            "container has runAsNonRoot and image will run as root"
        )
