"""The single executable file: first and later starts, and machines that it refuses."""

import os
import shutil
from pathlib import Path

import pytest

from release.single_file import MissingWheel, write_single_file
from tests.release.support import single_file, start


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return single_file(tmp_path_factory.mktemp("single"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def unpacked(home: Path) -> list[Path]:
    return sorted((home / ".cache" / "onejob").iterdir())


def test_single_file_runs_a_job_in_an_empty_home(built: Path, home: Path) -> None:
    done = start(built, home, "run", "--", "echo", "hi")
    assert done.returncode == 0, done.stderr
    assert "] hi" in done.stdout
    (folder,) = unpacked(home)
    assert folder.name.startswith("1.2.3-")


def test_later_start_does_not_read_the_archive(built: Path, home: Path, tmp_path: Path) -> None:
    assert start(built, home, "--version").returncode == 0
    script = tmp_path / "only-the-script"
    script.write_bytes(built.read_bytes().partition(b"PK\x03\x04")[0])
    script.chmod(0o755)
    done = start(script, home, "--version")
    assert done.returncode == 0, done.stderr


def test_modules_of_the_working_directory_are_not_imported(built: Path, home: Path) -> None:
    for name in ("click.py", "onejob.py"):
        (home / name).write_text("raise SystemExit('imported')")
    for _ in range(2):
        done = start(built, home, "--version")
        assert done.returncode == 0, done.stderr


def test_start_unpacks_again_when_the_interpreter_is_gone(built: Path, home: Path) -> None:
    assert start(built, home, "--version").returncode == 0
    (folder,) = unpacked(home)
    python = folder / "bin" / "python"
    python.unlink()
    python.symlink_to(home / "removed")
    done = start(built, home, "--version")
    assert done.returncode == 0, done.stderr
    assert unpacked(home) == [folder]
    assert python.exists()


def test_start_removes_what_a_killed_start_left_long_ago(built: Path, home: Path) -> None:
    parent = home / ".cache" / "onejob"
    for name in ("unfinished-old", "unfinished-new"):
        (parent / name).mkdir(parents=True)
    os.utime(parent / "unfinished-old", (0, 0))
    assert start(built, home, "--version").returncode == 0
    names = {path.name for path in unpacked(home)}
    assert "unfinished-old" not in names
    assert "unfinished-new" in names


def test_other_machine_is_refused_in_one_line(built: Path, home: Path, tmp_path: Path) -> None:
    done = start(built, home, "--version", path=programs(tmp_path, uname="echo Linux aarch64"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: this file runs on Linux x86_64, not on Linux aarch64")
    assert done.stderr.count("\n") == 1


def test_other_python_is_refused_in_one_line(built: Path, home: Path, tmp_path: Path) -> None:
    uname = '[ "$1" = -s ] && echo Linux || echo x86_64'
    path = programs(tmp_path, uname=uname, python3="exit 1")
    done = start(built, home, "--version", path=path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: onejob needs CPython 3.11, 3.12 or 3.13")
    assert done.stderr.count("\n") == 1


def test_unwritable_cache_is_reported_in_one_line(built: Path, home: Path) -> None:
    (home / ".cache").write_text("not a folder")
    done = start(built, home, "--version")
    assert done.returncode == 2
    assert "set XDG_CACHE_HOME" in done.stderr
    assert done.stderr.count("\n") == 1


def test_file_is_not_written_without_a_wheel_for_every_python(tmp_path: Path) -> None:
    for version in ("cp311", "cp312"):
        (tmp_path / f"a-1-{version}-{version}-manylinux_2_28_x86_64.whl").touch()
    with pytest.raises(MissingWheel, match=r"a 1 for CPython 3\.13"):
        write_single_file(tmp_path / "f", "1", tmp_path / "o", tmp_path.glob("*.whl"), {"a": "1"})
    assert not (tmp_path / "f").exists()


def programs(folder: Path, **scripts: str) -> str:
    """Return a PATH with only these shell scripts."""
    path = folder / "programs"
    path.mkdir()
    for name, text in scripts.items():
        (path / name).write_text(f"#!{shutil.which('sh')}\n{text}\n")
        (path / name).chmod(0o755)
    return str(path)
