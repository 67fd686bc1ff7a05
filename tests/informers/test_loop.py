"""The workers of a queue."""

import asyncio
import logging

import pytest

from onejob.informers.workqueue import ReportedRetry, Retry, WorkQueue, work
from onejob.wire.errors import Conflict, InternalError

pytestmark = pytest.mark.virtual_time


async def test_others_on_the_loop_have_their_turn_between_keys_that_have_nothing_to_wait_for() -> (
    None
):
    queue: WorkQueue[int] = WorkQueue()
    done_in_turn = [0]

    async def reconcile(key: int) -> None:
        done_in_turn[-1] += 1

    for key in range(10):
        queue.add(key)
    worker = asyncio.create_task(work(queue, reconcile, workers=1, name="test"))
    for _ in range(20):
        await asyncio.sleep(0)
        done_in_turn.append(0)
    worker.cancel()
    assert sum(done_in_turn) == 10
    assert max(done_in_turn) == 1


@pytest.mark.parametrize(
    ("error", "levels"),
    [
        (Retry("the cache is late"), ["INFO", "INFO", "WARNING"]),
        (Conflict("somebody was faster"), ["INFO", "INFO", "WARNING"]),
        (InternalError("the status cannot be written"), ["WARNING", "WARNING"]),
        (ReportedRetry("the target is down"), ["INFO", "INFO"]),
    ],
)
async def test_what_fails_for_no_usual_reason_or_again_is_seen_without_asking(
    error: Exception, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        queue: WorkQueue[str] = WorkQueue()
        calls = 0
        done = asyncio.Event()

        async def reconcile(key: str) -> None:
            nonlocal calls
            calls += 1
            if calls <= len(levels):
                raise error
            done.set()

        queue.add("jobs.batch/default/pi")
        worker = asyncio.create_task(work(queue, reconcile, workers=1, name="job"))
        await done.wait()
        worker.cancel()
    found = [record for record in caplog.records if record.name == "onejob.informers.workqueue"]
    assert [record.levelname for record in found] == levels
    assert "retrying jobs.batch/default/pi" in found[0].getMessage()
