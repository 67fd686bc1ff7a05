"""Checks of the managers' versions without building them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.managers.building import MANAGERS


def test_each_release_has_a_folder_of_its_own() -> None:
    assert all(manager.folder.name.endswith(manager.version) for manager in MANAGERS)
    assert len({manager.folder for manager in MANAGERS}) == len(MANAGERS)


def test_building_without_go_fails_with_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.managers"],
        env={**os.environ, "PATH": "", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == (
        "e2e-controllers: skipped: Go is not installed, and it is needed to build the managers\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
