"""Virtual time: exact for seconds, and for years."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from onejob.virtual_time import Stuck, VirtualTimeLoop, run_virtual, virtual_clock

pytestmark = pytest.mark.virtual_time

HALF_A_YEAR = 2.0**24


async def sleeps(first: float) -> list[float]:
    """Return the duration of each of some short sleeps, after a long one."""
    await asyncio.sleep(first)
    loop = asyncio.get_running_loop()
    taken = []
    for seconds in (0.1, 0.001, 1 / 3, 1e-6):
        before = loop.time()
        await asyncio.sleep(seconds)
        taken.append(loop.time() - before)
    return taken


@pytest.mark.timeout(20)
@pytest.mark.parametrize("first", [0.0, 1e5, HALF_A_YEAR, HALF_A_YEAR + 1 / 3, 1e9])
def test_sleeps_take_their_time_however_late_it_is(first: float) -> None:
    wanted = pytest.approx([0.1, 0.001, 1 / 3, 1e-6], abs=1e-6)
    assert run_virtual(sleeps(first)) == wanted


async def test_timers_ring_in_the_order_in_which_they_are_due() -> None:
    await asyncio.sleep(HALF_A_YEAR)
    rung: list[int] = []
    loop = asyncio.get_running_loop()
    for number in (3, 1, 2):
        loop.call_later(number * 1e-3, rung.append, number)
    await asyncio.sleep(1)
    assert rung == [1, 2, 3]


async def test_the_clock_moves_with_the_loop() -> None:
    clock = virtual_clock()
    before = clock.now()
    await asyncio.sleep(3600)
    assert (clock.now() - before).total_seconds() == 3600


def test_waiting_for_nothing_is_an_error_rather_than_for_ever() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        run_virtual(wait_for_nothing())


def test_a_busy_loop_is_stuck_too() -> None:
    async def spin() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    with (
        pytest.raises(Stuck, match="no time passes: 100 turns"),
        asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(most_turns=100)) as runner,
    ):
        runner.run(spin())


async def test_virtual_loop_closes_without_waiting_for_the_threads_of_an_executor() -> None:
    class SlowToEnd(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            time.sleep(0.2)
            super().shutdown(wait, cancel_futures=cancel_futures)

    asyncio.get_running_loop().set_default_executor(SlowToEnd())
    await asyncio.to_thread(int)
