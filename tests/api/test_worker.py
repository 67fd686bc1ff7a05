"""Fairness between users in the worker for large requests."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from onejob.api.yielding import _MAX_QUEUED_REQUESTS, REQUESTER, Worker
from onejob.wire.errors import TooManyRequests


class Bench:
    """Worker whose tasks wait until the test releases them; records the order of users."""

    def __init__(self) -> None:
        self.worker = Worker()
        self.begun = threading.Event()
        self.free = threading.Event()
        self.served: list[str] = []
        self.at_work = 0
        self.most_at_work = 0

    def ask(self, user: str, label: str = "") -> "asyncio.Task[None]":
        async def run() -> None:
            REQUESTER.set(user)
            await self.worker.run(self._work, label or user)

        return asyncio.create_task(run())

    def _work(self, label: str) -> None:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        self.begun.set()
        assert self.free.wait(60)
        self.at_work -= 1
        self.served.append(label)


async def bench(test: Callable[[Bench], Awaitable[None]]) -> Bench:
    made = Bench()
    try:
        await test(made)
    finally:
        made.free.set()
    return made


async def test_worker_serves_users_in_turn() -> None:
    async def test(it: Bench) -> None:
        flood = [it.ask("flood") for _ in range(20)]
        await asyncio.sleep(0)
        others = [it.ask("one"), it.ask("two"), it.ask("one")]
        await asyncio.sleep(0)
        it.free.set()
        await asyncio.gather(*flood, *others)

    it = await bench(test)
    assert it.served[:5] == ["flood", "one", "flood", "two", "one"]
    assert it.served[5:] == ["flood"] * 18
    assert it.most_at_work == 1


async def test_worker_serves_requests_of_user_in_order() -> None:
    async def test(it: Bench) -> None:
        asked = [it.ask("a", f"{number}") for number in range(10)]
        await asyncio.sleep(0)
        it.free.set()
        await asyncio.gather(*asked)

    assert (await bench(test)).served == [f"{number}" for number in range(10)]


async def test_worker_refuses_only_users_beyond_their_share() -> None:
    async def test(it: Bench) -> None:
        flood = [it.ask("flood") for _ in range(_MAX_QUEUED_REQUESTS)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await it.ask("flood")
        other = it.ask("other")
        await asyncio.sleep(0)
        assert not other.done()
        it.free.set()
        await asyncio.gather(*flood, other)
        # All is as at the start.
        await it.ask("flood")
        assert not it.worker._held
        assert not it.worker._queues

    assert (await bench(test)).served.index("other") == 1


async def test_worker_passes_over_cancelled_requests() -> None:
    async def test(it: Bench) -> None:
        asked = [it.ask("a", f"{number}") for number in range(4)]
        await asyncio.sleep(0)
        asked[1].cancel()
        asked[2].cancel()
        await asyncio.sleep(0)
        it.free.set()
        await asyncio.wait(asked)
        await it.ask("b", "last")

    assert (await bench(test)).served == ["0", "3", "last"]


async def test_worker_passes_on_turn_of_request_cancelled_when_it_came() -> None:
    async def test(it: Bench) -> None:
        it.worker._busy = True
        first, second = it.ask("a", "first"), it.ask("a", "second")
        await asyncio.sleep(0)
        it.worker._pass_on()
        first.cancel()
        it.free.set()
        await asyncio.wait((first, second))
        assert first.cancelled()
        assert not it.worker._busy

    assert (await bench(test)).served == ["second"]


async def test_worker_shortens_switch_interval_only_while_busy() -> None:
    usual = sys.getswitchinterval()
    during: list[float] = []

    async def test(it: Bench) -> None:
        other = Bench()
        asked = it.ask("one"), other.ask("two")
        await asyncio.gather(*(asyncio.to_thread(each.begun.wait, 60) for each in (it, other)))
        for each, task in zip((it, other), asked, strict=True):
            during.append(sys.getswitchinterval())
            each.free.set()
            await task

    await bench(test)
    assert max(during) < usual
    assert sys.getswitchinterval() == usual
