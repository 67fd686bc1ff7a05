import asyncio

import pytest
import uvloop

from onejob.informers.workqueue import WorkQueue

pytestmark = pytest.mark.virtual_time


async def test_a_key_added_twice_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await queue.get() for _ in range(len(queue))] == ["a", "b"]


async def test_a_key_added_while_it_is_worked_on_is_due_once_more_and_only_when_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


async def test_the_earlier_of_two_delays_wins() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    await queue.get()
    assert asyncio.get_running_loop().time() == 3


async def test_delayed_key_can_be_added_at_once_and_runs_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add_after("b", 20)
    queue.add("b")
    queue.make_delayed_due()
    assert sorted([await queue.get(), await queue.get()]) == ["a", "b"]
    queue.done("a")
    queue.done("b")
    await asyncio.sleep(60)
    assert queue.idle, "no timer is left"


async def test_retries_back_off_exponentially_and_start_anew_after_success() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=1, longest_delay=4)
    loop = asyncio.get_running_loop()
    waits = []
    for attempt in range(5):
        if attempt == 4:
            queue.forget("a")
        before = loop.time()
        queue.retry("a")
        queue.done(await queue.get())
        waits.append(loop.time() - before)
    assert waits == [1, 2, 4, 4, 1]


async def test_every_waiting_worker_gets_a_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert set(await asyncio.gather(*getters)) == {"a", "b", "c"}


async def test_a_cancelled_worker_passes_its_wake_up_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"


async def test_nothing_comes_of_a_key_that_was_dropped() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=5)
    queue.add_after("gone", 3)
    queue.drop("gone")
    queue.retry("again")
    queue.drop("again")
    queue.retry("again")
    assert (await queue.get(), asyncio.get_running_loop().time()) == ("again", 5.0)


def test_a_delay_that_is_as_good_as_none_can_be_asked_for_twice() -> None:
    """uvloop has no timers for immediate callbacks: the handle that it returns has no `when`."""

    async def first() -> str:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 0.0001)
        queue.add_after("a", 0.0001)
        return await queue.get()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(first()) == "a"
