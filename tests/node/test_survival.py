"""Kills of server, supervisor and containers: nothing is lost and nothing runs twice."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from onejob.node.supervisor.journal import Journal, identity_of
from tests.node.support import (
    a_node,
    a_process_node,
    alive,
    an_api,
    condition,
    process_runtime,
    shell,
    the_container,
    until_dead,
)
from tests.node.survival_support import COUNTED, a_doomed_server, starts, wait_for


async def test_a_workload_outlives_a_killed_server_and_is_adopted(tmp_path: Path) -> None:
    pod = shell(COUNTED + "while [[ ! -e go ]]; do sleep 0.02; done; echo done; exit 5")
    with a_doomed_server(tmp_path, pod) as server:
        pid = wait_for(tmp_path / "starts")
        server.kill()
        server.wait()
    assert alive(pid)
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        running = await node.until("p", lambda p: p["status"]["phase"] == "Running")
        assert the_container(running)["restartCount"] == 0
        (tmp_path / "go").touch()
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 5
        assert await node.output("p") == "done\n"
    assert starts(tmp_path) == 1


async def test_the_exit_of_a_workload_that_ended_while_no_server_ran_is_recovered(
    tmp_path: Path,
) -> None:
    pod = shell(COUNTED + "while [[ ! -e go ]]; do sleep 0.02; done; exit 5")
    with a_doomed_server(tmp_path, pod) as server:
        pid = wait_for(tmp_path / "starts")
        server.kill()
        server.wait()
    (tmp_path / "go").touch()
    await until_dead(pid)
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 5
        assert condition(ended, "DisruptionTarget") is None
    assert starts(tmp_path) == 1


def test_under_run_the_workloads_end_gracefully_when_their_owner_is_killed(tmp_path: Path) -> None:
    pod = shell(COUNTED + "trap 'echo bye > bye; exit 0' TERM; while :; do sleep 0.02; done")
    with a_doomed_server(tmp_path, pod, "owner") as server:
        pid = wait_for(tmp_path / "starts")
        server.kill()
        server.wait()
    asyncio.run(until_dead(pid))
    assert (tmp_path / "bye").read_text() == "bye\n"


async def test_if_the_supervisor_is_killed_its_workloads_are_ended_and_failed_as_disrupted(
    tmp_path: Path,
) -> None:
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        await node.create(shell(COUNTED + "while :; do sleep 0.02; done", policy="Always"))
        file = tmp_path / "starts"
        await node.until("p", lambda _: file.exists() and file.read_text())
        pid = int(file.read_text())
        os.kill(_workload_parent(pid), signal.SIGKILL)
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Failed"
        assert (condition(ended, "DisruptionTarget") or {})["status"] == "True"
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 137
        await until_dead(pid)
        # The node goes on with a new supervisor.
        assert (await node.run(shell("exit 0", name="q")))["status"]["phase"] == "Succeeded"
    assert starts(tmp_path) == 1


def _workload_parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[1])


async def test_after_both_were_killed_the_next_server_ends_survivors_and_fails_them(
    tmp_path: Path,
) -> None:
    pod = shell(COUNTED + "while :; do sleep 0.02; done", policy="Always")
    with a_doomed_server(tmp_path, pod) as server:
        pid = wait_for(tmp_path / "starts")
        supervisor = _workload_parent(pid)
        server.kill()
        server.wait()
    os.kill(supervisor, signal.SIGKILL)
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Failed"
        assert (condition(ended, "DisruptionTarget") or {})["reason"] == "TerminationByKubelet"
    await until_dead(pid)
    assert starts(tmp_path) == 1


@pytest.mark.parametrize("journal_survives", [True, False])
async def test_attempts_running_before_reboot_fail_and_are_not_rerun(
    tmp_path: Path, journal_survives: bool
) -> None:
    pod = shell(COUNTED + "while :; do sleep 0.02; done", policy="Always")
    with a_doomed_server(tmp_path, pod) as server:
        pid = wait_for(tmp_path / "starts")
        supervisor = _workload_parent(pid)
        server.kill()
        server.wait()
    os.kill(supervisor, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    claims = tmp_path / "supervisor" / "claims"
    # Written in an earlier boot; unsynced data may be missing.
    another = identity_of(str(claims.parent))._replace(boot="another")
    if not journal_survives:
        claims.unlink()
    Journal(str(claims), another)
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Failed"
        assert condition(ended, "DisruptionTarget") is not None
    assert starts(tmp_path) == 1


async def test_a_node_that_leaves_with_its_pods_ends_and_reports_them(tmp_path: Path) -> None:
    async with an_api(tmp_path) as client:
        async with a_node(client, process_runtime(tmp_path), end_pods=True) as node:
            await node.create(shell("trap 'exit 0' TERM; while :; do sleep 0.02; done"))
            await node.until("p", lambda p: p["status"]["phase"] == "Running")
        ended = await node.pod("p")
        assert (ended["status"]["phase"], ended["status"]["reason"]) == ("Failed", "Terminated")
        assert condition(ended, "DisruptionTarget") is not None


async def test_a_node_that_leaves_without_its_pods_finds_them_again(tmp_path: Path) -> None:
    async with an_api(tmp_path) as client:
        runtime = process_runtime(tmp_path, working_dir=tmp_path)
        async with a_node(client, runtime, end_pods=False) as node:
            await node.create(shell(COUNTED + "while [[ ! -e go ]]; do sleep 0.02; done"))
            await node.until("p", lambda p: p["status"]["phase"] == "Running")
        runtime = process_runtime(tmp_path, working_dir=tmp_path)
        async with a_node(client, runtime) as node:
            (tmp_path / "go").touch()
            assert (await node.finished("p"))["status"]["phase"] == "Succeeded"
    assert starts(tmp_path) == 1
