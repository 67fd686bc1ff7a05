"""Environment of a container at its start (variables, volumes, neighbours), and its termination."""

import asyncio
import base64
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Patch
from onejob.node.images import NON_ROOT_USER, Images
from onejob.objects.meta import NODES, Key
from onejob.objects.pod_spec import Container, VolumeMount
from tests.holdings import holdings
from tests.node.support import (
    NODE,
    Document,
    Node,
    a_pod,
    a_process_node,
    alive,
    condition,
    needs_any_path,
    needs_namespaces,
    shell,
    the_container,
    until_dead,
    until_true,
    with_spec,
)

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c"},
    "data": {"a": "1", "b": "2"},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s"},
    "data": {"k": base64.b64encode(b"hidden").decode()},
}


def output_of(path: Path, pod: Document, **settings: Any) -> str:
    """Run a Pod that must succeed; return its output."""

    async def run() -> str:
        async with a_process_node(path, **settings) as node:
            await node.create(CONFIG)
            await node.create(SECRET)
            ended = await node.run(pod)
            text = await node.output("p")
            assert ended["status"]["phase"] == "Succeeded", (text, the_container(ended)["state"])
            return text

    return asyncio.run(run())


def mounting(script: str, volume: Document, **mount: Any) -> Document:
    where = {"name": "v", "mountPath": "/data", **mount}
    return with_spec(shell(script, volumeMounts=[where]), volumes=[{"name": "v", **volume}])


def test_env_comes_from_config_maps_and_secrets(tmp_path: Path) -> None:
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "a"}}},
        {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "pre_b", "value": "overrides"},
    ]
    everything = [{"prefix": "pre_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    pod = shell("echo $A $K $pre_a $pre_b $k", env=env, envFrom=everything)
    assert output_of(tmp_path, pod) == "1 hidden 1 overrides hidden\n"


def test_env_resource_fields_use_divisor(tmp_path: Path) -> None:
    def field(name: str, resource: str, **rest: str) -> Document:
        return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, **rest}}}

    env = [
        field("A", "limits.cpu"),
        field("B", "requests.cpu", divisor="1m"),
        field("C", "limits.memory", divisor="1Mi"),
        field("D", "requests.memory"),
    ]
    resources = {
        "limits": {"cpu": "1500m", "memory": "64Mi"},
        "requests": {"cpu": "250m", "memory": "1Ki"},
    }
    assert output_of(tmp_path, shell("echo $A $B $C $D", env=env, resources=resources)) == (
        "2 250 64 1024\n"
    )


def test_the_environment_is_small_and_known(tmp_path: Path) -> None:
    pod = a_pod("env", env=[{"name": "MINE", "value": "x"}])
    names = {line.partition("=")[0] for line in output_of(tmp_path, pod).splitlines()}
    assert names == {"PATH", "HOME", "HOSTNAME", "MINE"}


@pytest.mark.parametrize(
    ("volume", "script", "expected"),
    [
        ({"configMap": {"name": "c"}}, "cd /data; cat a b", "12"),
        (
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "x/y", "mode": 0o400}]}},
            "cat /data/x/y; stat -c %a /data/x/y; ls /data",
            "1400\nx\n",
        ),
        ({"configMap": {"name": "no", "optional": True}}, "ls /data", ""),
        ({"secret": {"secretName": "s", "defaultMode": 0o440}}, "cd /data; cat k; stat -Lc %a k",
         "hidden440\n"),
        (
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            "cat /data/n",
            "p",
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
                        {"secret": {"name": "s"}},
                    ]
                }
            },
            "cd /data; cat a k; ls",
            "1hiddena\nk\n",
        ),
    ],
)  # fmt: skip
def test_volumes_have_specified_content(
    tmp_path: Path, volume: Document, script: str, expected: str
) -> None:
    assert output_of(tmp_path, mounting(script, volume)) == expected


@needs_any_path
def test_a_mount_below_an_existing_directory_hides_nothing_else(tmp_path: Path) -> None:
    pod = mounting("cat /usr/share/here/a; test -e /usr/share/doc", {"configMap": {"name": "c"}},
                   mountPath="/usr/share/here")  # fmt: skip
    assert output_of(tmp_path, pod) == "1"
    assert not Path("/usr/share/here").exists()


@needs_namespaces
def test_a_mount_over_an_existing_directory_replaces_it_for_the_pod_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine").touch()
    pod = mounting(f"ls {target}", {"configMap": {"name": "c"}}, mountPath=str(target))
    assert output_of(tmp_path, pod) == "a\nb\n"
    assert [file.name for file in target.iterdir()] == ["mine"]


@needs_namespaces
def test_sub_path_mounts_a_part_and_read_only_forbids_writing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "part").mkdir(parents=True)
    (source / "part" / "f").write_text("content\n")
    pod = mounting(
        "cat /data/f; ! touch /data/new 2>/dev/null",
        {"hostPath": {"path": str(source)}},
        subPath="part",
        readOnly=True,
    )
    assert output_of(tmp_path, pod) == "content\n"
    assert not (source / "part" / "new").exists()


@needs_any_path
def test_a_single_file_can_be_mounted(tmp_path: Path) -> None:
    pod = mounting("cat /etc/answer", {"configMap": {"name": "c"}}, mountPath="/etc/answer",
                   subPath="a")  # fmt: skip
    assert output_of(tmp_path, pod) == "1"


def test_working_directory_is_as_asked_or_the_callers_or_a_scratch_of_its_own(
    tmp_path: Path,
) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    assert output_of(tmp_path, a_pod("pwd", workingDir="/usr")) == "/usr\n"
    assert output_of(tmp_path / "x", a_pod("pwd"), working_dir=tmp_path) == f"{tmp_path}\n"
    scratch = output_of(tmp_path / "y", a_pod("pwd")).strip()
    assert scratch.startswith(str(tmp_path / "y" / "pods"))
    assert not Path(scratch).exists()


def test_an_image_map_stands_in_for_an_image_and_takes_args(tmp_path: Path) -> None:
    images = Images({"example.com/echo": ["echo", "mapped"]})
    pod = a_pod(image="example.com/echo:1.2", args=["$(HOSTNAME)"])
    assert output_of(tmp_path, pod, images=images) == "mapped p\n"


def test_image_map_replaces_a_program_that_is_only_in_the_image(tmp_path: Path) -> None:
    images = Images({"example.com/echo": ["echo", "mapped"]})
    image, args = "example.com/echo:1.0", ["given"]
    absent = a_pod(image=image, command=["/echo-of-the-image", "own"], args=args)
    assert output_of(tmp_path, absent, images=images) == "mapped own given\n"


def test_image_map_leaves_programs_of_the_host_alone(tmp_path: Path) -> None:
    images = Images({"example.com/echo": ["echo", "mapped"]})
    present = a_pod(image="example.com/echo:1.0", command=["/bin/echo", "own"], args=["given"])
    assert output_of(tmp_path, present, images=images) == "own given\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a container as another user")
@pytest.mark.parametrize(
    ("context", "user"),
    [
        ({"runAsNonRoot": True}, str(NON_ROOT_USER)),
        ({"runAsNonRoot": True, "runAsUser": 1234}, "1234"),
        ({}, "0"),
    ],
)
def test_mapped_image_without_root_has_a_user(
    tmp_path: Path, context: dict[str, Any], user: str
) -> None:
    images = Images({"example.com/id": ["id"]})
    pod = with_spec(a_pod(image="example.com/id", args=["-u"]), securityContext=context)
    assert output_of(tmp_path, pod, images=images) == f"{user}\n"


def test_program_in_a_volume_is_never_replaced() -> None:
    images = Images({"example.com/echo": ["echo"]})
    mount = VolumeMount(name="tools", mount_path="/tools")
    container = Container(
        image="example.com/echo", command=("/tools/echo", "a"), volume_mounts=(mount,)
    )
    assert images.command_line(container) == ("/tools/echo", "a")


def test_a_busybox_image_takes_args_as_its_command(tmp_path: Path) -> None:
    assert output_of(tmp_path, a_pod(image="busybox", args=["sh", "-c", "echo hi"])) == "hi\n"


@pytest.mark.parametrize(
    "image", ["prefecthq/prefect:3.4.7-python3.12", "docker.io/prefecthq/prefect-dev:sha-1"]
)
def test_the_image_of_prefect_executes_its_args(tmp_path: Path, image: str) -> None:
    """Its workers send `prefect flow-run execute` as args, without a command."""
    pod = a_pod(image=image, args=["echo", "flow-run", "execute"])
    assert output_of(tmp_path, pod) == "flow-run execute\n"


def test_image_map_precedes_built_in_images(tmp_path: Path) -> None:
    images = Images({"prefecthq/prefect": ["echo", "mapped"]})
    pod = a_pod(image="prefecthq/prefect:3", args=["x"])
    assert output_of(tmp_path, pod, images=images) == "mapped x\n"


@needs_namespaces
def test_scripts_that_ask_for_bin_sh_get_a_capable_one_inside_a_namespace(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n[[ 1 == 1 ]] && echo capable\n")
    script.chmod(0o755)
    assert output_of(tmp_path, mounting(str(script), {"emptyDir": {}})) == "capable\n"


def test_init_containers_hand_over_through_a_volume(tmp_path: Path) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    pod = shell("cat /data/f", **mount)
    inits = [
        {"name": name, "image": "x", "command": ["sh", "-c", f"echo {name} >> /data/f"], **mount}
        for name in ("first", "second")
    ]
    pod = with_spec(pod, initContainers=inits, volumes=[{"name": "v", "emptyDir": {}}])
    assert output_of(tmp_path, pod) == "first\nsecond\n"


async def test_a_failing_init_container_fails_the_pod_before_anything_else_runs(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path) as node:
        init = {"name": "i", "image": "x", "command": ["sh", "-c", "exit 4"]}
        ended = await node.run(with_spec(shell("exit 0"), initContainers=[init]))
        assert ended["status"]["phase"] == "Failed"
        first = ended["status"]["initContainerStatuses"][0]
        assert first["state"]["terminated"]["exitCode"] == 4
        waiting = the_container(ended)["state"]["waiting"]
        assert waiting["reason"] == "PodInitializing"
        initialized = condition(ended, "Initialized") or {}
        assert initialized["status"] == "False"
        assert initialized["message"] == "containers with incomplete status: [i]"


async def test_sidecar_is_stopped_after_containers(tmp_path: Path) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        sidecar = {
            "name": "s",
            "image": "x",
            "restartPolicy": "Always",
            "command": [
                "sh",
                "-c",
                "trap 'echo ended; exit 0' TERM; touch up; while :; do sleep 0.02; done",
            ],
        }
        pod = shell("while [[ ! -e up ]]; do sleep 0.02; done; exit 0")
        ended = await node.run(with_spec(pod, initContainers=[sidecar]))
        assert ended["status"]["phase"] == "Succeeded"
        assert await node.output("p", "s") == "ended\n"


async def test_a_pod_past_its_deadline_is_ended(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        pod = shell("trap 'exit 0' TERM; while :; do sleep 0.02; done")
        ended = await node.run(with_spec(pod, activeDeadlineSeconds=1))
        assert ended["status"]["phase"] == "Failed"
        assert ended["status"]["reason"] == "DeadlineExceeded"


async def test_a_liveness_probe_that_gives_up_has_the_container_restarted(tmp_path: Path) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
        pod = shell(
            "if [[ -e again ]]; then exit 0; fi; touch again; "
            "trap 'exit 9' TERM; while :; do sleep 0.02; done",
            policy="OnFailure",
            livenessProbe=probe,
        )
        ended = await node.run(pod)
        assert ended["status"]["phase"] == "Succeeded"
        status = the_container(ended)
        assert status["restartCount"] == 1
        assert status["lastState"]["terminated"]["exitCode"] == 9
        assert any("Liveness probe failed" in text for _, text in await node.events("p"))


#: None means as the machine allows.
either_isolation = pytest.mark.parametrize("isolation", [None, False])


@either_isolation
@pytest.mark.parametrize("named", ["/dev/termination-log", "last-words"])
async def test_a_termination_message_is_read_from_its_file(
    tmp_path: Path, named: str, isolation: bool | None
) -> None:
    path = str(tmp_path / named)
    async with a_process_node(tmp_path, isolation=isolation) as node:
        pod = shell(f"echo -n goodbye > {path}; exit 1", terminationMessagePath=path)
        ended = await node.run(pod)
        assert the_container(ended)["state"]["terminated"]["message"] == "goodbye"
    assert not (tmp_path / "last-words").exists()


@pytest.mark.parametrize("pid_namespace", ["on", "off"])
async def test_a_message_alone_takes_no_mount_namespace(tmp_path: Path, pid_namespace: str) -> None:
    """The default path needs no special /dev, unless the container has a namespace anyway."""
    script = 'readlink /proc/self/ns/mnt; echo -n "$TEXT" > "$RESULT"; [ -s /dev/termination-log ]'
    # The machine may have such a file itself, as every container of a cluster has.
    text = f"goodbye from {tmp_path}"
    env = [
        {"name": "RESULT", "value": "/dev/termination-log"},
        {"name": "TEXT", "value": text},
    ]
    async with a_process_node(tmp_path, pid_namespace=pid_namespace) as node:
        ended = await node.run(shell(script, env=env))
        assert the_container(ended)["state"]["terminated"]["message"] == text
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 0
        shares_ours = (await node.output("p")).strip() == os.readlink("/proc/self/ns/mnt")
        assert shares_ours is (pid_namespace == "off")
    with suppress(FileNotFoundError):
        assert text.encode() not in Path("/dev/termination-log").read_bytes()


@either_isolation
@pytest.mark.parametrize("path", ["/dev/termination-log", "/dev/onejob-message", "/tmp/onejob-m/m"])
@pytest.mark.parametrize("mounts", [[], [{"name": "v", "mountPath": "/tmp/onejob-v"}]])
async def test_termination_message_leaves_no_file_on_the_host(
    tmp_path: Path, isolation: bool | None, path: str, mounts: list[dict[str, str]]
) -> None:
    text = f"goodbye from {tmp_path}"
    # The machine may have such a file itself, as every container of a cluster has.
    there = Path(path).exists()
    pod = shell(f"echo -n {text} > {path}", terminationMessagePath=path, volumeMounts=mounts)
    pod["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    async with a_process_node(tmp_path, isolation=isolation) as node:
        ended = await node.run(pod)
        assert the_container(ended)["state"]["terminated"]["message"] == text
    assert Path(path).exists() is there
    assert not (there and text.encode() in Path(path).read_bytes())


@either_isolation
async def test_the_last_lines_stand_in_for_a_termination_message_after_a_failure(
    tmp_path: Path, isolation: bool | None
) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    async with a_process_node(tmp_path, isolation=isolation) as node:
        ended = await node.run(shell("seq 100; exit 1", **policy))
        message = the_container(ended)["state"]["terminated"]["message"]
        assert message.splitlines() == [str(number) for number in range(21, 101)]
        fine = await node.run(shell("echo fine", name="q", **policy))
        assert "message" not in the_container(fine)["state"]["terminated"]


@pytest.mark.parametrize("command", [["/no/such/program"], ["sh", "-c", "exit 1"]])
async def test_message_policies_are_forgotten_with_their_pod(
    tmp_path: Path, command: list[str]
) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    async with a_process_node(tmp_path) as node:
        await node.run(a_pod(*command, **policy))
        held = "ProcessRuntime._setup._messages"
        assert held in holdings(node.agent.runtime)
        await until_true(lambda: holdings(node.agent.runtime)[held] == 0)


async def test_nothing_of_a_container_outlives_its_first_process(tmp_path: Path) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        script = "set -m; sleep 300 & echo $! > child; exit 0"
        ended = await node.run(shell(script))
        assert ended["status"]["phase"] == "Succeeded"
        child = int((tmp_path / "child").read_text())
        await until_dead(child)


def a_daemon(*clean: str) -> str:
    """Return a script that leaves a daemon in its own session; the daemon writes its pid."""
    command = " ".join(("setsid", *clean, "sh -c 'echo $$$$ > daemon; exec sleep 300'"))
    return f"({command} &) ; while [[ ! -s daemon ]]; do sleep 0.02; done"


@pytest.mark.parametrize("clean", [(), ("env", "-i")])
async def test_a_daemon_that_left_its_session_ends_when_nothing_else_runs(
    tmp_path: Path, clean: tuple[str, ...]
) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        ended = await node.run(shell(a_daemon(*clean)))
        assert ended["status"]["phase"] == "Succeeded"
        await until_dead(int((tmp_path / "daemon").read_text()))


@pytest.mark.parametrize("volumes", [(), ("v",)])
async def test_a_daemon_that_left_its_session_ends_with_its_pod_and_not_with_another(
    tmp_path: Path, volumes: tuple[str, ...]
) -> None:
    mounts = [{"name": name, "mountPath": "/data"} for name in volumes]
    pod = shell(
        a_daemon() + "; while [[ ! -e go ]]; do sleep 0.02; done", volumeMounts=mounts
    )  # fmt: skip
    pod = with_spec(pod, volumes=[{"name": name, "emptyDir": {}} for name in volumes])
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        await node.create(shell("sleep 300", name="q"))
        await node.create(pod)
        await node.until("p", lambda _: (tmp_path / "daemon").exists())
        # The end of other containers does not affect a daemon whose container lives.
        await node.run(shell("exit 0", name="r"))
        daemon = int((tmp_path / "daemon").read_text())
        assert alive(daemon)
        (tmp_path / "go").touch()
        assert (await node.finished("p"))["status"]["phase"] == "Succeeded"
        await until_dead(daemon)
        assert (await node.pod("q"))["status"]["phase"] == "Running"


@needs_namespaces
def test_a_read_only_host_lets_pods_write_only_to_their_own_places(tmp_path: Path) -> None:
    script = "touch here /data/f && ! touch /usr/onejob-was-here /etc/onejob-was-here; echo $?"
    pod = mounting(script, {"emptyDir": {}})
    assert output_of(tmp_path, pod, host_read_only=True).endswith("0\n")
    assert not Path("/usr/onejob-was-here").exists()
    (tmp_path / "x").mkdir()
    plain = shell("! touch /usr/onejob-was-here && touch here && echo fine")
    assert output_of(tmp_path / "x", plain, host_read_only=True).endswith("fine\n")


async def test_a_flood_of_output_ends_up_in_bounded_logs(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        ended = await node.run(shell("head -c 80000000 /dev/zero | tr '\\0' x; echo; echo end"))
        assert ended["status"]["phase"] == "Succeeded"
        assert (await node.output("p", tail_lines=1)) == "end\n"
        logs = list((tmp_path / "pods" / ended["metadata"]["uid"] / "logs" / "c").iterdir())
        assert sum(file.stat().st_size for file in logs) < 60_000_000


async def test_previous_logs_are_of_previous_attempt(tmp_path: Path) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        script = "if [[ -e again ]]; then echo second; else touch again; echo first; exit 1; fi"
        await node.run(shell(script, policy="OnFailure"))
        assert await node.output("p", previous=True) == "first\n"
        assert await node.output("p") == "second\n"


async def test_a_cordoned_node_takes_no_new_pods_until_it_is_uncordoned(tmp_path: Path) -> None:
    async def cordon(node: Node, value: bool) -> None:
        body = b'{"spec":{"unschedulable":%b}}' % (b"true" if value else b"false")
        await node.client.write(Patch(Key(NODES, "", NODE), body, "merge"))

    async with a_process_node(tmp_path) as node:
        await cordon(node, True)
        await until_true(lambda: node.agent._node.view().unschedulable)
        await node.create(shell("exit 0"))
        unfit = await node.until("p", lambda p: condition(p, "PodScheduled"))
        assert "unschedulable" in (condition(unfit, "PodScheduled") or {})["message"]
        await cordon(node, False)
        assert (await node.finished("p"))["status"]["phase"] == "Succeeded"


async def test_without_mount_namespaces_a_link_stands_in_for_one_pod_at_a_time(
    tmp_path: Path,
) -> None:
    target = tmp_path / "linked"

    def linked(name: str, script: str) -> Document:
        mount = [{"name": "v", "mountPath": str(target)}]
        pod = shell(script, name=name, volumeMounts=mount)
        return with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}])

    async with a_process_node(tmp_path, isolation=False, working_dir=tmp_path) as node:
        script = f"echo mine > {target}/f; while [[ ! -e go ]]; do sleep 0.02; done"
        await node.create(linked("p", script))
        await node.until("p", lambda _: (target / "f").exists())
        await node.create(linked("q", f"test ! -e {target}/f"))
        reason, message = (await node.until_told("q"))[0]
        assert reason == "FailedMount"
        assert "in use by another Pod" in message
        (tmp_path / "go").touch()
        assert (await node.finished("p"))["status"]["phase"] == "Succeeded"
        assert (await node.finished("q"))["status"]["phase"] == "Succeeded"
        await until_true(lambda: not target.is_symlink())


async def test_without_mount_namespaces_the_end_of_a_pod_frees_its_path_at_once(
    tmp_path: Path,
) -> None:
    def linked(name: str) -> Document:
        mount = [{"name": "v", "mountPath": str(tmp_path / "linked")}]
        pod = a_pod("true", name=name, volumeMounts=mount)
        return with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}])

    async with a_process_node(tmp_path, isolation=False) as node:
        for name in ("p", "q", "r"):
            await node.run(linked(name))
            assert await node.events(name) == []


@pytest.mark.parametrize(
    ("volume", "mount", "words"),
    [
        ({"emptyDir": {}}, {"mountPath": "/usr"}, "/usr exists on this host"),
        ({"hostPath": {"path": "/usr"}}, {"readOnly": True}, "cannot be made read-only"),
        ({"emptyDir": {}}, {"mountPath": "/no/such/place"}, "cannot create /no/such/place"),
    ],
)
async def test_features_that_need_mount_namespaces_are_refused_without(
    tmp_path: Path, volume: Document, mount: Document, words: str
) -> None:
    async with a_process_node(tmp_path, isolation=False) as node:
        await node.create(mounting("true", volume, **mount))
        reason, message = (await node.until_told("p"))[0]
        assert reason == "FailedMount"
        assert message.startswith('MountVolume.SetUp failed for volume "v" : ')
        assert words in message
        waiting = await node.until("p", lambda p: "containerStatuses" in p["status"])
        state = the_container(waiting)["state"]["waiting"]
        assert state == {"reason": "ContainerCreating", "message": message}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Pods as others")
async def test_without_mount_namespaces_another_user_puts_no_links_on_the_host(
    tmp_path: Path,
) -> None:
    """They would belong to root, and could lead root's programs to files of the Pod."""
    believed = tmp_path / "ld.so.preload"
    async with a_process_node(tmp_path, isolation=False) as node:
        pod = mounting("true", {"emptyDir": {}}, mountPath=str(believed), subPath="mine")
        await node.create(with_spec(pod, securityContext={"runAsUser": 65534}))
        reason, message = (await node.until_told("p"))[0]
        assert reason == "FailedMount"
        assert "runs as another user than the server" in message
        assert not believed.is_symlink()


@needs_namespaces
async def test_without_mount_namespaces_a_read_only_host_runs_nothing(tmp_path: Path) -> None:
    """Without PID namespaces the server does not even start."""
    async with a_process_node(tmp_path, isolation=False, host_read_only=True) as node:
        await node.create(a_pod("true"))
        waiting = await node.until("p", lambda p: "containerStatuses" in p["status"])
        state = the_container(waiting)["state"]["waiting"]
        assert state["reason"] == "CreateContainerConfigError"
        assert "without mount namespaces" in state["message"]
        assert (await node.until_told("p"))[0] == ("Failed", f"Error: {state['message']}")


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param(False, id="spawned"),
        pytest.param(True, id="forked", marks=needs_namespaces),
    ],
)
async def test_signals_that_we_were_started_to_ignore_work_in_containers(
    tmp_path: Path, volumes: bool
) -> None:
    """As under nohup, or in the background of a shell."""
    ignored = (signal.SIGHUP, signal.SIGUSR1)
    extra: Document = {"volumeMounts": [{"name": "v", "mountPath": "/vol"}]} if volumes else {}
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in ignored]
    try:
        async with a_process_node(tmp_path) as node:
            for number in ignored:
                pod = shell(f"kill -{number:d} $$$$; exit 0", name=f"p{number:d}", **extra)
                if volumes:
                    pod = with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}])
                ended = await node.run(pod)
                assert the_container(ended)["state"]["terminated"]["exitCode"] == 128 + number
    finally:
        for handled in before:
            signal.signal(*handled)


def test_without_root_volumes_work_through_a_user_namespace(tmp_path: Path) -> None:
    unprivileged = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*unprivileged, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine has no unprivileged user namespaces")
    ran = subprocess.run(
        [*unprivileged, sys.executable, "-m", "tests.node.unprivileged", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "1000\nwritten\nread-only\n", ran.stderr
