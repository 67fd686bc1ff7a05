"""Resource shortage of the node: Pods wait, and none of them fails because of it."""

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onejob.node.process.supervisor_client import SupervisorClient
from onejob.node.supervisor.spawn import can_isolate
from tests.faults import Faults, faulty_supervisors
from tests.node.conditions_support import the_condition
from tests.node.support import (
    Node,
    a_process_node,
    condition,
    shell,
    supervisors,
    the_container,
)


async def play(tmp_path: Path, scene: Callable[[Node, Faults], Awaitable[None]]) -> None:
    with faulty_supervisors(tmp_path / "faults") as faults:
        (tmp_path / "node").mkdir()
        async with a_process_node(tmp_path / "node") as node:
            await scene(node, faults)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


def waits_for(pressure: str) -> Callable[[dict[str, object]], object]:
    def holds(pod: dict[str, object]) -> bool:
        status = pod["status"]
        assert isinstance(status, dict)
        assert status.get("phase", "Pending") == "Pending"
        statuses = status.get("containerStatuses", ())
        return any(s["state"].get("waiting", {}).get("reason") == pressure for s in statuses)

    return holds


#: One Pod that is started without a fork of the supervisor, and one that needs a fork.
PLAIN = shell("exit 0")
FORKED = shell("exit 0")
FORKED["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}}
FORKED["spec"]["containers"][0]["tty"] = True


@pytest.mark.parametrize(
    ("call", "number", "pressure", "pod"),
    [
        ("posix_spawn", errno.EAGAIN, "PIDPressure", PLAIN),
        ("posix_spawn", errno.ENOMEM, "MemoryPressure", PLAIN),
        ("pipe2", errno.EMFILE, "DescriptorPressure", PLAIN),
        ("pipe2", errno.ENFILE, "DescriptorPressure", PLAIN),
        ("fork", errno.EAGAIN, "PIDPressure", FORKED),
        ("fork", errno.ENOMEM, "MemoryPressure", FORKED),
        ("execve", errno.EAGAIN, "PIDPressure", FORKED),
        ("execve", errno.ENOMEM, "MemoryPressure", FORKED),
    ],
)
async def test_pod_waits_under_pressure_until_resources_return(
    tmp_path: Path, call: str, number: int, pressure: str, pod: dict[str, object]
) -> None:
    async def scene(node: Node, faults: Faults) -> None:
        faults.fail(call, number)
        await node.create(pod)
        await node.until("p", waits_for(pressure))
        shown = await the_condition(node.client, pressure, "True")
        assert os.strerror(number) in shown["message"]
        faults.mend(call)
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert the_container(ended)["restartCount"] == 0

    await play(tmp_path, scene)


async def test_full_disk_blocks_new_pods_but_not_running_ones(
    tmp_path: Path,
) -> None:
    def filler(number: int) -> dict[str, Any]:
        pod = shell(f"while [[ ! -e {tmp_path}/go ]]; do sleep 0.05; done", name=f"p{number}")
        # A long record, so that few of them fill the preallocated space.
        pod["spec"]["containers"][0]["workingDir"] = "/" + "./" * 1900
        return pod

    async def scene(node: Node, faults: Faults) -> None:
        faults.fail("posix_fallocate", errno.ENOSPC)
        faults.fail("fsync", errno.ENOSPC)
        running: list[str] = []
        while True:
            name = f"p{len(running)}"
            await node.create(filler(len(running)))
            seen = await node.until(name, lambda p: p["status"].get("containerStatuses"))
            if "running" not in the_container(seen)["state"]:
                break
            running.append(name)
        assert running
        assert waits_for("DiskPressure")(seen)
        await the_condition(node.client, "DiskPressure", "True")
        (tmp_path / "go").touch()
        for each in running:
            assert (await node.finished(each))["status"]["phase"] == "Succeeded"
        assert waits_for("DiskPressure")(await node.pod(name))
        faults.mend("posix_fallocate")
        faults.mend("fsync")
        assert (await node.finished(name))["status"]["phase"] == "Succeeded"

    await play(tmp_path, scene)


async def test_a_supervisor_on_a_full_disk_that_is_killed_has_a_successor_that_knows_all(
    tmp_path: Path,
) -> None:
    async def scene(node: Node, faults: Faults) -> None:
        await node.create(shell("while :; do sleep 0.05; done", name="runs"))
        await node.until("runs", lambda p: p["status"].get("phase") == "Running")
        (supervisor,) = supervisors(tmp_path / "node")
        for call in ("posix_fallocate", "fsync"):
            faults.fail(call, errno.ENOSPC)
        os.kill(supervisor, signal.SIGKILL)
        ended = await node.finished("runs")
        assert condition(ended, "DisruptionTarget") is not None
        await node.create(shell("exit 3", name="next"))
        ended = await node.finished("next")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 3

    await play(tmp_path, scene)


async def test_unexecutable_probe_does_not_change_readiness(tmp_path: Path) -> None:
    async def scene(node: Node, faults: Faults) -> None:
        pod = shell("while [[ ! -e go ]]; do sleep 0.05; done", name="p")
        container = pod["spec"]["containers"][0]
        container["workingDir"] = str(tmp_path)
        probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1}
        container["livenessProbe"] = probe
        await node.create(pod)
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        for call, number in (("fork", errno.EAGAIN), ("pipe2", errno.EMFILE)):
            before = faults.happened(call)
            faults.fail(call, number)
            await node.until("p", lambda _: faults.happened(call) >= before + 2)  # noqa: B023
            faults.mend(call)
        (tmp_path / "go").touch()
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert the_container(ended)["restartCount"] == 0

    await play(tmp_path, scene)


async def test_server_reconnects_until_supervisor_reports_abilities(
    tmp_path: Path,
) -> None:
    with faulty_supervisors(tmp_path / "faults") as faults:
        faults.fail("fork", errno.EAGAIN)
        (tmp_path / "node").mkdir()
        client = SupervisorClient(
            tmp_path / "node", owner=True, on_events=lambda _: None, on_lost=lambda: None
        )
        greeted = asyncio.create_task(client.connect())
        await until(lambda: faults.happened("fork") >= 2)
        faults.mend("fork")
        assert (await greeted).isolates == can_isolate()
        await client.close(end=True)


async def test_ends_are_all_noticed_by_a_supervisor_without_free_descriptors(
    tmp_path: Path,
) -> None:
    async def scene(node: Node, faults: Faults) -> None:
        names = [f"p{number}" for number in range(4)]
        for name in names:
            pod = shell("(sleep 60 &); while [[ ! -e go ]]; do sleep 0.05; done", name=name)
            pod["spec"]["containers"][0]["workingDir"] = str(tmp_path)
            await node.create(pod)
        for name in names:
            await node.until(name, lambda p: p["status"].get("phase") == "Running")
        # Called when processes of a container may be left behind.
        faults.fail("listdir", errno.EMFILE)
        (tmp_path / "go").touch()
        for name in names:
            assert (await node.finished(name))["status"]["phase"] == "Succeeded"
        faults.mend("listdir")

    await play(tmp_path, scene)
