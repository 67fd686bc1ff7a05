"""Containers that cannot run: the reason is in status and event; nothing hangs or crashes."""

import base64
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.node.process.mounts import HostView, MountPlan, plan_mounts
from onejob.node.runtime import NodeContext
from onejob.node.setup.container_sources import NO_SETTINGS
from onejob.node.setup.volumes import container_mounts
from onejob.node.supervisor import mounting
from onejob.node.supervisor.failures import SetupFailed
from onejob.objects.pod_spec import NodePod
from tests.node.support import Document, a_pod, a_process_node, shell, the_container, with_spec


async def run_to_the_end(path: Path, pod: Document) -> tuple[Document, list[tuple[str, str]]]:
    async with a_process_node(path) as node:
        ended = await node.run(pod)
        return ended, await node.until_told("p")


def _not_executable(path: Path) -> Document:
    (path / "plain").write_text("text")
    return a_pod(str(path / "plain"))


def _no_interpreter(path: Path) -> Document:
    script = path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    return a_pod(str(script))


def _no_format(path: Path) -> Document:
    script = path / "script"
    script.write_bytes(b"\x00\x01\x02")
    script.chmod(0o755)
    return a_pod(str(script))


@pytest.mark.parametrize(
    ("make", "reason", "words"),
    [
        (lambda _: a_pod("no-such-program"), "StartError", "executable file not found in $PATH"),
        (lambda _: a_pod("/no/such/program"), "StartError", "no such file or directory"),
        (_not_executable, "StartError", "permission denied"),
        (_no_interpreter, "StartError", "interpreter was not found"),
        (_no_format, "StartError", "exec format error"),
        (lambda _: a_pod("true", "nul\0"), "StartError", "null"),
        (lambda _: a_pod("true", env=[{"name": "A", "value": "nul\0"}]), "StartError", "null"),
        (lambda _: a_pod("true", workingDir="/no/such"), "ContainerCannotRun", "workingDir"),
        (lambda _: a_pod(image="unknown:1"), "StartError", "--runtime podman"),
        (lambda _: a_pod(image="unknown:1"), "StartError", "image map"),
    ],
)
async def test_a_program_that_cannot_start_fails_at_once_and_names_the_cause(
    tmp_path: Path, make: Any, reason: str, words: str
) -> None:
    ended, events = await run_to_the_end(tmp_path, make(tmp_path))
    state = the_container(ended)["state"]["terminated"]
    assert ended["status"]["phase"] == "Failed"
    assert (state["exitCode"], state["reason"]) == (128, reason)
    assert words in state["message"]
    assert ("Failed", f"Error: {state['message']}") in events


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "executable file not found in $PATH"), ("plain", "permission denied")],
)
async def test_only_a_program_that_was_found_can_be_forbidden(
    tmp_path: Path, name: str, words: str
) -> None:
    # Root may enter every folder, so as root the container runs as another user.
    somebody: dict[str, Any] = (
        {"securityContext": {"runAsUser": 65534}} if os.geteuid() == 0 else {}
    )
    with tempfile.TemporaryDirectory() as created:
        folders = Path(created)
        folders.chmod(0o755)
        (folders / "open" / "missing").mkdir(parents=True)
        (folders / "open" / "plain").write_text("not executable")
        (folders / "locked").mkdir(mode=0)
        path = f"{folders}/locked:{folders}/open"
        env = [{"name": "PATH", "value": path}]
        ended, _ = await run_to_the_end(tmp_path, a_pod(name, env=env, workingDir="/", **somebody))
    assert the_container(ended)["state"]["terminated"]["message"] == f'exec: "{name}": {words}'


def _from(kind: str, **reference: Any) -> Document:
    return a_pod("true", env=[{"name": "X", "valueFrom": {kind: reference}}])


def _all_from(kind: str, **reference: Any) -> Document:
    return a_pod("true", envFrom=[{kind: reference}])


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (_from("configMapKeyRef", name="no", key="k"), 'configmap "no" not found'),
        (_from("secretKeyRef", name="no", key="k"), 'secret "no" not found'),
        (_from("configMapKeyRef", name="c", key="no"), "couldn't find key no in ConfigMap"),
        (_from("secretKeyRef", name="s", key="no"), "couldn't find key no in Secret"),
        (_all_from("configMapRef", name="no"), 'configmap "no" not found'),
        (_all_from("secretRef", name="no"), 'secret "no" not found'),
    ],
)
async def test_a_container_waits_for_settings_that_do_not_exist(
    tmp_path: Path, pod: Document, message: str
) -> None:
    async with a_process_node(tmp_path) as node:
        await _create_settings(node)
        await node.create(pod)
        waiting = await node.until("p", lambda p: "containerStatuses" in p["status"])
        state = the_container(waiting)["state"]["waiting"]
        assert state["reason"] == "CreateContainerConfigError"
        assert message in state["message"]
        assert waiting["status"]["phase"] == "Pending"
        assert (await node.until_told("p"))[0] == ("Failed", f"Error: {state['message']}")


async def _create_settings(node: Any) -> None:
    encoded = base64.b64encode(b"hidden").decode()
    await node.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}
    )
    await node.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": encoded}}
    )


@pytest.mark.parametrize(
    "pod",
    [
        _from("configMapKeyRef", name="no", key="k", optional=True),
        _from("secretKeyRef", name="s", key="no", optional=True),
        _all_from("configMapRef", name="no", optional=True),
    ],
)
async def test_optional_sources_may_be_missing(tmp_path: Path, pod: Document) -> None:
    async with a_process_node(tmp_path) as node:
        await _create_settings(node)
        assert (await node.run(pod))["status"]["phase"] == "Succeeded"


async def test_a_missing_config_map_that_appears_lets_the_container_start(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(_from("configMapKeyRef", name="c", key="k"))
        await node.until("p", lambda p: "containerStatuses" in p["status"])
        await _create_settings(node)
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert the_container(ended)["restartCount"] == 0


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "no"}}, 'configmap "no" not found'),
        ({"secret": {"secretName": "no"}}, 'secret "no" not found'),
        (
            {"configMap": {"name": "c", "items": [{"key": "no", "path": "f"}]}},
            "configmap references non-existent key: no",
        ),
        (
            {"hostPath": {"path": "/etc/hostname", "type": "Directory"}},
            "hostPath type check failed: /etc/hostname is not a directory",
        ),
        (
            {"projected": {"sources": [{"podCertificate": {"signerName": "x.y/z"}}]}},
            "does not project this kind of source",
        ),
        ({"persistentVolumeClaim": {"claimName": "x"}}, 'persistentvolumeclaim "x" not found'),
        ({"nfs": {"server": "a", "path": "/b"}}, "does not provide volumes of this kind"),
        ({"image": {"reference": "models/one:2"}}, "image volumes need the podman runtime"),
    ],
)
async def test_a_volume_that_cannot_be_provided_keeps_the_pod_waiting_with_an_event(
    tmp_path: Path, volume: Document, message: str
) -> None:
    async with a_process_node(tmp_path) as node:
        await _create_settings(node)
        pod = a_pod("true", volumeMounts=[{"name": "v", "mountPath": "/data"}])
        await node.create(with_spec(pod, volumes=[{"name": "v", **volume}]))
        reason, text = (await node.until_told("p"))[0]
        assert reason == "FailedMount"
        assert text.startswith('MountVolume.SetUp failed for volume "v" : ')
        assert message in text
        assert (await node.pod("p"))["status"]["phase"] == "Pending"


async def test_a_sub_path_may_not_leave_its_volume(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    volumes = [{"name": "v", "hostPath": {"path": str(inside)}}]
    async with a_process_node(tmp_path) as node:
        mount = {"name": "v", "mountPath": "/data", "subPath": "link"}
        await node.create(with_spec(a_pod("true", volumeMounts=[mount]), volumes=volumes))
        waiting = await node.until("p", lambda p: "containerStatuses" in p["status"])
        state = the_container(waiting)["state"]["waiting"]
        assert state["reason"] == "CreateContainerConfigError"
        assert "leads out of the volume" in state["message"]


def an_allowed_folder(tmp_path: Path) -> Path:
    """Return a folder with links that leave it, directly or indirectly, and one that does not."""
    allowed = tmp_path / "allowed"
    (allowed / "real").mkdir(parents=True)
    (allowed / "real" / "file").write_text("mine")
    (allowed / "link").symlink_to("/etc")
    (allowed / "up").symlink_to("..")
    (allowed / "twice").symlink_to("link")
    (allowed / "inside").symlink_to("real")
    (tmp_path / "secret").write_text("not yours")
    return allowed


def a_pod_with(path: Path, *command: str, **mount: str) -> dict[str, Any]:
    volume = {"name": "v", "hostPath": {"path": str(path)}}
    mounts = [{"name": "v", "mountPath": "/data", **mount}]
    return with_spec(a_pod(*command, volumeMounts=mounts), volumes=[volume])


@pytest.mark.parametrize("path", ["link", "link/passwd", "twice", "up", "up/secret", "/etc"])
async def test_a_host_path_may_not_lead_out_of_the_folders_that_are_allowed(
    tmp_path: Path, path: str
) -> None:
    allowed = an_allowed_folder(tmp_path)
    async with a_process_node(tmp_path, host_paths=(str(allowed),)) as node:
        await node.create(a_pod_with(allowed / path, "true"))
        reason, text = (await node.until_told("p"))[0]
        assert reason == "FailedMount"
        assert text.endswith("which is not allowed")


@pytest.mark.parametrize(
    ("path", "mount"),
    [("inside", {}), ("real", {}), ("", {"subPath": "inside"}), (".", {"subPath": "new/one"})],
)
async def test_a_host_path_that_stays_inside_is_mounted(
    tmp_path: Path, path: str, mount: dict[str, str]
) -> None:
    allowed = an_allowed_folder(tmp_path)
    async with a_process_node(tmp_path, host_paths=("/nowhere", str(allowed))) as node:
        pod = a_pod_with(allowed / path, "sh", "-c", "ls /data; touch /data/new", **mount)
        assert (await node.run(pod))["status"]["phase"] == "Succeeded"
        output = await node.output("p")
        assert output == ("" if "new" in str(mount) else "file\n")
    assert len(list(allowed.rglob("new"))) >= 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("part", ["", "sub"])
def test_a_host_path_that_is_exchanged_after_it_was_checked_is_not_mounted(
    tmp_path: Path, part: str
) -> None:
    """The mount source is resolved inside the allowed folder at that moment."""
    allowed = an_allowed_folder(tmp_path)
    (allowed / "real" / "sub").mkdir()
    plan = mounts_of(tmp_path, allowed / "real", allowed, part)
    (allowed / "real").rename(allowed / "away")
    (allowed / "real").symlink_to(tmp_path)
    (tmp_path / "sub").mkdir(exist_ok=True)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            mounting.mount_all([list(step) for step in plan.steps], plan.root)
            os.write(write, b"mounted")
        except SetupFailed as failure:
            os.write(write, failure.message.encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        said = file.read()
    os.waitpid(child, 0)
    assert "leads out of the volume" in said


def mounts_of(tmp_path: Path, path: Path, allowed: Path, part: str) -> MountPlan:
    """Return the mount plan of a Pod with this volume."""
    document = a_pod_with(path, "true", **({"subPath": part} if part else {}))
    document["metadata"] |= {"uid": "u", "namespace": "default"}
    pod = msgspec.convert(document, NodePod)
    node = NodeContext("n", "127.0.0.1", host_paths=lambda namespace: (str(allowed),))
    mounts = container_mounts(
        pod, pod.spec.containers[0], tmp_path / "pod", NO_SETTINGS, node, {}, []
    )
    target = tmp_path / "target"
    target.mkdir()
    mounts = [msgspec.structs.replace(mount, target=str(target)) for mount in mounts]
    return plan_mounts(mounts, str(tmp_path / "root"), HostView())


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("a/$(ABSENT)/$(EMPTY)", "missing value for ABSENT, EMPTY"),
        ("$(ROOT)", '"/etc" must be a relative path without ".."'),
        ("x/$(UP)", '"x/../.." must be a relative path without ".."'),
    ],
)
async def test_a_sub_path_that_cannot_be_filled_in_is_a_config_error(
    tmp_path: Path, part: str, message: str
) -> None:
    async with a_process_node(tmp_path) as node:
        mount = {"name": "v", "mountPath": "/data", "subPathExpr": part}
        values = {"EMPTY": "", "ROOT": "/etc", "UP": "../.."}
        env = [{"name": name, "value": value} for name, value in values.items()]
        pod = a_pod("true", volumeMounts=[mount], env=env)
        await node.create(with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}]))
        waiting = await node.until("p", lambda p: "containerStatuses" in p["status"])
        state = the_container(waiting)["state"]["waiting"]
        assert state["reason"] == "CreateContainerConfigError"
        assert state["message"].endswith(message)


async def test_impossible_resources_leave_the_pod_pending_with_the_reason(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(a_pod("true", resources={"limits": {"example.com/gpu": "1"}}))
        assert await node.until_told("p") == [
            ("FailedScheduling", "0/1 nodes are available: 1 Insufficient example.com/gpu.")
        ]


async def test_a_crash_loop_of_programs_that_cannot_start_backs_off(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(a_pod("no-such-program", policy="OnFailure"))
        waiting = await node.until(
            "p",
            lambda p: (
                "containerStatuses" in p["status"] and the_container(p)["state"].get("waiting")
            ),
        )
        status = the_container(waiting)
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["reason"] == "StartError"


async def test_a_pod_on_another_node_is_left_alone(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(with_spec(shell("exit 0", name="q"), nodeName="elsewhere"))
        await node.run(shell("exit 0"))
        assert (await node.pod("q"))["status"]["phase"] == "Pending"
