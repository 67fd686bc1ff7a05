"""Leader election between replicas, in virtual time and on a real store."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.client.answers import Unreachable
from onejob.client.base import Client, Listing, Op, Patch, Result, Selection, WatchEvent, Written
from onejob.cluster.election import LEASES, Elector, Leadership, NotLeading
from onejob.objects.meta import Key
from onejob.planning.leadership import Lease, Timing, read_lease
from tests.scripted_cluster import Cluster, a_cluster

pytestmark = pytest.mark.virtual_time

LEASE = Key(LEASES, "default", "the-lease")
TIMING = Timing()


class Link:
    """Client whose connection can be cut: before the server, or on the way back."""

    def __init__(self, inner: Client) -> None:
        self._inner = inner
        self.cut = False
        self.loses_answers = False
        self.hangs = False
        #: Seconds that a read waits before the server sees it.
        self.read_delay = 0.0
        #: Seconds until the response to a write, and below the time when the last write reached the
        #: server.
        self.answer_delay = 0.0
        self.arrived_at = 0.0

    async def get(self, key: Key) -> bytes:
        await asyncio.sleep(self.read_delay)
        await self._pass()
        return await self._inner.get(key)

    async def write(self, op: Op) -> Written:
        await self._pass()
        self.arrived_at = asyncio.get_running_loop().time()
        written = await self._inner.write(op)
        await asyncio.sleep(self.answer_delay)
        if self.loses_answers:
            raise Unreachable("the answer is lost")
        return written

    async def _pass(self) -> None:
        if self.hangs:
            await asyncio.sleep(1000)
        if self.cut:
            raise Unreachable("the server is gone")

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        raise NotImplementedError

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        raise NotImplementedError

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Replica:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.link = Link(cluster.client)
        self.clock = cluster.clock
        self.elector = Elector(self.link, LEASE, name, TIMING, cluster.clock, Random(name))
        self.leadership: Leadership | None = None
        self.why = ""

    async def lead_once(self) -> None:
        self.leadership = await self.elector.acquire()
        self.why = await self.elector.hold(self.leadership)

    @property
    def may_write(self) -> bool:
        if self.leadership is None:
            return False
        try:
            return self.leadership.seconds() > 0
        except NotLeading:
            return False


async def election(
    folder: Path, names: str, test: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    async with a_cluster(folder) as cluster:
        replicas = [Replica(cluster, name) for name in names.split()]
        tasks = [asyncio.create_task(replica.lead_once()) for replica in replicas]
        try:
            await test(cluster, *replicas)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def lease(cluster: Cluster) -> Lease:
    return read_lease(await cluster.client.get(LEASE))


async def test_one_of_many_leads_and_keeps_leading(tmp_path: Path) -> None:
    async def test(cluster: Cluster, *replicas: Replica) -> None:
        for _ in range(50):
            await asyncio.sleep(7)
            assert sum(replica.may_write for replica in replicas) == 1
        assert (await lease(cluster)).spec.lease_transitions == 0

    await election(tmp_path, "a b c", test)


async def test_a_leader_that_is_cut_off_stops_before_another_begins(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica, b: Replica) -> None:
        await asyncio.sleep(20)
        leader, other = (a, b) if a.may_write else (b, a)
        leader.link.cut = True
        cut_at = cluster.clock.monotonic()
        stopped_at = None
        while not other.may_write:
            assert not (leader.may_write and other.may_write)
            if stopped_at is None and not leader.may_write:
                stopped_at = cluster.clock.monotonic()
            await asyncio.sleep(0.1)
        assert stopped_at is not None
        assert stopped_at - cut_at <= TIMING.renew_seconds + 0.1
        # In between is the time that the last write may take.
        assert cluster.clock.monotonic() - stopped_at >= 4.5
        assert leader.why == "renewal timed out: the server is gone"
        assert (await lease(cluster)).spec.lease_transitions == 1

    await election(tmp_path, "a b", test)


async def test_a_record_is_respected_from_when_it_was_seen_however_long_reading_it_took(
    tmp_path: Path,
) -> None:
    async def test(cluster: Cluster, a: Replica, b: Replica) -> None:
        await asyncio.sleep(20)
        leader, other = (a, b) if a.may_write else (b, a)
        # As long as a starting server responds with "try again": longer than the lease.
        other.link.read_delay = TIMING.lease_seconds + 5
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert leader.may_write
            assert not other.may_write

    await election(tmp_path, "a b", test)


async def test_a_server_that_hangs_ends_a_term_too(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica) -> None:
        await asyncio.sleep(20)
        a.link.hangs = True
        await asyncio.sleep(TIMING.renew_seconds + 3)
        assert not a.may_write
        assert a.why == "renewal timed out"

    await election(tmp_path, "a", test)


async def test_acquire_counts_the_term_from_the_request_when_the_answer_is_slow(
    tmp_path: Path,
) -> None:
    async def test(cluster: Cluster, a: Replica) -> None:
        a.link.answer_delay = 3.0
        await asyncio.sleep(3.5)
        assert a.leadership is not None
        assert a.leadership.term.renewed_at == a.link.arrived_at

    await election(tmp_path, "a", test)


@pytest.mark.parametrize("conflicting", [False, True])
async def test_renew_counts_the_term_from_the_request_when_the_answer_is_slow(
    tmp_path: Path, conflicting: bool
) -> None:
    """Other replicas count from when they see the record, which may be long before the response."""

    async def test(cluster: Cluster, a: Replica) -> None:
        await asyncio.sleep(20)
        assert a.leadership is not None
        before = a.leadership.term.renewed_at
        a.link.answer_delay = 3.0
        if conflicting:
            # The lease is edited, so that the renewal reads it and writes it once more.
            await cluster.client.write(Patch(LEASE, b'{"metadata":{"labels":{"a":"b"}}}', "merge"))
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert a.leadership.term.renewed_at <= a.link.arrived_at
        assert a.leadership.term.renewed_at > before

    await election(tmp_path, "a", test)


async def test_a_released_lease_is_taken_at_once(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica, b: Replica) -> None:
        await asyncio.sleep(20)
        leader, other = (a, b) if a.may_write else (b, a)
        await leader.elector.release()
        released_at = cluster.clock.monotonic()
        while not other.may_write:  # noqa: ASYNC110 - a lease has no event
            await asyncio.sleep(0.1)
        assert cluster.clock.monotonic() - released_at <= TIMING.retry_seconds * 1.2 + 0.2

    await election(tmp_path, "a b", test)


async def test_lease_is_released_only_by_holder(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica, b: Replica) -> None:
        await asyncio.sleep(20)
        before = await lease(cluster)
        await (b if a.may_write else a).elector.release()
        assert await lease(cluster) == before

    await election(tmp_path, "a b", test)


async def test_a_lease_is_released_though_the_answer_to_its_last_renewal_was_lost(
    tmp_path: Path,
) -> None:
    async def test(cluster: Cluster, a: Replica) -> None:
        await asyncio.sleep(20)
        a.link.loses_answers = True
        await asyncio.sleep(TIMING.retry_seconds * 1.2)
        a.link.loses_answers = False
        await a.elector.release()
        assert (await lease(cluster)).spec.holder_identity == ""

    await election(tmp_path, "a", test)


async def test_a_lease_that_another_took_meanwhile_is_not_released(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica) -> None:
        await asyncio.sleep(20)
        thief = Elector(cluster.client, LEASE, "thief", TIMING, cluster.clock, Random(1))
        await thief._write(
            await lease(cluster), {"holderIdentity": "thief", "leaseDurationSeconds": 15}
        )
        await a.elector.release()
        assert (await lease(cluster)).spec.holder_identity == "thief"

    await election(tmp_path, "a", test)


async def test_lost_answers_cost_no_leadership(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica) -> None:
        a.link.loses_answers = True
        await asyncio.sleep(5)
        a.link.loses_answers = False
        await asyncio.sleep(5)
        assert a.may_write
        for _ in range(20):
            a.link.loses_answers = True
            await asyncio.sleep(3)
            a.link.loses_answers = False
            await asyncio.sleep(3)
            assert a.may_write
        assert (await lease(cluster)).spec.lease_transitions == 0

    await election(tmp_path, "a", test)


async def test_lease_taken_by_other_is_lost_at_once(tmp_path: Path) -> None:
    async def test(cluster: Cluster, a: Replica) -> None:
        await asyncio.sleep(20)
        thief = Elector(cluster.client, LEASE, "thief", TIMING, cluster.clock, Random(1))
        thief._sighting = None
        before = await lease(cluster)
        await thief._write(before, {"holderIdentity": "thief", "leaseDurationSeconds": 15})
        await asyncio.sleep(TIMING.retry_seconds * 1.5)
        assert a.why == "thief holds it"

    await election(tmp_path, "a", test)


@pytest.mark.parametrize("seed", range(20))
async def test_two_leaders_never_write_concurrently(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)

    async def test(cluster: Cluster, *replicas: Replica) -> None:
        again = [asyncio.create_task(lead_again(replica)) for replica in replicas]
        led: set[int] = set()
        for _ in range(600):
            await asyncio.sleep(0.5)
            writers = [replica for replica in replicas if replica.may_write]
            assert len(writers) <= 1
            led.update(map(id, writers))
            if rng.random() < 0.1:
                link = rng.choice(replicas).link
                link.cut, link.loses_answers, link.hangs = (rng.random() < 0.4 for _ in range(3))
        assert led
        for task in again:
            task.cancel()
        await asyncio.gather(*again, return_exceptions=True)

    async def lead_again(replica: Replica) -> None:
        while True:
            await asyncio.sleep(1)
            if replica.why:
                replica.why = ""
                await replica.lead_once()

    await election(tmp_path, "a b c", test)
