"""Event recorder: events are written, counted, aggregated and limited as in client-go."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Delete, Op, Result, Selection
from onejob.client.events import About, EventRecorder
from onejob.client.local import LocalClient
from onejob.controllers.bootstrap import bootstrap
from onejob.gates import FeatureGates
from onejob.objects.meta import EVENTS, Key
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from onejob.wire.errors import InternalError

JOB = About("batch/v1", "Job", "default", "job", "uid-1", "7")
OTHER = About("batch/v1", "Job", "default", "other", "uid-2", "8")


class Reporter:
    """A recorder and the events written by it."""

    def __init__(self, service: Service, recorder: EventRecorder) -> None:
        self.service = service
        self.client = LocalClient(service)
        self.recorder = recorder

    def tell(self, message: str, what: About = JOB, reason: str = "Reason") -> None:
        self.recorder.record(what, "Normal", reason, message)

    async def events(self) -> list[dict[str, Any]]:
        await self.recorder.flush()
        listing = await self.client.list(Selection(EVENTS))
        events = [msgspec.json.decode(document) for document in listing.documents]
        return sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))

    async def counts(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in await self.events()]


@asynccontextmanager
async def a_reporter(folder: Path) -> AsyncIterator[Reporter]:
    clock = virtual_clock()
    store = await LogStore.open(folder / "onejob.db", clock=clock, committer=LoopCommitter())
    service = Service(store, clock=clock, rng=Random(1), gates=FeatureGates())
    client = LocalClient(service)
    await bootstrap(client)
    try:
        yield Reporter(service, EventRecorder(client, "job-controller", clock, host="here"))
    finally:
        await store.close()


def reporting(folder: Path, test: Callable[[Reporter], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with a_reporter(folder) as reporter:
            await test(reporter)

    run_virtual(run())


def test_events_recorded_during_write_are_not_delayed(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        running = asyncio.create_task(reporter.recorder.run())
        reporter.tell("first")
        # The first is about to be written.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reporter.tell("second", OTHER)
        await asyncio.sleep(1)
        listing = await reporter.client.list(Selection(EVENTS))
        assert len(listing.documents) == 2
        running.cancel()

    reporting(tmp_path, test)


def test_event_has_source_reason_and_object(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        reporter.tell("Job completed", reason="Completed")
        (event,) = await reporter.events()
        assert event["involvedObject"] == {
            "kind": "Job",
            "namespace": "default",
            "name": "job",
            "uid": "uid-1",
            "apiVersion": "batch/v1",
            "resourceVersion": "7",
        }
        assert (event["type"], event["reason"]) == ("Normal", "Completed")
        assert event["message"] == "Job completed"
        assert event["source"] == {"component": "job-controller", "host": "here"}
        assert event["reportingComponent"] == "job-controller"
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T12:00:00Z"
        assert event["metadata"]["namespace"] == "default"
        assert event["metadata"]["name"].startswith("job.")

    reporting(tmp_path, test)


def test_a_repeated_event_raises_the_count_of_the_first(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        reporter.tell("again")
        await reporter.events()
        await asyncio.sleep(60)
        reporter.tell("again")
        reporter.tell("again")
        (event,) = await reporter.events()
        assert event["count"] == 3
        assert event["firstTimestamp"] == "2026-01-01T12:00:00Z"
        assert event["lastTimestamp"] == "2026-01-01T12:01:00Z"

    reporting(tmp_path, test)


def test_a_repetition_of_an_event_that_is_gone_is_written_afresh(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        reporter.tell("again")
        (first,) = await reporter.events()
        await reporter.client.write(Delete(Key(EVENTS, "default", first["metadata"]["name"])))
        reporter.tell("again")
        (second,) = await reporter.events()
        assert second["count"] == 2, "as often as it happened"
        assert second["firstTimestamp"] == first["firstTimestamp"]
        reporter.tell("again")
        (third,) = await reporter.events()
        assert third["metadata"]["uid"] == second["metadata"]["uid"]
        assert third["count"] == 3

    reporting(tmp_path, test)


def test_the_tenth_event_that_differs_in_its_message_alone_begins_a_combined_one(
    tmp_path: Path,
) -> None:
    async def test(reporter: Reporter) -> None:
        for number in range(14):
            reporter.tell(f"Created pod: {number}", reason="SuccessfulCreate")
        counts = await reporter.counts()
        assert counts[:9] == [(f"Created pod: {number}", 1) for number in range(9)]
        assert counts[9:] == [("(combined from similar events): Created pod: 13", 5)]

    reporting(tmp_path, test)


@pytest.mark.parametrize("what", ["reason", "object", "later"])
def test_distinct_events_are_not_aggregated(tmp_path: Path, what: str) -> None:
    async def test(reporter: Reporter) -> None:
        for number in range(9):
            reporter.tell(f"message {number}")
        if what == "later":
            await asyncio.sleep(601)
        reporter.tell(
            "one more",
            OTHER if what == "object" else JOB,
            "Another" if what == "reason" else "Reason",
        )
        assert ("one more", 1) in await reporter.counts()

    reporting(tmp_path, test)


def test_one_object_gets_a_burst_and_then_one_event_in_five_minutes(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        for number in range(40):
            reporter.tell("x", reason=f"Reason{number}")
        assert len(await reporter.events()) == 25
        reporter.tell("of another object", OTHER)
        assert len(await reporter.events()) == 26, "each has its own allowance"
        for expected in (27, 28):
            await asyncio.sleep(301)
            reporter.tell("x", reason=f"Late{expected}")
            reporter.tell("x", reason=f"TooSoon{expected}")
            assert len(await reporter.events()) == expected

    reporting(tmp_path, test)


def test_rate_limited_repetitions_are_counted_in_next_event(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        for _ in range(40):
            reporter.tell("again")
        assert await reporter.counts() == [("again", 25)]
        await asyncio.sleep(301)
        reporter.tell("again")
        assert await reporter.counts() == [("again", 41)]

    reporting(tmp_path, test)


def test_event_of_cluster_scoped_object_is_in_default(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        reporter.tell("ready", About("v1", "Node", "", "node", "uid-3"))
        (event,) = await reporter.events()
        assert event["metadata"]["namespace"] == "default"
        assert "namespace" not in event["involvedObject"]

    reporting(tmp_path, test)


class Unwilling(LocalClient):
    refusing = True

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self.refusing:
            return [InternalError("no")] * len(ops)
        return await super().write_many(ops)


def test_an_event_that_could_not_be_written_is_lost_and_the_next_is_not(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        client = Unwilling(reporter.service)
        recorder = EventRecorder(client, "job-controller", virtual_clock())
        recorder.record(JOB, "Normal", "Reason", "lost")
        await recorder.flush()
        client.refusing = False
        recorder.record(JOB, "Normal", "Reason", "lost")
        await recorder.flush()
        assert await reporter.counts() == [("lost", 1)]

    reporting(tmp_path, test)


def test_the_background_task_writes_without_being_asked(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        task = asyncio.create_task(reporter.recorder.run())
        reporter.tell("first")
        await asyncio.sleep(5)
        reporter.tell("second")
        await asyncio.sleep(5)
        listing = await reporter.client.list(Selection(EVENTS))
        assert len(listing.documents) == 2
        task.cancel()

    reporting(tmp_path, test)


def test_repetition_before_first_write_is_merged(tmp_path: Path) -> None:
    async def test(reporter: Reporter) -> None:
        before = reporter.service.store.revision
        for _ in range(3):
            reporter.tell("again")
        (event,) = await reporter.events()
        assert event["count"] == 3
        assert reporter.service.store.revision == before + 1
        await asyncio.sleep(2)
        for _ in range(4):
            reporter.tell("again")
        (event,) = await reporter.events()
        assert (event["count"], event["message"]) == (7, "again")
        assert (event["firstTimestamp"], event["lastTimestamp"]) == (
            "2026-01-01T12:00:00Z",
            "2026-01-01T12:00:02Z",
        )
        assert reporter.service.store.revision == before + 2

    reporting(tmp_path, test)
