"""Fixtures: servers started once per module; each test has Jobs of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import pytest

from tests.mirror.pairs import Pair, a_pair

T = TypeVar("T")


class Do(Protocol):
    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine on the loop of the servers."""


_SECONDS = 120.0


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def do(loop: asyncio.AbstractEventLoop) -> Do:
    def run(work: Coroutine[Any, Any, T], /) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(_SECONDS)

    return run


@pytest.fixture(scope="module")
def pair(do: Do, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    opened = a_pair(tmp_path_factory.mktemp("pair"), "process")
    yield do(_enter(opened))
    do(_leave(opened))


async def _enter(opened: AbstractAsyncContextManager[Pair]) -> Pair:
    return await opened.__aenter__()


async def _leave(opened: AbstractAsyncContextManager[Pair]) -> None:
    await opened.__aexit__(None, None, None)
