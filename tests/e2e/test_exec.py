"""`kubectl exec`, `attach` and `cp`, as users run them."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl, parent_of, pid_on_host

pytestmark = needs_kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, {script!r}]
    env: [{{name: GREETING, value: hello}}]
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes:
  - {{name: data, emptyDir: {{}}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("exec")) as server:
        yield server


@pytest.fixture(scope="module")
def pod(server: Server) -> str:
    return start_pod(server, "steady", "echo inside > /data/file; sleep 600")


def start_pod(server: Server, name: str, script: str) -> str:
    server.kubectl("create", "-f", "-", stdin=POD.format(name=name, script=script))
    server.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return name


def command_line(server: Server, *arguments: str) -> list[str]:
    return ["kubectl", "--kubeconfig", str(server.kubeconfig), *arguments]


def environment(server: Server) -> dict[str, str]:
    return {**os.environ, "HOME": str(server.data_dir)}


def kubectl(
    server: Server, *arguments: str, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Run kubectl with bytes as input; return separate outputs, whatever the exit code is."""
    return subprocess.run(
        command_line(server, *arguments),
        input=stdin,
        capture_output=True,
        timeout=60,
        env=environment(server),
        check=False,
    )


def until(holds: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_command_sees_the_container_and_its_exit_code_comes_back(
    server: Server, pod: str
) -> None:
    script = "until [ -s /data/file ]; do sleep 0.1; done; cat /data/file; echo $GREETING >&2; "
    done = kubectl(server, "exec", pod, "--", "sh", "-c", script + "exit 42")
    assert done.returncode == 42
    assert done.stdout == b"inside\n"
    assert done.stderr == b"hello\ncommand terminated with exit code 42\n"
    killed = kubectl(server, "exec", pod, "--", "sh", "-c", "kill -KILL $$")
    assert killed.returncode == 137
    assert kubectl(server, "exec", pod, "-c", "main", "--", "true").returncode == 0


def test_input_is_piped_through_to_its_end(server: Server, pod: str) -> None:
    done = kubectl(server, "exec", "-i", pod, "--", "wc", "-c", stdin=b"12345")
    assert (done.returncode, done.stdout.strip()) == (0, b"5")
    nothing = kubectl(server, "exec", "-i", pod, "--", "wc", "-c", stdin=b"")
    assert nothing.stdout.strip() == b"0"


def test_large_binary_data_comes_back_unchanged(server: Server, pod: str) -> None:
    data = os.urandom(20_000_001)
    done = kubectl(server, "exec", "-i", pod, "--", "cat", stdin=data)
    assert done.returncode == 0
    assert done.stdout == data


@contextmanager
def kubectl_at_a_terminal(
    server: Server, *arguments: str, height: int = 33, width: int = 97
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Start kubectl on a terminal; return it and our end of the terminal."""
    ours, theirs = pty.openpty()
    resize(ours, height, width)
    caller = subprocess.Popen(
        command_line(server, *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(server),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield caller, ours
    finally:
        caller.kill()
        caller.wait()
        os.close(ours)


SIZE_33_97 = 'until [ "$(stty size)" = "33 97" ]; do sleep 0.1; done; '
TYPED_AT = "tty; echo type; read line; echo got $line; "
SIZE_44_101 = 'until [ "$(stty size)" = "44 101" ]; do sleep 0.1; done; '


def type_and_resize(terminal: int) -> None:
    shown = read_until(terminal, b"type")
    assert re.search(rb"/dev/pts/\d+|/dev/pts", shown)
    os.write(terminal, b"words\r")
    read_until(terminal, b"got words")
    resize(terminal, 44, 101)


def test_a_terminal_has_the_size_of_the_callers(server: Server, pod: str) -> None:
    script = SIZE_33_97 + TYPED_AT + SIZE_44_101 + "exit 7"
    with kubectl_at_a_terminal(server, "exec", "-it", pod, "--", "sh", "-c", script) as (
        caller,
        terminal,
    ):
        type_and_resize(terminal)
        assert caller.wait(timeout=30) == 7


def test_a_pod_can_be_run_at_a_terminal_and_its_exit_code_comes_back(server: Server) -> None:
    run = ("run", "typed-at", "--image=busybox", "--restart=Never", "--rm", "-it", "--command")
    script = SIZE_33_97 + TYPED_AT + SIZE_44_101 + "exit 7"
    with kubectl_at_a_terminal(server, *run, "--", "sh", "-c", script) as (caller, terminal):
        type_and_resize(terminal)
        read_until(terminal, b"deleted")
        assert caller.wait(timeout=30) == 7


def test_a_shell_that_runs_at_a_terminal_can_be_attached_to_and_left(server: Server) -> None:
    run = ("run", "shell", "--image=busybox", "--restart=Never", "-it")
    with kubectl_at_a_terminal(server, *run, "--command", "--", "sh") as (caller, terminal):
        read_until(terminal, b"command prompt")
        os.write(terminal, b"word=kept; echo I am $((40 + 2))\r")
        read_until(terminal, b"I am 42")
    with kubectl_at_a_terminal(server, "attach", "-it", "shell") as (caller, terminal):
        os.write(terminal, b"echo still $word\r")
        read_until(terminal, b"still kept")
        # Ctrl-C reaches only the foreground process.
        os.write(terminal, b"sleep 600\r")
        time.sleep(0.3)
        os.write(terminal, b"\x03")
        os.write(terminal, b"echo after $((6 * 7))\r")
        read_until(terminal, b"after 42")
        os.write(terminal, b"exit 3\r")
        assert caller.wait(timeout=30) == 0
    state = "{.status.containerStatuses[0].state.terminated.exitCode}"
    until(
        lambda: server.kubectl("get", "pod", "shell", "-o", f"jsonpath={state}") == "3",
        "the shell did not end",
    )


def resize(terminal: int, height: int, width: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def read_until(terminal: int, text: bytes) -> bytes:
    shown = b""
    give_up = time.monotonic() + 30
    while text not in shown:
        readable, _, _ = select.select([terminal], [], [], 1)
        assert readable or time.monotonic() < give_up, shown
        if readable:
            shown += os.read(terminal, 4096)
    return shown


def test_files_and_folders_are_copied_in_both_directions(
    server: Server, pod: str, tmp_path: Path
) -> None:
    data = os.urandom(3_000_000)
    folder = tmp_path / "folder"
    (folder / "deeper").mkdir(parents=True)
    (folder / "one").write_bytes(data)
    (folder / "deeper" / "two").write_text("two")
    server.kubectl("cp", str(folder), f"{pod}:/data/there")
    assert server.kubectl("exec", pod, "--", "cat", "/data/there/deeper/two") == "two"
    server.kubectl("cp", f"{pod}:/data/there", str(tmp_path / "back"))
    assert (tmp_path / "back" / "one").read_bytes() == data
    assert (tmp_path / "back" / "deeper" / "two").read_text() == "two"
    # kubectl ends at the end of the empty archive, so its exit code means nothing.
    kubectl(server, "cp", f"{pod}:/data/nothing", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_attach_follows_the_container_to_its_end(server: Server, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo early; until [ -e {go} ]; do echo waiting; sleep 0.1; done; echo last"
    start_pod(server, "attached", script)
    caller = subprocess.Popen(
        command_line(server, "attach", "attached"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(server),
    )
    assert caller.stdout is not None
    with caller.stdout as lines:
        assert lines.readline() == b"waiting\n"
        go.touch()
        assert lines.read().endswith(b"last\n")
    assert caller.wait(timeout=30) == 0


def test_a_pod_can_be_run_like_a_command_with_input_output_and_exit_code(server: Server) -> None:
    run = ("run", "filter", "--image=busybox", "--restart=Never", "--rm", "-i", "--quiet")
    script = "tr a-z A-Z; exit 5"
    done = kubectl(server, *run, "--command", "--", "sh", "-c", script, stdin=b"typed\n")
    assert done.returncode == 5
    assert done.stdout == b"TYPED\n"


def test_session_in_invalid_pod_is_rejected_with_reason(server: Server, pod: str) -> None:
    server.kubectl("run", "over", "--image=busybox", "--restart=Never", "--command", "--", "true")
    server.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/over", "--timeout=60s")
    refusals = {
        ("exec", "over", "--", "true"): "completed pod; current phase is Succeeded",
        ("attach", "over"): "completed pod; current phase is Succeeded",
        ("exec", "nobody", "--", "true"): 'pods "nobody" not found',
        ("exec", pod, "-c", "other", "--", "true"): "container other is not valid for pod steady",
        ("exec", pod, "--", "no-such-program"): "executable file not found in $PATH",
        ("attach", "-i", pod): 'container "main" was started without stdin: true',
    }
    for arguments, reason in refusals.items():
        assert reason in server.kubectl(*arguments, fails=True)


@pytest.mark.parametrize("tty", [False, True])
def test_when_kubectl_is_killed_so_is_the_command(server: Server, pod: str, tty: bool) -> None:
    ours, theirs = pty.openpty()
    caller = subprocess.Popen(
        command_line(
            server, "exec", *(["-it"] if tty else []), pod, "--", "sh", "-c", "echo $$; sleep 600"
        ),
        stdin=theirs,
        stdout=subprocess.PIPE,
        env=environment(server),
    )
    assert caller.stdout is not None
    with caller.stdout:
        command = pid_on_host(int(caller.stdout.readline()), "sleep 600")
        caller.kill()
        caller.wait()
    until(lambda: gone(command), "the command runs on")
    os.close(ours)
    os.close(theirs)


def test_commands_end_with_the_server_and_pods_do_not(server: Server, pod: str) -> None:
    caller = subprocess.Popen(
        command_line(server, "exec", pod, "--", "sh", "-c", "echo $$; sleep 600"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(server),
    )
    assert caller.stdout is not None
    with caller.stdout:
        command = pid_on_host(int(caller.stdout.readline()), "sleep 600")
        supervisor = parent_of(command)
        server.kill()
    assert caller.wait(timeout=30) != 0
    until(lambda: gone(command), "the command runs on")
    os.kill(supervisor, 0)
    server.start()
    assert server.kubectl("exec", pod, "--", "cat", "/data/file") == "inside\n"


def test_the_server_had_nothing_to_complain_about(server: Server) -> None:
    assert "Traceback" not in server.log
