"""Store tests work in memory where they can."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.support import memory_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Thousands of real syncs would only make the tests wait: what power loss would leave is
    worked out from the journal of a FaultyDisk, and a kill -9 leaves what the kernel has."""
    path = Path(tempfile.mkdtemp(dir=memory_directory()))
    yield path
    shutil.rmtree(path)
