"""Data dirs prepared by another user: refused, so that they grant no permissions."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from onejob.cli.kept_runs import create_folder, kept_runs
from tests.cli.command_line import CommandLine, QuickCommandLine

STRANGER = 54_321

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def quick(tmp_path: Path) -> CommandLine:
    return QuickCommandLine(tmp_path)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Create a folder as an attacker would, to become admin of a server that uses it."""
    folder = tmp_path / "ci"
    (folder / "server").mkdir(parents=True)
    (folder / "server" / "admin.token").write_text("a-token-that-a-stranger-knows\n")
    config = {"clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}]}
    (folder / "kubeconfig").write_bytes(msgspec.json.encode(config))
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    return folder


@needs_root
@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--listen", "127.0.0.1:0"),
        ("run", "--", "true"),
        ("get", "jobs"),
        ("why", "job/x"),
    ],
    ids=lambda words: words[0],
)
def test_a_foreign_data_dir_is_refused(
    quick: CommandLine, foreign: Path, command: tuple[str, ...]
) -> None:
    name, *rest = command
    done = quick.run(name, "--data-dir", str(foreign), *rest)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith(f"error: {foreign} belongs to user {STRANGER}")
    assert done.stderr.count("\n") == 1
    assert sorted(os.listdir(foreign)) == ["kubeconfig", "server"]


@needs_root
@pytest.mark.parametrize(
    "planted", ["server", "server/admin.token", "server/pki/ca.key", "server/supervisor/socket"]
)
def test_planted_file_in_own_data_dir_is_refused(
    onejob: CommandLine, tmp_path: Path, planted: str
) -> None:
    data_dir = tmp_path / "d"
    path = data_dir / planted
    path.parent.mkdir(parents=True)
    if planted == "server":
        path.mkdir()
    else:
        path.write_text("planted")
    os.chown(path, STRANGER, STRANGER)
    done = onejob.run("serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir))
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"error: {path} belongs to user {STRANGER}" in done.stderr


def test_a_link_in_the_data_dir_is_not_followed(onejob: CommandLine, tmp_path: Path) -> None:
    data_dir, elsewhere = tmp_path / "d", tmp_path / "elsewhere"
    data_dir.mkdir(mode=0o700)
    elsewhere.mkdir(mode=0o700)
    (data_dir / "server").symlink_to(elsewhere)
    done = onejob.run("serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "is a symbolic link" in done.stderr
    assert list(elsewhere.iterdir()) == []


def test_runs_are_not_kept_through_a_link(onejob: CommandLine, tmp_path: Path) -> None:
    data_dir, elsewhere = tmp_path / "d", tmp_path / "elsewhere"
    data_dir.mkdir(mode=0o700)
    elsewhere.mkdir(mode=0o700)
    (data_dir / "runs").symlink_to(elsewhere)
    done = onejob.run("run", "--data-dir", str(data_dir), "--", "true")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "is a symbolic link" in done.stderr
    assert list(elsewhere.iterdir()) == []


def test_a_data_dir_that_others_could_replace_is_refused(
    quick: CommandLine, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = quick.run("get", "jobs", "--data-dir", str(shared))
    assert done.returncode == 2
    assert "other users can write" in done.stderr
    done = quick.run("run", "--data-dir", str(shared / "d"), "--", "true")
    assert done.returncode == 2
    assert f"chmod go-w {shared}" in done.stderr
    assert list(shared.iterdir()) == []


@needs_root
def test_the_runs_of_a_stranger_are_not_listed(tmp_path: Path) -> None:
    from onejob.cli.kept_runs import Run
    from onejob.clock import SystemClock

    runs = tmp_path / "runs"
    for name in ("ours", "theirs"):
        folder = create_folder(runs / name)
        folder.record(Run(name, SystemClock().now()))
        (folder.path / "onejob.db").touch()
        folder.release()
    os.chown(runs / "theirs" / "run.json", STRANGER, -1)
    (runs / "linked").symlink_to(runs / "ours")
    assert [run.id for _, run in kept_runs(runs)] == ["ours"]
    shutil.rmtree(runs)
