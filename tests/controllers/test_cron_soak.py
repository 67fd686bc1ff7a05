"""Two weeks of daily CronJobs: each slot runs exactly once, and nothing piles up."""

from pathlib import Path

from onejob.virtual_time import run_virtual
from tests.controllers.cron_soak import soak

CRONJOBS, DAYS = 30, 14


def test_every_slot_runs_once_and_the_server_stops_growing(tmp_path: Path) -> None:
    report = run_virtual(soak(tmp_path, CRONJOBS, DAYS))
    assert len(report.runs) == CRONJOBS * DAYS
    assert set(report.runs.values()) == {1}
    assert report.finished == report.runs.keys()
    settled, last = report.sizes[4], report.sizes[-1]
    assert last.objects == settled.objects
    assert last.remembered == settled.remembered
    # The history that watches may resume from is kept up to a size, which a week reaches.
    assert last.database_bytes <= 1.2 * report.sizes[9].database_bytes
