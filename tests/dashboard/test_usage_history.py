"""Usage of Pods over time: sampled while the dashboard is used, bounded, and by owner."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from onejob.api.usage import Measurement, Usage
from onejob.dashboard.usage_history import (
    IDLE_SECONDS,
    INTERVAL_SECONDS,
    MAX_SAMPLES,
    UsageHistory,
)
from onejob.informers.cache import Cache
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.virtual_time import virtual_clock

pytestmark = pytest.mark.virtual_time

_START = datetime(2030, 1, 1, tzinfo=UTC)


class _Node:
    """Source of two Pods, one of which uses more memory each time."""

    def __init__(self) -> None:
        self.asked = 0

    async def pods(self) -> Mapping[str, Measurement]:
        self.asked += 1
        return {
            uid: Measurement(
                _START, 1.0, {"a": Usage(250_000_000, memory), "b": Usage(250_000_000, 1)}
            )
            for uid, memory in (("u-1", 1000 * self.asked), ("u-2", 5), ("u-gone", 5))
        }

    async def node(self) -> Measurement | None:
        return None


def _pods() -> Cache[Pod]:
    cache: Cache[Pod] = Cache()
    for name, uid in (("one", "u-1"), ("two", "u-2")):
        document = b"""{"metadata": {"name": "%b", "namespace": "default", "uid": "%b",
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "job", "controller": true}]}}"""
        key = Key(PODS, "default", name)
        cache.put(key, read_pod(document % (name.encode(), uid.encode())))
    return cache


async def test_usage_is_sampled_until_the_dashboard_is_no_longer_used() -> None:
    node = _Node()
    history = UsageHistory(node, _pods(), virtual_clock())
    await asyncio.sleep(100)
    assert node.asked == 0
    history.note_use()
    await asyncio.sleep(3 * INTERVAL_SECONDS + 1)
    (usage,) = history.of_pod(Key(PODS, "default", "one"))
    assert usage.memory_bytes == [1001, 2001, 3001, 4001]
    assert usage.cpu == [0.5] * 4
    await asyncio.sleep(3 * IDLE_SECONDS)
    assert node.asked < IDLE_SECONDS / INTERVAL_SECONDS + 5
    asked = node.asked
    history.note_use()
    await asyncio.sleep(1)
    assert node.asked == asked + 1
    await history.stop()


async def test_pods_of_an_owner_are_those_with_the_most_memory_first() -> None:
    history = UsageHistory(_Node(), _pods(), virtual_clock())
    history.note_use()
    await asyncio.sleep(1)
    assert [usage.name for usage in history.of_owner("default", "job")] == ["one", "two"]
    assert history.of_owner("other", "job") == []
    assert history.of_owner("default", "u-gone") == []
    await history.stop()


async def test_history_of_a_long_run_is_bounded_and_covers_all_of_it() -> None:
    node = _Node()
    history = UsageHistory(node, _pods(), virtual_clock())
    for _ in range(20):
        history.note_use()
        await asyncio.sleep(MAX_SAMPLES * INTERVAL_SECONDS / 5)
    (usage,) = history.of_pod(Key(PODS, "default", "one"))
    assert MAX_SAMPLES / 2 <= len(usage.times) <= MAX_SAMPLES
    assert usage.memory_bytes[0] < 20_000
    assert usage.memory_bytes[-1] > 1000 * (node.asked - 20)
    await history.stop()
