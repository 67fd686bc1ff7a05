"""Rate limits and retries, in virtual time."""

import asyncio
from random import Random

import pytest

from onejob.client.pacing import RateLimit, Trouble, Unlimited, rate_limit, retry_delay

pytestmark = pytest.mark.virtual_time


async def times(limit: RateLimit, requests: int, batch: int = 1) -> list[float]:
    """Return the times at which several requests, made at the same moment, are sent."""
    loop = asyncio.get_running_loop()

    async def one() -> float:
        await limit.turn(batch)
        return loop.time()

    return sorted(await asyncio.gather(*(one() for _ in range(requests))))


async def test_a_burst_goes_at_once_and_the_rest_by_the_rate() -> None:
    sent = await times(RateLimit(50, 100), 200)
    assert sent[:100] == [0.0] * 100
    assert sent[100:] == pytest.approx([0.02 * n for n in range(1, 101)])


async def test_an_idle_time_fills_the_burst_and_no_more() -> None:
    limit = RateLimit(10, 5)
    await times(limit, 5)
    await asyncio.sleep(1000)
    sent = [at - 1000 for at in await times(limit, 6)]
    assert sent == pytest.approx([0.0] * 5 + [0.1])


async def test_a_small_batch_goes_before_a_giant_one() -> None:
    limit = RateLimit(10, 1)
    giant = asyncio.create_task(times(limit, 100, batch=100))
    await asyncio.sleep(1)
    small = await times(limit, 2, batch=2)
    assert small == pytest.approx([1.1, 1.2], abs=0.11)
    assert (await giant)[-1] == pytest.approx(10.1, abs=0.11)


async def test_a_giant_batch_is_not_starved_by_small_ones() -> None:
    limit = RateLimit(10, 1)

    async def small_ones() -> None:
        while True:
            await limit.turn(1)

    swarm = [asyncio.create_task(small_ones()) for _ in range(3)]
    done = await times(limit, 20, batch=20)
    # Of the small ones, only the ones that arrive within its own two seconds overtake it.
    assert done[-1] < 2 * 20 / 10 + 20 * 3 / 10
    for task in swarm:
        task.cancel()
    await asyncio.gather(*swarm, return_exceptions=True)


async def test_cancelled_permit_is_passed_on() -> None:
    limit = RateLimit(1, 1)
    await limit.turn(1)
    gone = [asyncio.create_task(limit.turn(1)) for _ in range(3)]
    last = asyncio.create_task(times(limit, 1))
    await asyncio.sleep(0.5)
    for task in gone:
        task.cancel()
    assert await last == pytest.approx([1.0])


def test_no_rate_is_no_limit() -> None:
    assert isinstance(rate_limit(0, 100), Unlimited)


def test_trouble_doubles_the_wait_and_a_success_ends_it() -> None:
    trouble = Trouble(Random(1))
    assert trouble.delay() == 0
    longest = []
    for number in range(12):
        trouble.failed(number, number)
        longest.append(max(trouble.delay() for _ in range(200)))
    assert longest[:4] == pytest.approx([0.05, 0.1, 0.2, 0.4], rel=0.05)
    assert longest[-1] == pytest.approx(10, rel=0.05)
    assert len({trouble.delay() for _ in range(10)}) == 10
    trouble.succeeded()
    assert trouble.delay() == 0


def test_requests_that_fail_together_count_once() -> None:
    trouble = Trouble(Random(1))
    for _ in range(32):
        trouble.failed(sent_at=1.0, now=2.0)
    assert trouble.failures == 1
    trouble.failed(sent_at=2.5, now=3.0)
    assert trouble.failures == 2


def test_retries_wait_longer_and_longer() -> None:
    rng = Random(1)
    longest = [max(retry_delay(attempt, rng) for _ in range(200)) for attempt in range(7)]
    assert longest == pytest.approx([0.25, 0.5, 1, 2, 4, 5, 5], rel=0.05)
