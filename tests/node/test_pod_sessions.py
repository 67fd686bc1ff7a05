"""exec and attach through the API: bytes, exit codes, and backpressure."""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onejob.api.sessions.pod_streams import ExecRequest, TerminalSize
from onejob.clock import SystemClock
from onejob.node.sessions.pod_sessions import PodSessions
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.wire.errors import BadRequest
from tests.node.support import (
    Document,
    Node,
    a_node,
    a_pod,
    a_process_node,
    alive,
    an_api,
    shell,
    the_container,
    until_dead,
    until_true,
    with_spec,
)


@dataclass
class Caller:
    """The caller's end: types the given input, and reads output while `takes` is set."""

    typed: deque[bytes] = field(default_factory=deque)
    #: Typed forever once `typed` is used up; None means that stdin ends then.
    repeats: bytes | None = None
    pieces_read: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    sizes: "asyncio.Queue[TerminalSize]" = field(default_factory=asyncio.Queue)
    takes: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.takes.set()

    def showed(self, text: bytes) -> bool:
        return text in self.stdout

    async def read_stdin(self) -> bytes:
        await asyncio.sleep(0)
        self.pieces_read += 1
        if self.typed:
            return self.typed.popleft()
        return self.repeats or b""

    async def write_stdout(self, data: bytes) -> None:
        self.stdout += data
        await self.takes.wait()

    async def write_stderr(self, data: bytes) -> None:
        self.stderr += data

    def stdout_has(self, text: bytes) -> bool:
        return text in self.stdout

    async def next_size(self) -> TerminalSize:
        return await self.sizes.get()


def request(*command: str, **options: Any) -> ExecRequest:
    wanted = {"stdout": True, "stderr": True, **options}
    return ExecRequest("default", "p", "c", command, **wanted)


#: Prints each new size (bash misses one that arrives while it prints another), and each line.
AT_TERMINAL = (
    sys.executable,
    "-c",
    """if True:
    import os, signal
    def show(*_):
        size = os.get_terminal_size(0)
        os.write(1, b"%d %d\\n" % (size.lines, size.columns))
    signal.signal(signal.SIGWINCH, show)
    os.write(1, b"ready\\n")
    while line := os.read(0, 100).strip():
        os.write(1, b"heard %b by %b\\n" % (line, os.environb[b"TERM"]))
    """,
)


async def beside(
    path: Path, play: Callable[[Node, PodSessions], Awaitable[None]], pod: Document | None = None
) -> None:
    async with a_process_node(path) as node:
        await node.create(pod or shell("sleep 60"))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        async with asyncio.timeout(30):
            await play(node, PodSessions(node.agent, node.client))


async def run(path: Path, caller: Caller, *command: str, **options: Any) -> int:
    """Run one command in a sleeping container; return its exit code."""
    codes: list[int] = []

    async def play(node: Node, sessions: PodSessions) -> None:
        codes.append(await sessions.exec(request(*command, **options), caller))

    await beside(path, play)
    return codes[0]


async def test_exec_exit_codes_match_shell(tmp_path: Path) -> None:
    ends = {"exit 0": 0, "exit 3": 3, "exit 128": 128, "exit 255": 255}
    ends |= {"kill -HUP $$": 129, "kill -KILL $$": 137, "kill -TERM $$": 143}

    async def play(node: Node, sessions: PodSessions) -> None:
        for script, code in ends.items():
            assert await sessions.exec(request("sh", "-c", script), Caller()) == code, script

    await beside(tmp_path, play)


async def test_outputs_are_kept_apart_and_only_shown_if_asked_for(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo out; echo err >&2")

    async def play(node: Node, sessions: PodSessions) -> None:
        both, one = Caller(), Caller()
        await sessions.exec(request(*command), both)
        await sessions.exec(request(*command, stdout=False), one)
        assert (both.stdout, both.stderr) == (b"out\n", b"err\n")
        assert (one.stdout, one.stderr) == (b"", b"err\n")

    await beside(tmp_path, play)


async def test_binary_data_passes_unchanged_in_both_directions(tmp_path: Path) -> None:
    data = os.urandom(4_000_003)
    caller = Caller(deque([data[:1], data[1:70_000], data[70_000:]]))
    assert await run(tmp_path, caller, "cat", stdin=True) == 0
    assert caller.stdout == data


async def test_a_command_may_leave_its_input_unread(tmp_path: Path) -> None:
    assert await run(tmp_path, Caller(repeats=bytes(100_000)), "true", stdin=True) == 0


async def test_a_command_waits_for_a_caller_that_does_not_take_its_output(tmp_path: Path) -> None:
    script = "head -c 3000000 /dev/zero; echo all written >&2"

    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller()
        caller.takes.clear()
        session = asyncio.create_task(sessions.exec(request("sh", "-c", script), caller))
        await until_true(lambda: caller.stdout)
        await asyncio.sleep(0.2)
        assert len(caller.stdout) <= 65536
        assert caller.stderr == b""
        caller.takes.set()
        assert await session == 0
        assert caller.stdout == bytes(3_000_000)
        assert caller.stderr == b"all written\n"

    await beside(tmp_path, play)


async def test_unread_output_does_not_block_other_sessions(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        endless = request("sh", "-c", "echo begun >&2; exec yes", stdout=False)
        caller = Caller()
        session = asyncio.create_task(sessions.exec(endless, caller))
        await until_true(lambda: caller.stderr)
        assert await sessions.exec(request("true"), Caller()) == 0
        session.cancel()
        await asyncio.wait([session])

    await beside(tmp_path, play)


async def test_a_caller_waits_for_a_command_that_does_not_read(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller(repeats=bytes(65536))
        command = request("sh", "-c", "echo ready; exec sleep 60", stdin=True)
        session = asyncio.create_task(sessions.exec(command, caller))
        await until_true(lambda: caller.stdout)
        await asyncio.sleep(0.2)
        # A pipe holds 64 KiB; one more piece has been read.
        assert 1 <= caller.pieces_read <= 2
        session.cancel()
        await asyncio.wait([session])

    await beside(tmp_path, play)


async def test_terminal_resize_is_signalled_to_command(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller()
        command = request(*AT_TERMINAL, stdin=False, tty=True, stderr=False)
        session = asyncio.create_task(sessions.exec(command, caller))
        await until_true(lambda: b"ready" in caller.stdout)
        caller.sizes.put_nowait(TerminalSize(width=100_000, height=70_000))
        await until_true(lambda: b"65535 65535" in caller.stdout)
        caller.sizes.put_nowait(TerminalSize(width=91, height=17))
        await until_true(lambda: b"17 91" in caller.stdout)
        session.cancel()
        await asyncio.wait([session])

    await beside(tmp_path, play)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_a_terminal_belongs_to_the_containers_user(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller()
        command = request("sh", "-c", "id -u > $(tty)", tty=True)
        assert await sessions.exec(command, caller) == 0
        assert caller.stdout == b"65534\r\n"

    user = {"runAsUser": 65534}
    await beside(tmp_path, play, shell("sleep 60", securityContext=user))


async def test_a_terminal_loses_nothing_when_the_command_ends(tmp_path: Path) -> None:
    caller = Caller()
    assert await run(tmp_path, caller, "seq", "20000", tty=True, stderr=False) == 0
    assert caller.stdout.split() == [str(number).encode() for number in range(1, 20001)]


async def test_a_session_ends_with_its_command_though_a_daemon_holds_its_output(
    tmp_path: Path,
) -> None:
    caller = Caller()
    script = "setsid sleep 60 & echo $!"
    assert await run(tmp_path, caller, "sh", "-c", script) == 0
    assert caller.stdout.strip().isdigit()


async def test_a_command_has_its_streams_and_no_other_descriptors(tmp_path: Path) -> None:
    caller = Caller()
    # The fourth is the descriptor for reading the folder.
    assert await run(tmp_path, caller, "ls", "/proc/self/fd", stdin=True) == 0
    assert caller.stdout.split() == [b"0", b"1", b"2", b"3"]


async def test_a_large_environment_reaches_the_command(tmp_path: Path) -> None:
    variables = [{"name": f"V{number}", "value": "x" * 100_000} for number in range(8)]

    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller()
        assert await sessions.exec(request("sh", "-c", "echo ${#V0} ${#V7}"), caller) == 0
        assert caller.stdout == b"100000 100000\n"

    await beside(tmp_path, play, shell("sleep 60", env=variables))


async def test_when_the_caller_goes_away_the_command_and_its_children_end(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        for tty in (False, True):
            caller = Caller()
            command = request("sh", "-c", "sleep 60 & echo $$ $!; wait", tty=tty)
            session = asyncio.create_task(sessions.exec(command, caller))
            await until_true(partial(caller.stdout_has, b"\n"))
            pids = [int(pid) for pid in caller.stdout.split()]
            assert all(alive(pid) for pid in pids)
            session.cancel()
            await asyncio.wait([session])
            for pid in pids:
                await until_dead(pid)

    await beside(tmp_path, play)


async def test_a_command_ends_with_its_container(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller()
        command = request("sh", "-c", "echo ready; sleep 60")
        session = asyncio.create_task(sessions.exec(command, caller))
        await until_true(lambda: caller.stdout)
        (tmp_path / "go").touch()
        assert await session == 137
        await node.finished("p")

    script = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    await beside(tmp_path, play, shell(script))


async def test_no_descriptor_stays_open_after_a_session(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        await sessions.exec(request("true", stdin=True), Caller())
        before = len(os.listdir("/proc/self/fd"))
        await sessions.exec(request("cat", stdin=True), Caller())
        await sessions.exec(request("true", stdin=True, tty=True), Caller())
        with pytest.raises(BadRequest):
            await sessions.exec(request("no-such-program"), Caller())
        # The loop closes the supervisor's connection in its next turn.
        await until_true(lambda: len(os.listdir("/proc/self/fd")) <= before)

    await beside(tmp_path, play)


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest) as refused:
        await run(tmp_path, Caller(), "no-such-program")
    assert str(refused.value.message) == (
        'cannot run the command in container "c": exec: "no-such-program": '
        "executable file not found in $PATH"
    )


async def test_attach_streams_new_output_until_container_ends(
    tmp_path: Path,
) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        async with asyncio.timeout(30):
            while "before" not in await node.output("p"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        caller = Caller()
        session = asyncio.create_task(sessions.exec(request(), caller))
        # Its first step finds the end of the log.
        await asyncio.sleep(0.2)
        (tmp_path / "go").touch()
        assert await session == 0
        assert caller.stdout == b"after\n"

    script = f"echo before; until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo after; exit 3"
    await beside(tmp_path, play, shell(script))


async def test_attach_types_to_a_container_that_listens_once(tmp_path: Path) -> None:
    data = os.urandom(300_000).hex().encode() + b"\n"

    async def play(node: Node, sessions: PodSessions) -> None:
        caller = Caller(deque([data[:10], data[10:]]))
        assert await sessions.exec(request(stdin=True), caller) == 0
        assert caller.stdout == data + b"over\n"

    pod = shell("cat; echo over", stdin=True, stdinOnce=True)
    await beside(tmp_path, play, pod)


async def test_a_container_that_listens_for_ever_hears_one_caller_after_another(
    tmp_path: Path,
) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        for word in (b"one\n", b"two\n"):
            caller = Caller(deque([word]))
            session = asyncio.create_task(sessions.exec(request(stdin=True), caller))
            await until_true(partial(caller.stdout_has, b"heard " + word))
            session.cancel()
            await asyncio.wait([session])
        assert (await node.pod("p"))["status"]["phase"] == "Running"

    script = "while read -r word; do echo heard $word; done"
    await beside(tmp_path, play, shell(script, stdin=True, volumeMounts=[]))


async def test_stdin_that_was_had_once_is_not_had_again(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        first = asyncio.create_task(sessions.exec(request(stdin=True), Caller()))
        await until_true(lambda: (tmp_path / "ended").exists())
        with pytest.raises(BadRequest, match='the stdin of container "c" is closed'):
            await sessions.exec(request(stdin=True), Caller())
        first.cancel()
        await asyncio.wait([first])

    script = f"cat; touch {tmp_path}/ended; sleep 60"
    await beside(tmp_path, play, shell(script, stdin=True, stdinOnce=True))


async def test_attach_does_not_pretend_that_a_container_listens(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        with pytest.raises(BadRequest, match='container "c" was started without stdin: true'):
            await sessions.exec(request(stdin=True), Caller())

    await beside(tmp_path, play, shell("sleep 60"))


async def test_a_container_has_a_terminal_to_type_at_whose_size_changes(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        # Twice, although `stdinOnce` was requested: input at a terminal has no end.
        for word in (b"one", b"two"):
            caller = Caller(deque([word + b"\r"]))
            session = asyncio.create_task(sessions.exec(request(stdin=True, tty=True), caller))
            heard = b"heard %b by xterm\r\n" % word
            await until_true(partial(caller.showed, heard))
            caller.sizes.put_nowait(TerminalSize(width=83, height=word[0]))
            await until_true(partial(caller.showed, b"%d 83\r\n" % word[0]))
            session.cancel()
            await asyncio.wait([session])
        watcher = Caller()
        session = asyncio.create_task(sessions.exec(request(tty=True), watcher))
        watcher.sizes.put_nowait(TerminalSize(width=91, height=17))
        await until_true(lambda: b"17 91" in watcher.stdout)
        session.cancel()
        await asyncio.wait([session])
        assert "heard one by xterm\r\n" in await node.output("p")

    await beside(tmp_path, play, a_pod(*AT_TERMINAL, stdin=True, stdinOnce=True, tty=True))


async def test_a_container_with_a_terminal_ends_like_any_other(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        ended = await node.run(shell("echo out; echo err >&2; exit 3", tty=True))
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 3
        assert await node.output("p") == "out\r\nerr\r\n"


async def test_a_container_that_waits_cannot_be_joined(tmp_path: Path) -> None:
    async def play(node: Node, sessions: PodSessions) -> None:
        for command in ((), ("true",)):
            with pytest.raises(BadRequest, match='container "c" in pod "p" is not running'):
                await sessions.exec(request(*command), Caller())

    async with a_process_node(tmp_path) as node:
        first = {"name": "first", "image": "i", "command": ["sleep", "60"]}
        await node.create(with_spec(shell("sleep 60"), initContainers=[first]))
        await node.until("p", lambda p: p["status"].get("initContainerStatuses"))
        await play(node, PodSessions(node.agent, node.client))


async def test_simulated_container_rejects_sessions(tmp_path: Path) -> None:
    async with (
        an_api(tmp_path) as client,
        a_node(client, SimulatedRuntime(SystemClock())) as node,
    ):
        pod = a_pod()
        pod["metadata"]["annotations"] = {DURATION: "60"}
        await node.create(pod)
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        sessions = PodSessions(node.agent, node.client)
        with pytest.raises(BadRequest, match="simulated runtime does not support exec"):
            await sessions.exec(request("true"), Caller())
        with pytest.raises(BadRequest, match="simulated runtime has no container output"):
            await sessions.exec(request(), Caller())


async def test_a_session_that_is_given_up_while_it_begins_leaves_no_connection_open(
    tmp_path: Path,
) -> None:
    """Resources left open cause a warning, and every warning is an error."""

    async def play(node: Node, sessions: PodSessions) -> None:
        for number in range(30):
            session = asyncio.create_task(sessions.exec(request("true"), Caller()))
            for _ in range(number):
                await asyncio.sleep(0)
            session.cancel()
            await asyncio.wait([session])
        gc.collect()

    await beside(tmp_path, play)
