"""Full copy-on-write file system (btrfs): the process of the store is not killed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.full_btrfs import CANNOT_MOUNT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs Debian's btrfs-progs")
def test_full_btrfs_ends_no_pod(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    child = [sys.executable, "-m", "tests.store.full_btrfs", str(tmp_path / "image"), str(folder)]
    done = subprocess.run(child, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == CANNOT_MOUNT:
        pytest.skip("btrfs cannot be mounted here")
    assert done.returncode == 0, done.stderr
