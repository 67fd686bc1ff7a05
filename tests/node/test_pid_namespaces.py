"""PID namespaces: a container sees and signals its own processes only, and leaves none behind."""

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from onejob.node.runtime import AttemptRef
from onejob.node.supervisor import init, linux
from onejob.node.supervisor.journal import Identity, Journal
from onejob.node.supervisor.pid_namespaces import spacing
from tests.node.support import (
    Document,
    Node,
    a_pod,
    a_process_node,
    alive,
    needs_pid_namespaces,
    shell,
    the_container,
    until_dead,
    until_true,
    with_spec,
)

pytestmark = needs_pid_namespaces

OWN_NAMESPACE = os.readlink("/proc/self/ns/pid")
#: Ends a script, with a code that no test expects, if it could reach processes of this host.
GUARD = f'[ "$(readlink /proc/self/ns/pid)" != "{OWN_NAMESPACE}" ] || exit 99; '


@contextmanager
def a_process_of_the_host() -> Iterator[subprocess.Popen[bytes]]:
    """Start a waiting shell that can be found by the name in its first argument."""
    name = f"host-{uuid4()}"
    script = ["sh", "-c", "trap 'exit 1' INT; while :; do sleep 0.1; done", name]
    with subprocess.Popen(script, start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def name_of(process: subprocess.Popen[bytes]) -> str:
    assert isinstance(process.args, list)
    return str(process.args[-1])


def found(marker: str) -> list[int]:
    """Return the processes of this host whose command line contains the marker."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [pid for pid in pids if alive(pid)]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def on_a_node(path: Path, play: Callable[[Node], Awaitable[None]], mode: str = "on") -> None:
    async with a_process_node(path, pid_namespace=mode) as node:
        await play(node)


async def running(node: Node, pod: Document) -> Document:
    await node.create(pod)
    name = pod["metadata"]["name"]
    return await node.until(name, lambda p: p["status"].get("phase") == "Running")


async def beside(node: Node, script: str) -> tuple[int, str]:
    """Run a shell script in the container as `kubectl exec` does; return exit code and output."""
    session = await node.agent.open_session(
        "default", "p", "c", ["sh", "-c", script], stdin=False, tty=False
    )
    assert session.stdout is not None
    text = b""
    while piece := await session.stdout.read():
        text += piece
    code = (await session.finished()).code
    await session.close()
    return code, text.decode()


async def until_ready(node: Node) -> None:
    async with asyncio.timeout(30):
        while "ready" not in await node.output("p"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("mode", "reached"), [("on", "no"), ("off", "yes")])
async def test_a_container_reaches_no_process_of_the_host(
    tmp_path: Path, mode: str, reached: str
) -> None:
    with a_process_of_the_host() as process:

        async def play(node: Node) -> None:
            # Signal 0 is not delivered: it only shows whether a signal could be sent.
            marker = name_of(process)
            script = f"kill -0 {process.pid} && grep -q {marker} /proc/{process.pid}/cmdline"
            await node.run(shell(f"if {script}; then echo yes; else echo no; fi"))
            assert (await node.output("p")).splitlines()[-1] == reached

        await on_a_node(tmp_path, play, mode)


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
async def test_interrupting_every_shell_by_exec_interrupts_only_those_of_the_container(
    tmp_path: Path,
) -> None:
    with a_process_of_the_host() as process:

        async def play(node: Node) -> None:
            sidecar = 'trap "exit 0" INT; echo ready; while true; do sleep 0.1; done'
            await running(node, shell(sidecar))
            await until_ready(node)
            await beside(node, GUARD + 'kill -2 $(pgrep -u $(id -u) -f "sh")')
            ended = the_container(await node.finished("p"))["state"]["terminated"]
            assert ended["exitCode"] == 0
            assert process.poll() is None

        await on_a_node(tmp_path, play)


async def test_killing_all_processes_by_exec_ends_the_container_alone(tmp_path: Path) -> None:
    with a_process_of_the_host() as process:

        async def play(node: Node) -> None:
            await running(node, shell("sleep 60"))
            await beside(node, GUARD + "kill -9 -1")
            ended = the_container(await node.finished("p"))["state"]["terminated"]
            assert (ended["exitCode"], ended["signal"]) == (137, 9)
            assert process.poll() is None

        await on_a_node(tmp_path, play)


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("exit 255", 255, None),
        ("kill -9 $$$$", 137, 9),
        ("kill -TERM $$$$", 143, 15),
        (GUARD + "kill -TERM 1; sleep 30", 143, 15),
        ("trap 'exit 5' USR1; " + GUARD + "kill -USR1 1; sleep 0.2; exit 6", 5, None),
    ],
)
async def test_exit_status_of_command_is_exact(
    tmp_path: Path, script: str, code: int, number: int | None
) -> None:
    async def play(node: Node) -> None:
        ended = the_container(await node.run(shell(script)))["state"]["terminated"]
        assert (ended["exitCode"], ended.get("signal")) == (code, number)

    await on_a_node(tmp_path, play)


async def test_start_error_is_reported_in_pid_namespace(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        ended = the_container(await node.run(a_pod("/no/such/program")))["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
        assert ended["message"] == 'exec: "/no/such/program": no such file or directory'

    await on_a_node(tmp_path, play)


async def test_stopping_a_pod_lets_its_command_end_itself(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        out = tmp_path / "out"
        script = f"trap 'echo asked > {out}; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
        pod = await running(node, shell(script))
        await until_ready(node)
        node.agent.runtime.stop(AttemptRef(pod["metadata"]["uid"], "c", 0), 20.0)
        ended = the_container(await node.finished("p"))["state"]["terminated"]
        assert ended["exitCode"] == 3
        assert out.read_text() == "asked\n"

    await on_a_node(tmp_path, play)


def a_daemon(marker: str, started: Path, claims: str = "") -> str:
    """Return a script that starts a daemon outside the session and waits until it runs.

    The daemon hides its Pod, or, with `claims`, pretends to belong to another one.
    """
    script = f"echo yes > {started}; while :; do sleep 1; done"
    daemon = f"env -i {claims} setsid sh -c '{script}' {marker} >/dev/null 2>&1 &"
    return f"{daemon} until [ -s {started} ]; do sleep 0.01; done"


@pytest.mark.parametrize("claims", ["", "HOSTNAME=other"])
async def test_daemons_that_hide_from_their_container_end_with_it(
    tmp_path: Path, claims: str
) -> None:
    async def play(node: Node) -> None:
        marker = f"daemon-{uuid4()}"
        await running(node, shell("sleep 60", name="other"))
        pod = await node.run(shell(a_daemon(marker, tmp_path / "started", claims) + "; exit 3"))
        assert the_container(pod)["state"]["terminated"]["exitCode"] == 3
        assert found(marker) == []

    await on_a_node(tmp_path, play)


async def test_containers_begin_with_different_pids(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        names = [f"p{number}" for number in range(12)]
        await asyncio.gather(*(node.run(shell("echo $$$$", name=name)) for name in names))
        first = [int(await node.output(name)) for name in names]
        assert len(set(first)) == len(names)

    await on_a_node(tmp_path, play)


def test_sequentially_started_containers_have_pid_gaps() -> None:
    room, step = spacing()
    first = sorted(own * step % room for own in range(1000, 1032))
    assert min(b - a for a, b in itertools.pairwise(first)) > 100


@pytest.mark.parametrize(
    ("fields", "sees_other_container", "sees_host"),
    [
        ({}, False, False),
        ({"shareProcessNamespace": True}, True, False),
        ({"hostPID": True}, True, True),
    ],
)
async def test_process_visibility_between_containers(
    tmp_path: Path, fields: Document, sees_other_container: bool, sees_host: bool
) -> None:
    with a_process_of_the_host() as process:

        async def play(node: Node) -> None:
            marker = f"other-{uuid4()}"
            pod = with_spec(shell("sleep 60"), **fields)
            command = ["sh", "-c", "while :; do sleep 1; done", marker]
            pod["spec"]["containers"].append({"name": "d", "image": "example", "command": command})
            await running(node, pod)
            script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done"
            _, seen = await beside(node, script + " 2>/dev/null")
            assert (marker in seen) == sees_other_container
            host = f"kill -0 {process.pid} && tr '\\0' ' ' < /proc/{process.pid}/cmdline"
            _, seen = await beside(node, host)
            assert (name_of(process) in seen) == sees_host

        await on_a_node(tmp_path, play)


async def test_the_end_of_a_pod_that_shares_processes_ends_all_of_them(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        marker = f"daemon-{uuid4()}"
        pod = shell(a_daemon(marker, tmp_path / "started"))
        await node.run(with_spec(pod, shareProcessNamespace=True))
        await until_true(lambda: not found(marker))

    await on_a_node(tmp_path, play)


async def test_exec_runs_in_pid_namespace_of_container(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await running(node, shell("readlink /proc/self/ns/pid; echo ready; sleep 60"))
        await until_ready(node)
        namespace = (await node.output("p")).split()[0]
        assert await beside(node, "readlink /proc/self/ns/pid; exit 4") == (4, namespace + "\n")
        assert namespace != OWN_NAMESPACE

    await on_a_node(tmp_path, play)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run containers as other users")
async def test_pid_1_shows_nothing_of_the_supervisor(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        script = "cat /proc/1/environ || echo hidden; ls /proc/1/fd || echo hidden; "
        pod = shell(script + "tr -d '\\0' < /proc/1/cmdline", securityContext={"runAsUser": 1234})
        await node.run(pod)
        lines = (await node.output("p")).splitlines()
        assert [line for line in lines if "denied" not in line] == [
            "hidden",
            "hidden",
            "onejob-init",
        ]

    await on_a_node(tmp_path, play)


async def test_a_terminal_belongs_to_the_command(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await node.run(shell("test -t 0 && echo > /dev/tty && ps -o pid= | wc -l", tty=True))
        assert (await node.output("p")).strip()

    await on_a_node(tmp_path, play)


def recorded(path: Path) -> tuple[int, int]:
    """Return init and command of the only attempt in the journal, read from a copy."""
    copy = path / "claims"
    shutil.copy(path / "supervisor" / "claims", copy)
    (attempt,) = Journal(str(copy), Identity("another")).each()
    return attempt.pid, attempt.command


async def test_if_the_supervisor_is_killed_its_namespaces_are_ended(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        marker = f"workload-{uuid4()}"
        # It starts nothing: a process forked by a shell looks like the shell for a moment.
        followed = tmp_path / marker
        followed.touch()
        await running(node, a_pod("tail", "-f", str(followed)))
        (command,) = found(marker)
        first = parent_of(command)
        supervisor = parent_of(first)
        assert recorded(tmp_path) == (first, command)
        os.kill(supervisor, signal.SIGKILL)
        await until_dead(command)
        await until_dead(first)
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Failed"

    await on_a_node(tmp_path, play)


def test_missing_pid_namespaces_are_reported_and_on_is_rejected(tmp_path: Path) -> None:
    """Runs in a user namespace of its own, whose limits bind only its members."""
    forbid = "echo 0 > /proc/sys/user/max_pid_namespaces && exec"
    script = f'{forbid} {sys.executable} -m tests.node.without_pid_namespaces "$@"'
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    said = json.loads(ran.stdout)
    assert said["on"].startswith("--pid-namespace on: PID namespaces are not available: ")
    assert said["auto"]["status"] == "True"
    assert said["auto"]["reason"] == "NoPidNamespaces"
    assert said["phase"] == "Succeeded"
    warnings = [line for line in ran.stderr.splitlines() if "no PID namespaces" in line]
    assert len(warnings) == 1


def test_an_init_ends_with_its_command_also_when_its_supervisor_was_killed() -> None:
    """The parent that would receive the exit status is gone."""
    read, write = os.pipe()
    os.close(read)
    pid = os.fork()
    if pid == 0:
        try:
            linux.block_signals()
            init.serve(os.posix_spawn("/bin/true", ["true"], {}), write)
        finally:
            os._exit(99)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
