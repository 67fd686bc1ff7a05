"""Sharing of encoded events between watchers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api import shared_batches
from onejob.api.http import streams
from onejob.api.http.negotiation import Form, Media, Representation
from onejob.api.http.requests import UserRequest
from onejob.api.http.streams import Rendering, Watch, begun
from onejob.api.service import Service
from onejob.wire.requests import DeleteOptions, WatchOptions
from tests.api.service_support import PERSON, POD, a_pod, create, served

WATCHERS = 50
PODS = 7


def watching(
    service: Service, media: Media, form: Form, **options: Any
) -> "asyncio.Task[AsyncIterator[bytes]]":
    """Yield the lines as they would be sent."""

    async def start() -> AsyncIterator[bytes]:
        request = UserRequest("GET", {}, {}, PERSON.user)
        batches = service.watch(POD, "default", WatchOptions(resource_version="1", **options))
        first = await begun(batches, 0)
        rendering = Rendering(service, POD, Representation(media, form), request)
        return Watch(batches, first, rendering).lines()

    return asyncio.create_task(start())


@pytest.mark.parametrize(
    ("media", "form", "maker"),
    [
        ("json", "", "watch_line"),
        ("json", "PartialObjectMetadata", "metadata_only"),
        ("protobuf", "", "encode_event"),
        ("json", "Table", "object_table"),
    ],
)
def test_an_event_is_encoded_once_for_all_watchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, media: Media, form: Form, maker: str
) -> None:
    made: Counter[str] = Counter()
    original = getattr(streams, maker)

    def counted(*arguments: Any, **named: Any) -> bytes:
        made[maker] += 1
        encoded: bytes = original(*arguments, **named)
        return encoded

    monkeypatch.setattr(streams, maker, counted)

    async def test(service: Service) -> None:
        lines = [await watching(service, media, form) for _ in range(WATCHERS)]
        received: list[bytes] = [b""] * WATCHERS

        async def follow(number: int) -> None:
            async for piece in lines[number]:
                received[number] += piece

        following = [asyncio.create_task(follow(number)) for number in range(WATCHERS)]
        await asyncio.sleep(1)
        for number in range(PODS):
            await create(service, a_pod(f"p{number}"), POD)
            await asyncio.sleep(1)
        await service.delete(POD, "default", "p0", DeleteOptions(grace_seconds=0))
        await asyncio.sleep(1)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        assert received[0]
        assert set(received) == {received[0]}
        if media == "json":
            kinds = [msgspec.json.decode(line)["type"] for line in received[0].splitlines()]
            assert kinds == ["ADDED"] * PODS + ["DELETED"]

    served(tmp_path, test)
    assert made[maker] == 1 + PODS


def test_shared_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_batches, "_MAX_BYTES", 3_000)

    async def test(service: Service) -> None:
        batches = service.watch(POD, "default", WatchOptions(resource_version="1"))
        names = []
        for number in range(10):
            await create(service, a_pod(f"p{number}"), POD)
            names += [event.key.name for event in await anext(batches)]
            kept = service._reading.shared._kept.values()
            assert sum(size for *_, size in kept) <= 3_000
        assert names == [f"p{number}" for number in range(10)]
        await batches.aclose()

    served(tmp_path, test)
