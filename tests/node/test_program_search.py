"""Search for a program in PATH: as by a shell, and without a process for each folder."""

from pathlib import Path
from typing import Any

import pytest

from onejob.node.supervisor.failures import SetupFailed
from onejob.node.supervisor.spawn import _find_and_start


def _request(name: str, path: str) -> dict[str, Any]:
    return {"argv": [name], "env": {"PATH": path}}


class Starts:
    """Recorder of attempted starts, which fail as configured."""

    def __init__(self, **failures: type[OSError]) -> None:
        self._failures = failures
        self.tried: list[str] = []

    def __call__(self, path: str, argv: list[str], env: dict[str, str]) -> int:
        self.tried.append(path)
        folder = Path(path).parent.name
        if folder in self._failures:
            raise self._failures[folder]
        return 42


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("empty", "first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("no folder")
    for name in ("first", "second"):
        (tmp_path / name / "program").write_text("#!/bin/sh")
    return tmp_path


def _path(folders: Path, *names: str) -> str:
    return ":".join(str(folders / name) for name in names)


def test_program_search_tries_existing_files_only(folders: Path) -> None:
    starts = Starts()
    path = _path(folders, "absent", "empty", "file", "first", "second")
    assert _find_and_start(starts, _request("program", path)) == 42
    assert starts.tried == [str(folders / "first" / "program")]


def test_program_search_skips_forbidden_files_and_reports_them_last(folders: Path) -> None:
    starts = Starts(first=PermissionError)
    path = _path(folders, "empty", "first", "second")
    assert _find_and_start(starts, _request("program", path)) == 42
    assert [Path(tried).parent.name for tried in starts.tried] == ["first", "second"]
    with pytest.raises(SetupFailed, match="permission denied"):
        _find_and_start(Starts(first=PermissionError), _request("program", str(folders / "first")))


def test_missing_program_is_found_without_spawning(folders: Path) -> None:
    starts = Starts()
    with pytest.raises(SetupFailed, match="executable file not found in \\$PATH"):
        _find_and_start(starts, _request("program", _path(folders, "absent", "empty", "file")))
    assert starts.tried == []


def test_a_program_that_is_named_by_its_path_is_not_looked_for(folders: Path) -> None:
    starts = Starts()
    named = str(folders / "empty" / "program")
    assert _find_and_start(starts, _request(named, _path(folders, "first"))) == 42
    assert starts.tried == [named]
