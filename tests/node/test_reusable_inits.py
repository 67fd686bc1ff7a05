"""Reusable PID namespaces: one init runs many containers, and none finds traces of another."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from onejob.node.runtime import AttemptRef
from onejob.node.supervisor import init
from tests.node.support import (
    Document,
    Node,
    a_pod,
    a_process_node,
    needs_pid_namespaces,
    shell,
    the_container,
    until_true,
)

pytestmark = [
    needs_pid_namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="only inits of root are reused"),
]

NAMESPACE = "readlink /proc/self/ns/pid"


async def on_a_node(path: Path, play: Callable[[Node], Awaitable[None]]) -> None:
    async with a_process_node(path, pid_namespace="on") as node:
        await play(node)


def inits() -> list[int]:
    """Return the inits of this test's supervisor."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_bytes().strip()
            if name == init.NAME and os.getpid() in ancestors(int(folder.name)):
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


async def output_of(node: Node, script: str, **fields: object) -> list[str]:
    """Run a Pod that must succeed; return the lines of its output."""
    pod = shell(script, name=f"p-{uuid4().hex[:8]}", **fields)
    name = pod["metadata"]["name"]
    ended = the_container(await node.run(pod))["state"]["terminated"]
    assert ended["exitCode"] == 0, ended
    return (await node.output(name)).splitlines()


async def execute(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0


def by_python(code: str) -> str:
    return f'{sys.executable} -S -I -c "{code}"'


async def test_containers_that_follow_each_other_have_the_same_init(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        namespaces = [(await output_of(node, NAMESPACE))[0] for _ in range(10)]
        assert len(set(namespaces)) == 1
        assert len(inits()) == 1

    await on_a_node(tmp_path, play)


async def test_an_init_is_forked_only_for_containers_at_the_same_time(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        free = asyncio.Semaphore(4)

        async def one() -> str:
            async with free:
                return (await output_of(node, NAMESPACE))[0]

        namespaces = await asyncio.gather(*(one() for _ in range(40)))
        assert len(set(namespaces)) <= 4

    await on_a_node(tmp_path, play)


@pytest.mark.parametrize(
    "script",
    [
        "setsid sleep 60 >/dev/null 2>&1 &",
        by_python("import resource as r; r.prlimit(1, r.RLIMIT_CORE, (0, 0))"),
        by_python("import os; os.setpriority(os.PRIO_PROCESS, 1, 5)"),
        by_python("import os; os.sched_setscheduler(1, os.SCHED_BATCH, os.sched_param(0))"),
    ],
    ids=["process", "limit", "priority", "scheduler"],
)
async def test_a_namespace_in_which_a_container_left_something_is_not_used_again(
    tmp_path: Path, script: str
) -> None:
    async def play(node: Node) -> None:
        await output_of(node, "true")
        (first,) = inits()
        await output_of(node, script)
        await until_true(lambda: first not in inits())
        await output_of(node, "true")

    await on_a_node(tmp_path, play)


async def test_a_mount_made_by_a_container_is_not_seen_by_the_next(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        place = tmp_path / "place"
        place.mkdir()
        mount = f"mount -t tmpfs onejob-test {place} && grep -c {place} /proc/self/mountinfo"
        first, mounts = await output_of(node, f"{NAMESPACE}; {mount}")
        second, seen = await output_of(node, f"{NAMESPACE}; grep -c {place} /proc/self/mountinfo;:")
        assert (first, mounts, seen) == (second, "1", "0")

    await on_a_node(tmp_path, play)


async def test_a_mount_made_on_the_host_is_seen_by_the_next_container(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        place = tmp_path / "place"
        place.mkdir()
        (first,) = await output_of(node, NAMESPACE)
        # Private, so that it reaches no namespace by propagation.
        await execute("mount", "--make-private", "-t", "tmpfs", "onejob-test", str(place))
        try:
            look = f"{NAMESPACE}; grep -c {place} /proc/self/mountinfo"
            assert await output_of(node, look) == [first, "1"]
        finally:
            await execute("umount", str(place))

    await on_a_node(tmp_path, play)


async def test_a_signal_for_init_does_not_reach_the_next_container(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        # The shell that sends it has ended before init can forward it, or ignores it.
        script = f"{NAMESPACE}; trap '' TERM; for i in 1 2 3 4 5 6; do kill -TERM 1; done; exit 0"
        for _ in range(3):
            (first,) = await output_of(node, script)
            (second,) = await output_of(node, f"{NAMESPACE}; sleep 0.1")
            assert first == second

    await on_a_node(tmp_path, play)


async def test_a_stopped_container_leaves_no_signal_for_the_next(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await node.create(a_pod("sleep", "60", name="stopped"))
        running = await node.until("stopped", lambda p: p["status"].get("phase") == "Running")
        (first,) = inits()
        node.agent.runtime.stop(AttemptRef(running["metadata"]["uid"], "c", 0), 20.0)
        ended = the_container(await node.finished("stopped"))["state"]["terminated"]
        assert (ended["exitCode"], ended["signal"]) == (143, 15)
        await output_of(node, "sleep 0.1")
        assert first not in inits()

    await on_a_node(tmp_path, play)


async def test_a_namespace_joined_by_a_command_is_not_used_again(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        go = tmp_path / "go"
        await node.create(shell(f"until [ -e {go} ]; do sleep 0.02; done", name="first"))
        await node.until("first", lambda p: p["status"].get("phase") == "Running")
        session = await node.agent.open_session(
            "default", "first", "c", ["true"], stdin=False, tty=False
        )
        assert (await session.finished()).code == 0
        await session.close()
        (first,) = inits()
        go.touch()
        await node.finished("first")
        await output_of(node, "true")
        assert first not in inits()

    await on_a_node(tmp_path, play)


async def test_a_container_inherits_no_descriptor_of_its_init(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        # The last one is that of the listed folder.
        listed = by_python("import os; print(*sorted(os.listdir('/proc/self/fd')))")
        for _ in range(2):
            assert await output_of(node, listed) == ["0 1 2 3"]

    await on_a_node(tmp_path, play)


@pytest.mark.parametrize(
    "context",
    [{"runAsUser": 1234}, {"allowPrivilegeEscalation": False}, {"capabilities": {"drop": ["ALL"]}}],
    ids=["user", "no new privileges", "capabilities"],
)
async def test_a_container_with_fewer_rights_has_an_init_of_its_own(
    tmp_path: Path, context: Document
) -> None:
    async def play(node: Node) -> None:
        (first,) = await output_of(node, NAMESPACE)
        (second,) = await output_of(node, NAMESPACE, securityContext=context)
        (third,) = await output_of(node, NAMESPACE)
        assert first == third != second

    await on_a_node(tmp_path, play)


async def test_an_init_that_was_killed_while_unused_is_replaced(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await output_of(node, "true")
        (first,) = inits()
        os.kill(first, 9)
        await output_of(node, "true")
        assert first not in inits()

    await on_a_node(tmp_path, play)


async def test_a_program_that_does_not_exist_is_reported_by_a_reused_init(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await output_of(node, "true")
        ended = the_container(await node.run(a_pod("/no/such/program")))["state"]["terminated"]
        assert ended["message"] == 'exec: "/no/such/program": no such file or directory'
        await output_of(node, "true")

    await on_a_node(tmp_path, play)


async def test_a_request_too_large_for_an_init_is_started_as_well(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        long = [{"name": "LONG", "value": "x" * 60_000}]
        assert await output_of(node, "echo ${#LONG}", env=long) == ["60000"]

    await on_a_node(tmp_path, play)


async def test_unused_inits_end(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await asyncio.gather(*(output_of(node, "true") for _ in range(3)))
        assert inits()
        await until_true(lambda: not inits())
        await output_of(node, "true")

    await on_a_node(tmp_path, play)
