"""Days of daily CronJobs: each slot runs exactly once, and the server stops growing.

`make cron-soak` runs more of them for longer.
"""

from pathlib import Path

import pytest

from onejob.virtual_time import run_virtual
from tests.controllers.cron_soak import soak


def test_cronjobs_run_every_slot_once(tmp_path: Path) -> None:
    books = run_virtual(soak(tmp_path, 10, days=8))
    assert books.surprises == []
    assert books.runs == books.completed == 10 * 8
    settled, later = books.sizes
    assert later.objects == settled.objects


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_server_stops_growing_under_cronjobs(tmp_path: Path) -> None:
    """After thousands of runs, bounded caches are nearly full, and only leaks still grow."""
    books = run_virtual(soak(tmp_path, 400, days=16))
    assert books.surprises == []
    assert books.runs == books.completed == 400 * 16
    *_, later, last = books.sizes
    assert last.database_bytes <= 1.1 * later.database_bytes
    assert last.peak_rss_mb <= later.peak_rss_mb + 10
    # A container with an entry per run would have grown by 1,600.
    grown = {path: size - later.held.get(path, 0) for path, size in last.held.items()}
    assert {path: more for path, more in grown.items() if more > 1_500} == {}
