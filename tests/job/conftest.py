"""Fixture: folders in memory. Hundreds of stores are opened here, and none is needed afterwards."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="onejob-job-", dir=place) as folder:
        yield Path(folder)
