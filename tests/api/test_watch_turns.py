"""Many watches: they share the encoding of a change and the turns of the event loop."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api import document_facts
from onejob.api.document_facts import DocumentFacts
from onejob.api.http.negotiation import Representation
from onejob.api.http.requests import UserRequest
from onejob.api.http.streams import Rendering, Watch, begun
from onejob.api.kinds import strategy_for
from onejob.api.service import Service
from onejob.api.shared_batches import SharedBatch
from onejob.api.yielding import SharedYieldBudget
from onejob.gates import FeatureGates
from onejob.wire.requests import NOWHERE, WatchEvent, WatchOptions
from tests.api.service_support import CONFIGMAP, PERSON, POD, a_map, a_pod, create, served

pytestmark = pytest.mark.virtual_time


class LoopTurns:
    """Counter of event loop turns while it is open."""

    def __init__(self) -> None:
        self.now = 0

    async def __aenter__(self) -> "LoopTurns":
        async def count() -> None:
            while True:
                await asyncio.sleep(0)
                self.now += 1

        self._counting = asyncio.create_task(count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()


async def test_shared_turns_bound_bytes_of_each_loop_turn() -> None:
    turns, spent = SharedYieldBudget(budget=1000), Counter[int]()
    order: list[int] = []
    async with LoopTurns() as loop_turns:

        async def spend(number: int) -> None:
            await turns.spend(300)
            spent[loop_turns.now] += 300
            order.append(number)

        await asyncio.gather(*(spend(number) for number in range(100)))
    assert max(spent.values()) <= 1200
    assert order == sorted(order)


async def test_shared_turns_pass_over_cancelled_streams() -> None:
    turns = SharedYieldBudget(budget=1000)
    await turns.spend(5000)
    waiting = [asyncio.create_task(turns.spend(1000)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[3].cancel()
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [False, False, False, True, False]
    await turns.spend(1)


@pytest.mark.parametrize("form", ["", "Table"])
def test_watch_lines_of_many_watches_share_turns(tmp_path: Path, form: Any) -> None:
    watches, size = 100, 100_000
    sent: Counter[int] = Counter()

    turns = LoopTurns()

    async def follow(service: Service) -> None:
        options = WatchOptions(resource_version="1")
        batches = service.watch(CONFIGMAP, "default", options)
        first = await begun(batches, 0)
        request = UserRequest("GET", {"includeObject": ["Object"]}, {}, PERSON.user)
        lines = Rendering(service, CONFIGMAP, Representation("json", form), request)
        received = 0
        async for piece in Watch(batches, first, lines).lines():
            sent[turns.now] += len(piece)
            received += len(piece)
            if received > size:
                return

    async def test(service: Service) -> None:
        following = [asyncio.create_task(follow(service)) for _ in range(watches)]
        await asyncio.sleep(1)
        creating = create(service, {**a_map("m"), "data": {"k": "x" * size}}, CONFIGMAP)
        async with turns:
            await asyncio.gather(creating, *following)

    served(tmp_path, test)
    assert sum(sent.values()) > watches * size
    # Ten megabytes, of which half a megabyte per turn, plus at most one event.
    assert max(sent.values()) < 1_000_000


@pytest.mark.parametrize("form", ["Table", ""])
def test_large_events_are_made_once_for_all_watches(tmp_path: Path, form: Any) -> None:
    async def test(service: Service) -> None:
        large = a_pod("large")
        large["spec"]["containers"][0]["args"] = ["x" * 1000] * 100
        created = await create(service, large, POD)
        event = WatchEvent("ADDED", NOWHERE, 1, msgspec.json.encode(created))
        batch = SharedBatch([event])
        request = UserRequest("GET", {}, {}, PERSON.user)
        media: Any = "json" if form else "protobuf"
        runs = service.worker.runs

        async def made() -> bytes:
            lines = Rendering(service, POD, Representation(media, form), request)
            return b"".join(await lines.made(batch))

        makers = [asyncio.create_task(made()) for _ in range(20)]
        await asyncio.sleep(0)
        # The first one leaves while the piece is being encoded.
        makers[0].cancel()
        pieces = await asyncio.gather(*makers[1:])
        assert len(set(pieces)) == 1
        assert service.worker.runs == runs + 1

    served(tmp_path, test)


def test_document_facts_decode_large_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: Counter[str] = Counter()
    read_labels, decode = document_facts._read_labels, document_facts._decode

    def counted_labels(document: bytes) -> Any:
        decoded["labels"] += 1
        return read_labels(document)

    def counted_decode(document: bytes) -> Any:
        decoded["fields"] += 1
        return decode(document)

    monkeypatch.setattr(document_facts, "_read_labels", counted_labels)
    monkeypatch.setattr(document_facts, "_decode", counted_decode)
    facts = DocumentFacts()
    status = {"phase": "Running", "message": "x" * 10_000}
    document = msgspec.json.encode({"metadata": {"labels": {"a": "b"}}, "status": status})
    strategy = strategy_for(POD, FeatureGates())
    for _ in range(100):
        assert facts.labels(document) == {"a": "b"}
        assert facts.fields(strategy, document)["status.phase"] == "Running"
    assert decoded == {"labels": 1, "fields": 1}


def test_document_facts_hold_bounded_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_facts, "_MAX_BYTES", 100_000)
    facts = DocumentFacts()
    for number in range(100):
        labels = {"n": str(number), "x": "x" * 10_000}
        document = msgspec.json.encode({"metadata": {"labels": labels}})
        assert facts.labels(document)["n"] == str(number)
        assert facts._bytes <= 100_000
    assert len(facts._known) <= 10
