"""Soak test of many daily CronJobs: `python -m tests.controllers.cron_soak --days 365`.

The whole control plane runs in virtual time, with a node that ends every Pod after a second. Every
slot must have run exactly once and in order, and the server must not be larger at the end than
early on.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from onejob.benchmarks.usage import peak_rss_mb
from onejob.client.base import Bind, Client, Create, Op, Patch, Selection, WatchEvent
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, NODES, PODS
from onejob.objects.pod import Pod, read_pod
from onejob.virtual_time import run_virtual
from onejob.wire.errors import ApiError
from tests.build import a_cronjob
from tests.controllers.housekeeping import TEMPLATE, House, a_house
from tests.holdings import Holdings, holdings

DAY_SECONDS = 86400.0
HISTORY = 3
#: Days between measurements of the server, which take a while.
MEASURED_DAYS = 4
_NODE = "node"
#: One in this many Jobs is deleted by its TTL, before the history limit applies.
_WITH_TTL = 5
_TTL_SECONDS = 30 * 3600
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Size of the server at some time."""

    day: int
    objects: int
    database_bytes: int
    peak_rss_mb: float
    #: Sizes of the containers in the store, the informers and the controllers.
    held: Holdings


@dataclass
class Books:
    """Check that every slot of every CronJob ran once, in constant memory."""

    #: CronJob -> the slot of its newest Job.
    newest: dict[str, datetime] = field(default_factory=dict)
    runs: int = 0
    completed: int = 0
    #: Violations.
    surprises: list[str] = field(default_factory=list)
    sizes: list[Sizes] = field(default_factory=list)

    def follow(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            if delta.old is None:
                self._created(delta.key.name)
            is_complete = delta.new is not None and delta.new.condition_is_true("Complete")
            was_complete = delta.old is not None and delta.old.condition_is_true("Complete")
            self.completed += is_complete and not was_complete

    def _created(self, name: str) -> None:
        self.runs += 1
        cronjob, _, minutes = name.rpartition("-")
        slot = datetime.fromtimestamp(int(minutes) * 60, UTC)
        before = self.newest.get(cronjob)
        if before is not None and slot - before != _DAY:
            self.surprises.append(f"{cronjob} ran at {slot} after {before}")
        self.newest[cronjob] = slot


class BatchNode:
    """Node that binds Pods at once and reports their ends a second later, in batches.

    It keeps no records, so that only the server can grow.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def run(self) -> None:
        listing = await self._client.list(Selection(PODS))
        async with asyncio.TaskGroup() as group:
            async for batch in self._client.watch(Selection(PODS), after=listing.revision):
                new = [read_pod(event.document) for event in batch if _is_new(event)]
                if new:
                    group.create_task(self._live(new))

    async def _live(self, pods: Sequence[Pod]) -> None:
        await self._write([Bind(pod.key, _NODE) for pod in pods])
        await asyncio.sleep(1)
        stamp = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp}
        container = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        ended = {**container, "state": {"terminated": state}}
        unready = [{"type": "Ready", "status": "False"}]
        status = {"phase": "Succeeded", "conditions": unready, "containerStatuses": [ended]}
        body = msgspec.json.encode({"status": status})
        await self._write([Patch(pod.key, body, "strategic", "status") for pod in pods])

    async def _write(self, ops: Sequence[Op]) -> None:
        for result in await self._client.write_many(ops):
            assert not isinstance(result, ApiError), result


def _is_new(event: WatchEvent) -> bool:
    return event.type == "ADDED"


async def soak(folder: Path, cronjobs: int, days: int, *, talks: bool = False) -> Books:
    books = Books()
    everything = ("cronjobs", "ttl", "garbage", "pod_gc", "namespaces", "events", "jobs")
    async with a_house(folder, *everything) as house:
        house.informers.jobs.on_change(books.follow)
        await house.create(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}, ""
        )
        house.tasks.append(asyncio.create_task(BatchNode(house.client, house.clock).run()))
        # Just after noon, so that no slot falls on the very end of a day.
        await asyncio.sleep(10)
        creations = [Create(CRONJOBS, "default", _cronjob(number)) for number in range(cronjobs)]
        for result in await house.client.write_many(creations):
            assert not isinstance(result, ApiError), result
        for day in range(MEASURED_DAYS, days + 1, MEASURED_DAYS):
            await asyncio.sleep(MEASURED_DAYS * DAY_SECONDS)
            books.sizes.append(_measure(house, folder, day))
            if talks:
                _tell(books)
        await asyncio.sleep(days % MEASURED_DAYS * DAY_SECONDS)
    return books


def _cronjob(number: int) -> bytes:
    """Return a CronJob: half of them run at midnight, the others at sixty times of the day."""
    schedule = "@daily" if number % 2 else f"{number % 60} {number % 24} * * *"
    ttl = {} if number % _WITH_TTL else {"ttlSecondsAfterFinished": _TTL_SECONDS}
    job = {"template": TEMPLATE, **ttl}
    document = a_cronjob(f"cj-{number}", schedule, job=job, successfulJobsHistoryLimit=HISTORY)
    return msgspec.json.encode(document)


def _measure(house: House, folder: Path, day: int) -> Sizes:
    objects = sum(house.cluster.store.count(name) for name in (JOBS, PODS, EVENTS, CRONJOBS))
    database_bytes = sum(path.stat().st_size for path in folder.glob("onejob.db*"))
    gc.collect()
    held = holdings(house)
    # After the census, which takes memory itself, the same each time.
    return Sizes(day, objects, database_bytes, peak_rss_mb(), held)


def _tell(books: Books) -> None:
    now = books.sizes[-1]
    print(
        f"day {now.day}: {books.runs} runs, {books.completed} completed, {now.objects} objects, "
        f"{sum(now.held.values())} held, database {now.database_bytes / 1e6:.1f} MB, "
        f"peak {now.peak_rss_mb:.0f} MB, {time.process_time():.1f} s of CPU",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cronjobs", type=int, default=1000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--folder", help="where to put the database; a memory disk is faster")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        books = run_virtual(soak(Path(folder), options.cronjobs, options.days, talks=True))
    expected = options.cronjobs * options.days
    print(f"{expected} runs expected, {books.runs} Jobs created, {books.completed} completed")
    for surprise in books.surprises:
        print(surprise)
    return 0 if expected == books.runs == books.completed and not books.surprises else 1


if __name__ == "__main__":
    sys.exit(main())
