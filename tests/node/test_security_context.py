"""securityContext: each setting is applied, refused, or reported as not enforced."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.node.support import (
    Document,
    a_process_node,
    needs_namespaces,
    shell,
    the_container,
    with_spec,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to take away")
RIGHTS = "grep -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/self/status | tr '\\t' ' '"


def a_secured(script: str, **context: Any) -> Document:
    return shell(script, securityContext=context)


async def said(path: Path, pod: Document, **settings: Any) -> str:
    async with a_process_node(path, **settings) as node:
        await node.run(pod)
        return await node.output("p")


async def waiting(path: Path, pod: Document) -> tuple[str, str, list[tuple[str, str]]]:
    """Return reason and message of a container that is not started, and the events of its Pod."""
    async with a_process_node(path) as node:
        created = await node.create(pod)
        seen = await node.until("p", lambda p: p["status"].get("containerStatuses"))
        state = the_container(seen)["state"]["waiting"]
        message = state["message"].replace(created["metadata"]["uid"], "UID")
        return state["reason"], message, await node.until_told("p")


async def test_a_container_that_must_not_be_root_is_refused_as_the_kubelet_does(
    tmp_path: Path,
) -> None:
    reason, message, events = await waiting(
        tmp_path, a_secured("id", runAsNonRoot=True, runAsUser=0)
    )
    assert reason == "CreateContainerConfigError"
    where = '(pod: "p_default(UID)", container: c)'
    assert message == f"container's runAsUser breaks non-root policy {where}"
    assert events[0][0] == "Failed"


@needs_root
async def test_so_is_one_that_would_be_root_because_the_server_is(tmp_path: Path) -> None:
    pod = with_spec(shell("id"), securityContext={"runAsNonRoot": True})
    reason, message, _ = await waiting(tmp_path, pod)
    assert reason == "CreateContainerConfigError"
    where = '(pod: "p_default(UID)", container: c)'
    assert message == f"container has runAsNonRoot and image will run as root {where}"


@needs_root
async def test_as_another_user_it_runs(tmp_path: Path) -> None:
    pod = with_spec(shell("id -u"), securityContext={"runAsNonRoot": True, "runAsUser": 1234})
    assert await said(tmp_path, pod) == "1234\n"


@needs_root
@pytest.mark.parametrize("pids", ["on", "off"])
async def test_capabilities_match_request(tmp_path: Path, pids: str) -> None:
    asked = {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CHOWN"]}
    text = await said(tmp_path, a_secured(RIGHTS, capabilities=asked), pid_namespace=pids)
    bits = f"{1 << 10 | 1 << 0:016x}"
    assert text.splitlines() == [f"CapEff: {bits}", f"CapBnd: {bits}", "NoNewPrivs: 0"]


@needs_root
async def test_a_capability_that_is_dropped_is_not_there(tmp_path: Path) -> None:
    pod = a_secured("chown 1:1 .; chown 1:1 . || echo refused", capabilities={"drop": ["CHOWN"]})
    assert (await said(tmp_path, pod)).splitlines()[-1] == "refused"


@needs_root
async def test_without_a_word_on_rights_they_are_the_servers(tmp_path: Path) -> None:
    own = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines()
           if line.startswith("CapBnd")]  # fmt: skip
    for number, context in enumerate(({}, {"privileged": True})):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert f"CapBnd: {own[0]}" in await said(folder, a_secured(RIGHTS, **context))


async def test_an_unknown_capability_is_refused(tmp_path: Path) -> None:
    reason, message, _ = await waiting(tmp_path, a_secured("id", capabilities={"add": ["MAGIC"]}))
    assert (reason, message) == ("CreateContainerError", 'unknown capability "CAP_MAGIC"')


@pytest.mark.parametrize(("allowed", "bit"), [(False, "1"), (True, "0")])
async def test_privileges_cannot_be_gained_unless_allowed(
    tmp_path: Path, allowed: bool, bit: str
) -> None:
    text = await said(tmp_path, a_secured(RIGHTS, allowPrivilegeEscalation=allowed))
    assert text.splitlines()[-1] == f"NoNewPrivs: {bit}"


@needs_root
@pytest.mark.parametrize("pids", ["on", "off"])
async def test_pods_of_different_users_do_not_see_each_others_folders(
    tmp_path: Path, pids: str
) -> None:
    """They start in sibling folders, below one that only root may enter."""
    async with a_process_node(tmp_path, pid_namespace=pids) as node:
        writes = shell("echo treasure > letter; echo written; sleep 60", name="q")
        await node.create(with_spec(writes, securityContext={"runAsUser": 65533}))
        await node.until("q", lambda pod: pod["status"]["phase"] == "Running")
        await node.until_output("q", "written")
        reads = shell("cat ../*/letter ../1/letter ../2/letter 2>/dev/null; ls .. 2>&1; id -u")
        await node.run(with_spec(reads, securityContext={"runAsUser": 65534}))
        text = await node.output("p")
    assert "treasure" not in text
    assert "Permission denied" in text
    assert text.endswith("65534\n")


#: Configuration of `su` that decides whom it trusts, if the Pod can replace it.
PLACED: dict[str, dict[str, Any]] = {
    "volume": {"volumeMounts": [{"name": "v", "mountPath": "/etc/pam.d"}]},
    "message": {"terminationMessagePath": "/etc/pam.d/su"},
}
SU = """
for what in auth account session; do echo $what sufficient pam_permit.so; done > /etc/pam.d/su
/usr/bin/su root -c 'echo root' || echo refused
"""


@needs_root
@needs_namespaces
@pytest.mark.skipif(not Path("/etc/pam.d/su").exists(), reason="there is no su that asks PAM")
@pytest.mark.parametrize("privileged", [False, True])
@pytest.mark.parametrize("placed", PLACED)
async def test_files_of_a_pod_do_not_make_its_user_root(
    tmp_path: Path, placed: str, privileged: bool
) -> None:
    container = {**PLACED[placed], "securityContext": {"privileged": privileged}}
    pod = with_spec(
        shell(f"({SU}) 2>&1 | tail -n 1", **container),
        securityContext={"runAsUser": 65534},
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    assert await said(tmp_path, pod) == "refused\n"


@needs_root
@needs_namespaces
@pytest.mark.skipif(not Path("/etc/pam.d/su").exists(), reason="there is no su that asks PAM")
async def test_nor_do_they_for_commands_beside_it(tmp_path: Path) -> None:
    probe = {"exec": {"command": ["sh", "-c", f"({SU}) > found 2>&1"]}, "periodSeconds": 1}
    script = "while ! grep -qE '^(root|refused)$' found; do sleep 0.1; done; tail -n 1 found"
    pod = with_spec(
        shell(script, livenessProbe=probe, **PLACED["volume"]),
        securityContext={"runAsUser": 65534},
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    assert (await said(tmp_path, pod)).splitlines()[-1] == "refused"


@needs_namespaces
@pytest.mark.parametrize("message_path", ["/dev/termination-log", "/onejob/absent/log"])
async def test_a_read_only_root_leaves_volumes_and_devices_writable(
    tmp_path: Path, message_path: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tries = {
        "here": "echo x > here",
        "host": f"echo x > {outside}/new",
        "etc": "echo x > /etc/onejob-test",
        "volume": "echo x > /data/new",
        "null": "echo x > /dev/null",
        "shm": "t=/dev/shm/onejob-$$$$; echo x > $t && rm $t",
        "message": f"echo told > {message_path}",
    }
    script = "; ".join(f"( {what} ) 2>/dev/null && echo {name}" for name, what in tries.items())
    pod = shell(
        script + "; true",
        securityContext={"readOnlyRootFilesystem": True},
        volumeMounts=[{"name": "v", "mountPath": "/data"}],
        terminationMessagePath=message_path,
    )
    pod = with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}])
    (tmp_path / "node").mkdir()
    assert (await said(tmp_path / "node", pod)).split() == ["volume", "null", "shm", "message"]
    assert os.listdir(outside) == []


@needs_root
async def test_a_read_only_root_cannot_be_made_writable_again(tmp_path: Path) -> None:
    pod = a_secured("mount -o remount,rw,bind / || echo no", readOnlyRootFilesystem=True)
    assert (await said(tmp_path, pod)).splitlines()[-1] == "no"


async def test_unenforced_fields_are_reported_once(tmp_path: Path) -> None:
    context = {"seccompProfile": {"type": "RuntimeDefault"}}
    pod = with_spec(
        shell("true", securityContext={"seLinuxOptions": {"level": "s0"}}),
        securityContext={**context, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]},
    )
    pod["spec"]["containers"].append({"name": "d", "image": "example", "command": ["true"]})
    async with a_process_node(tmp_path) as node:
        await node.run(pod)
        assert await node.until_told("p") == [
            (
                "NotAsAsked",
                "the process runtime does not enforce: securityContext.seccompProfile, "
                "securityContext.sysctls, containers[0].securityContext.seLinuxOptions",
            )
        ]


@needs_root
async def test_supervisor_rejects_other_users(tmp_path: Path) -> None:
    async with a_process_node(tmp_path):
        address = str(tmp_path / "supervisor" / "socket")
        # Modes that a careless administrator may have set.
        for folder in (tmp_path, tmp_path / "supervisor"):
            folder.chmod(0o777)
        os.chmod(address, 0o777)
        ours, theirs = (
            await asyncio.to_thread(_answer, address, 0),
            await asyncio.to_thread(_answer, address, 1234),
        )
    assert b'"known"' in ours
    assert theirs == b""


def _answer(address: str, user: int) -> bytes:
    """Return the supervisor's response to a greeting by that user."""
    script = (
        "import os, socket, sys; folder = os.open(os.path.dirname(sys.argv[1]), os.O_PATH); "
        "os.setuid(int(sys.argv[2])); s = socket.socket(socket.AF_UNIX); "
        "s.connect(f'/proc/self/fd/{folder}/socket'); s.settimeout(20); "
        's.sendall(b\'{"do":"hello"}\\n\'); sys.stdout.buffer.write(s.recv(65536))'
    )
    command = [sys.executable, "-S", "-c", script, address, str(user)]
    return subprocess.run(command, capture_output=True, check=False).stdout
