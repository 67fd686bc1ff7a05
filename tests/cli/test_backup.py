"""Backup of a running server into a file, and restore."""

import base64
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from onejob.cli import backups
from onejob.cli.backups import DATABASE, FORMAT, restore
from onejob.cli.errors import CommandError
from onejob.cli.scratch_folders import BACKUP_PREFIX, RESTORE_PREFIX, scratch_folder
from tests.cli.command_line import ROOT, CommandLine, job_yaml
from tests.upgrade.support import a_plane, status

pytestmark = pytest.mark.virtual_time


async def test_a_backup_of_a_running_server_is_restored_elsewhere(
    served: CommandLine, tmp_path: Path
) -> None:
    (served.home / "job.yaml").write_text(job_yaml("kept", "true"))
    assert served.run("create", "-f", "job.yaml").returncode == 0
    assert served.run("wait", "job/kept").returncode == 0
    state = tmp_path / "state.tar"
    done = served.run("backup", str(state))
    assert done.returncode == 0, done.stderr
    assert state.stat().st_mode & 0o777 == 0o600
    with tarfile.open(state) as tar:
        found = tar.getnames()
    assert {"backup.json", DATABASE, "admin.token", "pki/ca.key"} <= set(found)
    assert not [name for name in found if name.startswith(("supervisor", "pods"))]
    # No other file is left there.
    assert list(tmp_path.iterdir()) == [state]

    assert "exists" in served.run("backup", str(state)).stderr
    assert served.run("backup", "--replace", str(state)).returncode == 0

    elsewhere = tmp_path / "elsewhere"
    done = served.run("restore", str(state), "--data-dir", str(elsewhere))
    assert done.returncode == 0, done.stderr
    original = served.data_dir / "server/pki/ca.key"
    assert not (elsewhere / "server/backup.json").exists()
    assert (elsewhere / "server/pki/ca.key").read_bytes() == original.read_bytes()
    plane = await a_plane(elsewhere / "server")
    assert (await status(plane, "kept"))["succeeded"] == 1
    await plane.stop()


def test_keys_of_encrypted_secrets_are_never_in_it(served: CommandLine, tmp_path: Path) -> None:
    """Even if they are stored in the data dir: the encryption would be useless."""
    state = tmp_path / "state.tar"
    folder = served.data_dir / "server" / "mine"
    folder.mkdir(mode=0o700)
    key = base64.b64encode(bytes(range(32))).decode()
    (folder / "keys").write_text(f"# since May\nnone\n2026-05: {key}\n")
    (folder / "notes").write_text("port: 8443\n")
    assert served.run("backup", str(state)).returncode == 0
    with tarfile.open(state) as tar:
        found = tar.getnames()
    assert "mine/notes" in found
    assert "mine/keys" not in found
    assert key.encode() not in state.read_bytes()


def test_a_running_server_is_not_replaced(served: CommandLine, tmp_path: Path) -> None:
    state = tmp_path / "state.tar"
    assert served.run("backup", str(state)).returncode == 0
    refused = served.run("restore", str(state))
    assert refused.returncode == 2
    assert "already" in refused.stderr
    refused = served.run("restore", "--replace", str(state))
    assert refused.returncode == 2
    assert "is running (stop it first)" in refused.stderr
    assert served.run("get", "jobs").returncode == 0


def test_restore_keeps_previous_database(served: CommandLine, tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state.tar", tmp_path / "elsewhere"
    assert served.run("backup", str(state)).returncode == 0
    for _ in range(2):
        done = served.run("restore", "--replace", str(state), "--data-dir", str(elsewhere))
        assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in elsewhere.iterdir())
    assert names == ["server", "server.replaced-1"]
    assert (elsewhere / "server.replaced-1" / DATABASE).exists()


@pytest.mark.parametrize("at_once", [True, False])
def test_replaced_file_exists_at_all_times(
    served: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Otherwise a server started after a kill would begin with an empty database, silently."""
    state, elsewhere = tmp_path / "state.tar", tmp_path / "elsewhere"
    assert served.run("backup", str(state)).returncode == 0
    server = elsewhere / "server"
    elsewhere.mkdir()
    restore(state, server, replace=False)
    if not at_once:
        monkeypatch.setattr(backups, "_exchange", lambda *_: False)
    original, renames = os.rename, 0

    def watched(source: Path, target: Path) -> None:
        nonlocal renames
        renames += 1
        # Before and after each step.
        assert not at_once or (server / DATABASE).exists()
        original(source, target)
        assert not at_once or (server / DATABASE).exists()

    monkeypatch.setattr(os, "rename", watched)
    _, before = restore(state, server, replace=True)
    assert renames > 0
    assert before == elsewhere / "server.replaced-1"
    # The replaced database has been locked.
    assert (before / f"{DATABASE}.lock").exists()
    assert not (server / f"{DATABASE}.lock").exists()


def test_a_server_that_cannot_be_replaced_stays(
    served: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, elsewhere = tmp_path / "state.tar", tmp_path / "elsewhere"
    assert served.run("backup", str(state)).returncode == 0
    server = elsewhere / "server"
    elsewhere.mkdir()
    restore(state, server, replace=False)
    monkeypatch.setattr(backups, "_exchange", lambda *_: False)
    original = os.rename

    def refused(source: Path, target: Path) -> None:
        if target == server and source.name.startswith("restoring-"):
            raise OSError(5, "Input/output error")
        original(source, target)

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(CommandError, match="cannot restore"):
        restore(state, server, replace=True)
    assert [path.name for path in elsewhere.iterdir()] == ["server"]
    assert (server / DATABASE).exists()


@pytest.mark.parametrize("words", [("backup",), ("restore", "--replace"), ("serve",)])
def test_temporary_files_of_killed_backup_are_removed(
    served: CommandLine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Only leftovers: not files in use, nor files of other origin."""
    state, elsewhere = tmp_path / "state.tar", tmp_path / "elsewhere"
    assert served.run("backup", str(state)).returncode == 0
    assert served.run("restore", str(state), "--data-dir", str(elsewhere)).returncode == 0
    place = tmp_path if words[0] == "backup" else elsewhere
    prefix = BACKUP_PREFIX if words[0] == "backup" else RESTORE_PREFIX
    with scratch_folder(place, prefix) as in_use:
        left = _left_by_a_kill(place, prefix)
        assert (left / "secret").exists()
        (place / f"{prefix}link").symlink_to(in_use)
        (place / f"{prefix}file").touch()
        if words[0] == "serve":
            _serve_once(served, elsewhere)
        else:
            done = served.run(
                *words, str(tmp_path / "again.tar" if words[0] == "backup" else state),
                "--data-dir", str(served.data_dir if words[0] == "backup" else elsewhere),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        assert in_use.exists()
        assert sorted(path.name for path in place.glob(f"{prefix}*")) == sorted(
            [in_use.name, f"{prefix}file", f"{prefix}link"]
        )
    assert not in_use.exists()


def _left_by_a_kill(place: Path, prefix: str) -> Path:
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from onejob.cli.scratch_folders import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1]), sys.argv[2]) as folder:\n"
        "    (folder / 'secret').touch()\n    print(folder, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(place), prefix],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    return Path(done.stdout.strip())


def _serve_once(served: CommandLine, data_dir: Path) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--no-node", "--data-dir", str(data_dir))
    with served.start(*words) as server:
        assert server.stdout is not None
        assert "onejob" in server.stdout.readline()
        server.terminate()


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def manifest(version: int) -> bytes:
    return msgspec.json.encode({"format": version, "onejob": "9.9", "revision": 1})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "is not a onejob backup"),
        ({"something": b"x"}, "is not a onejob backup"),
        ({"backup.json": b"{"}, "is not a onejob backup"),
        ({"backup.json": manifest(FORMAT + 1)}, "was written by a newer onejob"),
        ({"backup.json": manifest(FORMAT)}, "it contains no database"),
        (
            {"backup.json": manifest(FORMAT), "onejob.db": b"no database" * 999},
            "is damaged",
        ),
        (
            {"backup.json": manifest(FORMAT), "../x": b"x"},
            "is not a onejob backup: it contains '../x'",
        ),
    ],
)
def test_invalid_backup_is_rejected_with_one_line(
    onejob: CommandLine, tmp_path: Path, files: dict[str, bytes], said: str
) -> None:
    source = archive(tmp_path / "state.tar", files)
    refused = onejob.run("restore", str(source))
    assert refused.returncode == 2
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list(onejob.data_dir.iterdir()) == []
    assert not (onejob.home / "x").exists()


def test_a_folder_that_is_missing_is_named(served: CommandLine, tmp_path: Path) -> None:
    done = served.run("backup", str(tmp_path / "absent" / "state.tar"))
    assert (done.returncode, done.stderr) == (
        2,
        f"error: cannot write backup: no directory {tmp_path / 'absent'}\n",
    )


def test_there_is_no_server_to_back_up(onejob: CommandLine) -> None:
    refused = onejob.run("backup", "state.tar")
    assert refused.returncode == 2
    assert "no server in" in refused.stderr
    assert not (onejob.home / "state.tar").exists()
