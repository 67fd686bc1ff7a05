"""The workers of a queue."""

import asyncio

from onejob.informers.loop import work
from onejob.informers.workqueue import WorkQueue
from onejob.virtual_time import run_virtual


def test_others_on_the_loop_have_their_turn_between_keys_that_have_nothing_to_wait_for() -> None:
    async def main() -> list[int]:
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
        return done_in_turn

    done_in_turn = run_virtual(main())
    assert sum(done_in_turn) == 10
    assert max(done_in_turn) == 1
