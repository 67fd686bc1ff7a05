"""Two weeks of daily CronJobs: each slot runs exactly once, and nothing piles up.

`make cron-soak` is the same with more of them for longer.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob.virtual_time import run_virtual
from tests.controllers.cron_soak import soak

CRONJOBS, DAYS = 400, 15
_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where there is such a place: two weeks have tens of thousands of commits."""
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="onejob-soak-", dir=place) as name:
        yield Path(name)


@pytest.mark.timeout(3600)
def test_every_slot_runs_once_and_the_server_stops_growing(folder: Path) -> None:
    """Two weeks take minutes of CPU on a busy machine; a loop without progress ends by itself."""
    books = run_virtual(soak(folder, CRONJOBS, DAYS))
    assert books.surprises == []
    assert books.runs == books.completed == CRONJOBS * DAYS
    settled, later, last = books.sizes
    assert last.objects == later.objects == settled.objects
    assert last.database_bytes <= 1.1 * later.database_bytes
    assert last.peak_rss_mb <= later.peak_rss_mb + 10
    # Bounded memories are nearly full by then; what grew with the runs would have grown by 2,000.
    grown = {path: size - later.held.get(path, 0) for path, size in last.held.items()}
    assert {path: more for path, more in grown.items() if more > 1_500} == {}
