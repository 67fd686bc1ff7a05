"""Mirror killed after every single write, here and there.

The Job ends as it should, nothing runs twice and nothing is left behind.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import msgspec
import pytest

from onejob.client.base import Client, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection
from onejob.clock import SystemClock
from onejob.controllers.mirror.controller import MirrorController
from onejob.controllers.selection import ALL, MIRROR
from onejob.informers.cache import Delta
from onejob.objects.meta import JOBS, Key
from onejob.planning.mirror import names
from onejob.wire.errors import ApiError, NotFound
from tests.mirror.pairs import Pair, a_pair, is_complete, until_gone


class Death:
    """Crash once the write with that number was carried out, before its response arrives."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self.writes = 0
        self._coming = False
        #: Set once that write was carried out.
        self.came = asyncio.Event()

    async def write(self, client: Client, op: Op) -> Written:
        self.writes += 1
        if self._coming:
            await asyncio.Event().wait()
        if self.writes != self._number:
            return await client.write(op)
        self._coming = True
        # A refusal is a response as well, which does not arrive.
        with suppress(ApiError):
            await client.write(op)
        self.came.set()
        await asyncio.Event().wait()
        raise AssertionError("the dead do not go on")


class Mortal:
    """Client whose writes are counted."""

    def __init__(self, client: Client, death: Death) -> None:
        self._client = client
        self._death = death

    async def get(self, key: Key) -> bytes:
        return await self._client.get(key)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        return await self._client.list(what, limit=limit, token=token)

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        return self._client.watch(what, after=after)

    async def write(self, op: Op) -> Written:
        return await self._death.write(self._client, op)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results: list[Result] = []
        for op in ops:
            try:
                results.append(await self.write(op))
            except ApiError as error:
                results.append(error)
        return results

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def a_mirror(pair: Pair, death: Death, name: str) -> AsyncIterator[None]:
    """Run a controller for one Job."""

    def connect(connection: Connection) -> Client:
        return Mortal(HttpClient(connection, rng=Random(1)), death)

    controller = MirrorController(
        Mortal(pair.local, death),
        pair.here.plane.informers,
        clock=SystemClock(),
        connect=connect,
    )
    jobs = pair.here.plane.informers.jobs
    jobs.on_change(controller.jobs_changed)
    key = Key(JOBS, "default", name)
    if (job := jobs.cache.get(key)) is not None:
        controller.jobs_changed([Delta(key, None, job)])
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _life(pair: Pair, name: str, death: Death) -> None:
    """Create, run, delete; the first controller may crash on the way."""
    uid = await pair.create(name)
    calm = Death()

    async def ran_and_left() -> None:
        await pair.until(is_complete, name)
        pods = [pod for pod in await pair.pods(pair.remote) if _is_of(pod, uid)]
        assert len(pods) == 1, "nothing ran twice"
        shown = [pod for pod in await pair.pods(pair.local) if _is_of(pod, uid)]
        assert {pod["status"]["phase"] for pod in shown} == {"Succeeded"}
        assert len(shown) == 1
        await pair.delete(name)
        await until_gone(pair.local, Key(JOBS, "default", name))

    first = asyncio.create_task(ran_and_left())
    async with a_mirror(pair, death, name):
        dying = asyncio.create_task(death.came.wait())
        await asyncio.wait((first, dying), return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
    async with a_mirror(pair, calm, name):
        await first
    with pytest.raises(NotFound):
        await pair.copy(name)
    assert not [
        pod
        for client in (pair.local, pair.remote)
        for pod in await pair.pods(client)
        if _is_of(pod, uid)
    ]


def _is_of(pod: dict[str, object], origin: str) -> bool:
    metadata = msgspec.convert(pod["metadata"], dict[str, object])
    labels = msgspec.convert(metadata.get("labels", {}), dict[str, str])
    return labels.get(names.ORIGIN) == origin


async def test_no_death_runs_anything_twice_or_leaves_anything_behind(tmp_path: Path) -> None:
    async with a_pair(tmp_path, controllers=ALL - {MIRROR}) as pair:
        whole = Death()
        await _life(pair, "whole", whole)
        assert whole.writes > 10, "claim, create, link, start, Pods, status, delete, release"
        for number in range(1, whole.writes + 1):
            await _life(pair, f"dies-{number}", Death(number))


async def test_the_unknown_end_of_a_create_is_found_out_by_reading(tmp_path: Path) -> None:
    """A copy that was created before the crash is adopted, whichever controller created it."""
    async with a_pair(tmp_path, controllers=ALL - {MIRROR}) as pair:
        # The second write is the create over there: claim, create.
        death = Death(2)
        await pair.create("x")
        async with a_mirror(pair, death, "x"):
            await death.came.wait()
        copy = await pair.copy()
        assert copy["spec"]["suspend"] is True, "nothing may run before it is on record"
        assert not await pair.pods(pair.remote)
        async with a_mirror(pair, Death(), "x"):
            await pair.until(is_complete)
        assert (await pair.copy())["metadata"]["uid"] == copy["metadata"]["uid"]
        assert len(await pair.pods(pair.remote)) == 1
