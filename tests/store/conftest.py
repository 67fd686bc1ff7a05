"""Fixtures: store tests work in memory where they can."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory_directory import memory_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a folder in memory, if possible.

    Thousands of real syncs would only make the tests slow: the state after a power loss is computed
    from the journal of a FaultyDisk, and a kill -9 leaves the state of the kernel.
    """
    path = Path(tempfile.mkdtemp(dir=memory_directory()))
    yield path
    shutil.rmtree(path)
