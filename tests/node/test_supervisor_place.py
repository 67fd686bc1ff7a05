"""Folder of a supervisor: missing files, copies of it, and a full disk."""

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from onejob.node.process.supervisor_client import SupervisorClient
from onejob.node.runtime import RuntimeUnavailable
from onejob.node.supervisor.journal import Claim, Journal, identity_of
from tests.faults import Faults, faulty_supervisors
from tests.node.support import (
    a_node,
    a_process_node,
    alive,
    an_api,
    condition,
    process_runtime,
    shell,
    the_container,
    until_true,
)
from tests.node.survival_support import COUNTED, a_doomed_server, starts, wait_for

WAITS = COUNTED + "while [[ ! -e go ]]; do sleep 0.02; done; exit 5"


@pytest.mark.parametrize("removed", [["socket"], ["lock"], ["socket", "lock", "output"]])
async def test_a_server_finds_its_supervisor_though_files_of_it_were_removed(
    tmp_path: Path, removed: list[str]
) -> None:
    with a_doomed_server(tmp_path, shell(WAITS)) as server:
        pid = wait_for(tmp_path / "starts")
        server.kill()
        server.wait()
    for name in removed:
        (tmp_path / "supervisor" / name).unlink()
    async with a_process_node(tmp_path, working_dir=tmp_path) as node:
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        assert alive(pid)
        (tmp_path / "go").touch()
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 5
    assert starts(tmp_path) == 1


async def test_a_copy_of_a_live_folder_leaves_the_processes_of_the_original_alone(
    tmp_path: Path,
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    with a_doomed_server(original, shell(WAITS, policy="Always")) as server:
        pid = wait_for(original / "starts")
        shutil.copytree(original, copy, ignore=shutil.ignore_patterns("socket"))
        async with a_process_node(copy, working_dir=copy) as node:
            ended = await node.finished("p")
            assert condition(ended, "DisruptionTarget") is not None
        assert alive(pid)
        assert (copy / "starts").read_text() == (original / "starts").read_text()
        server.kill()
        server.wait()
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("damaged", [False, True])
async def test_damaged_journal_is_reported_as_incomplete(tmp_path: Path, damaged: bool) -> None:
    journal = Journal(str(tmp_path / "claims"), identity_of(str(tmp_path)))
    for number in range(2):
        journal.claim(Claim(f"u{number}", "c", 0), 0)
    if damaged:
        data = (tmp_path / "claims").read_bytes()
        (tmp_path / "claims").write_bytes(data.replace(b'"u0"', b'"??"'))
    client = SupervisorClient(tmp_path, owner=True, on_events=lambda _: None, on_lost=lambda: None)
    handshake = await client.connect()
    assert handshake.rebooted == damaged
    assert len(handshake.known) == (1 if damaged else 2)
    await client.close(end=True)


def test_a_server_that_connects_learns_of_an_end_only_once_it_is_recorded(tmp_path: Path) -> None:
    place = tmp_path / "supervisor"
    claim = ["u", "c", 0]
    request = {
        "claim": claim,
        "argv": ["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"],
        "env": {"PATH": os.environ["PATH"]},
        "cwd": str(tmp_path),
        "log": str(tmp_path / "log"),
    }
    told: list[str] = []

    def client(owner: bool, lost: asyncio.Event) -> SupervisorClient:
        return SupervisorClient(
            place,
            owner=owner,
            on_events=lambda events: told.extend(event[0] for event in events),
            on_lost=lost.set,
        )

    async def record_the_exit_late(faults: Faults) -> None:
        lost = asyncio.Event()
        first = client(True, lost)
        await first.connect()
        first.send({"do": "spawn", "items": [request]})
        await until_true(lambda: told == ["started"])
        faults.fail("pwrite", errno.EIO)
        (tmp_path / "go").touch()
        await until_true(lambda: faults.happened("pwrite") > 1)
        second = client(False, lost)
        handshake = await second.connect()
        assert [record[0] for record in handshake.known] == ["started"]
        assert told == ["started"]
        await lost.wait()
        faults.mend("pwrite")
        await until_true(lambda: told == ["started", "exited"])
        await first.close(end=False)
        await second.close(end=True)

    with faulty_supervisors(tmp_path / "faults") as faults:
        asyncio.run(asyncio.wait_for(record_the_exit_late(faults), 30))


async def test_a_folder_that_was_moved_is_still_the_one_its_processes_belong_to(
    tmp_path: Path,
) -> None:
    original, moved = tmp_path / "original", tmp_path / "moved"
    original.mkdir()
    pod = shell(f"echo $$$$ >> {tmp_path}/starts; while [[ ! -e {tmp_path}/go ]]; do :; done")
    with a_doomed_server(original, pod) as server:
        pid = wait_for(tmp_path / "starts")
        server.kill()
        server.wait()
    original.rename(moved)
    async with a_process_node(moved) as node:
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        assert alive(pid)
        (tmp_path / "go").touch()
        assert (await node.finished("p"))["status"]["phase"] == "Succeeded"


async def test_a_supervisor_starts_where_its_own_output_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "supervisor").mkdir(mode=0o700)
    # As for a file for which the disk has no space.
    (tmp_path / "supervisor" / "output").symlink_to("/dev/full")
    async with a_process_node(tmp_path) as node:
        assert (await node.run(shell("exit 0")))["status"]["phase"] == "Succeeded"


async def test_where_folders_cannot_be_locked_a_file_has_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def files_only(fd: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", files_only)
    async with a_process_node(tmp_path) as node:
        assert (await node.run(shell("exit 0")))["status"]["phase"] == "Succeeded"
        assert (await node.run(shell("exit 0", name="q")))["status"]["phase"] == "Succeeded"


async def test_unstartable_supervisor_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async with an_api(tmp_path) as client:
        monkeypatch.setattr("onejob.node.process.supervisor_client._PATIENCE_SECONDS", (0.0,))
        monkeypatch.setattr("subprocess.Popen", no_process)
        with pytest.raises(RuntimeUnavailable, match=r"cannot start a supervisor .*temporarily"):
            async with a_node(client, process_runtime(tmp_path)):
                raise AssertionError("it started")
