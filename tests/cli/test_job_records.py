"""Lines on the ended Pods of a Job."""

from datetime import UTC, datetime

from onejob.cli.reports.job_records import record_lines
from onejob.planning.history import PodRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_record_lines_count_the_pods_without_a_record() -> None:
    record = PodRecord(name="j-abc", uid="1", phase="Failed", exit_code=3, deleted=True)
    (first, second) = record_lines([record], 1200, NOON)
    assert "j-abc" in first
    assert second == "1,200 other deleted Pods have no record"
    assert len(record_lines([record], 0, NOON)) == 1
