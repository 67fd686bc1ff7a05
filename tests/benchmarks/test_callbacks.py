"""Event loop that measures how long callbacks block it."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from onejob.benchmarks.callbacks import Pauses, TimedLoop

_BURNT_SECONDS = 0.03


@pytest.fixture
def loop() -> Iterator[TimedLoop]:
    loop = TimedLoop()
    yield loop
    loop.close()


def _burn() -> None:
    end = time.thread_time() + _BURNT_SECONDS
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(
    "start",
    [
        lambda loop: loop.call_soon(_burn),
        lambda loop: loop.call_soon_threadsafe(_burn),
        lambda loop: loop.call_later(0.001, _burn),
        lambda loop: loop.call_at(loop.time() + 0.001, _burn),
        lambda loop: loop.create_task(_step()),
    ],
    ids=["soon", "from a thread", "later", "at", "task"],
)
def test_all_kinds_of_callbacks_are_measured(
    loop: TimedLoop, start: Callable[[TimedLoop], object]
) -> None:
    async def run_callback() -> None:
        kept = start(loop)
        await asyncio.sleep(0.01)
        del kept

    loop.run_until_complete(run_callback())
    assert loop.longest_callback >= _BURNT_SECONDS


async def _step() -> None:
    _burn()


def test_waiting_is_not_held_against_a_callback(loop: TimedLoop) -> None:
    loop.call_soon(time.sleep, _BURNT_SECONDS)
    loop.run_until_complete(asyncio.sleep(0))
    assert loop.longest_callback < _BURNT_SECONDS


def test_pause_includes_all_callbacks_of_a_loop_iteration(
    loop: TimedLoop,
) -> None:
    pauses = Pauses()

    async def run_callbacks() -> None:
        end = loop.create_future()
        watching = loop.create_task(pauses.watch(end))
        await asyncio.sleep(0)
        for _ in range(2):
            loop.call_soon(_burn)
        loop.call_soon(time.sleep, _BURNT_SECONDS)
        loop.call_soon(end.set_result, None)
        await watching

    loop.run_until_complete(run_callbacks())
    assert pauses.longest_cpu >= 2 * _BURNT_SECONDS
    assert pauses.longest >= 2.9 * _BURNT_SECONDS
