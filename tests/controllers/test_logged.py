"""Log of a server's decisions: important ones by default, the rest with -v."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.notify.support import a_job
from tests.server_support import a_plane

pytestmark = pytest.mark.virtual_time


async def test_each_decision_is_a_line_with_the_key_of_its_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with a_plane(tmp_path) as plane:
            await plane.client.write(a_job("good", {}))
            await plane.client.write(a_job("bad", {}, exit_code="3"))
            await plane.client.write(a_job("theirs", {}, managedBy="example.com/other"))
            await asyncio.sleep(30)
    unasked = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "jobs.batch/default/theirs is managed by the controller example.com/other" in unasked
    failed = [line.split(":")[0] for line in unasked if "failed" in line]
    assert failed == ["job default/bad failed"]
    asked = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert any(line.startswith("Job default/good: SuccessfulCreate: Created pod") for line in asked)
    assert "Job default/good: Completed: Job completed" in asked
