"""A month of a thousand daily CronJobs: each slot runs exactly once, and nothing piles up."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob.virtual_time import run_virtual
from tests.controllers.cron_soak import soak

CRONJOBS, DAYS = 1000, 30
_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where there is such a place: a month has a hundred thousand commits."""
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="onejob-soak-", dir=place) as name:
        yield Path(name)


@pytest.mark.timeout(1200)
def test_every_slot_runs_once_and_the_server_stops_growing(folder: Path) -> None:
    books = run_virtual(soak(folder, CRONJOBS, DAYS))
    assert books.surprises == []
    assert books.runs == books.completed == CRONJOBS * DAYS
    settled, _, last = books.sizes
    assert last.objects == settled.objects
    assert last.database_bytes <= 1.1 * settled.database_bytes
    assert last.peak_rss_mb <= settled.peak_rss_mb + 20
    # Bounded memories come and go; what grew with the runs would have grown by 20,000.
    grown = {path: size - settled.held.get(path, 0) for path, size in last.held.items()}
    assert {path: more for path, more in grown.items() if more > 5_000} == {}
