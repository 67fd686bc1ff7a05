"""TTL controller for custom resources, on the real store and API, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onejob.gates import FeatureGates
from onejob.objects.meta import EVENTS, Key
from onejob.planning.custom_ttl import CUSTOM_TTL_ANNOTATION
from tests.api.crd.build import NAME, a_definition, a_version, widget
from tests.controllers.housekeeping import House, a_house

pytestmark = pytest.mark.virtual_time

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
DEFINITION = Key(DEFINITIONS, "", NAME)
PARTS = ("ttl", "garbage", "definitions")
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def the_definition(rule: str | None) -> dict[str, Any]:
    definition = a_definition(a_version(_OPEN, subresources={"status": {}}))
    if rule is not None:
        definition["metadata"]["annotations"] = {CUSTOM_TTL_ANNOTATION: rule}
    return definition


def annotated(rule: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {CUSTOM_TTL_ANNOTATION: rule}}}


async def define(house: House, rule: str | None = "{}") -> None:
    await house.create(DEFINITIONS, the_definition(rule), "")
    await asyncio.sleep(1)


async def a_finished_widget(house: House, name: str = "a", ttl: Any = 60) -> Key:
    spec = {"ttlSecondsAfterFinished": ttl} if ttl is not None else {}
    key = await house.create(NAME, widget(name, spec=spec))
    await house.patch(key, house.ending(), "status")
    return key


async def in_a_house(
    tmp_path: Path, main: Callable[[House], Awaitable[None]], gates: FeatureGates | None = None
) -> None:
    async with a_house(tmp_path, *PARTS, gates=gates) as house:
        await main(house)


async def test_a_finished_object_is_deleted_when_its_time_is_over_and_not_before(
    tmp_path: Path,
) -> None:
    async def main(house: House) -> None:
        await define(house)
        key = await a_finished_widget(house)
        running = await house.create(NAME, widget("b", spec={"ttlSecondsAfterFinished": 0}))
        without = await a_finished_widget(house, "c", ttl=None)
        await asyncio.sleep(59.5)
        assert await house.exists(key)
        await asyncio.sleep(1)
        assert not await house.exists(key)
        await asyncio.sleep(10**5)
        assert await house.exists(running)
        assert await house.exists(without)

    await in_a_house(tmp_path, main)


async def test_without_the_annotation_nothing_expires(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        await define(house, None)
        key = await a_finished_widget(house, ttl=0)
        await asyncio.sleep(3600)
        assert await house.exists(key)

    await in_a_house(tmp_path, main)


async def test_a_rule_may_come_change_and_go_while_objects_wait(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        assert house.ttl is not None
        await define(house, None)
        key = await a_finished_widget(house, ttl=100)
        await asyncio.sleep(1)
        assert len(house.ttl) == 0
        await house.patch(DEFINITION, annotated("{}"))
        await asyncio.sleep(1)
        assert len(house.ttl) == 1
        await house.patch(DEFINITION, annotated('{"ttl": "spec.other"}'))
        await asyncio.sleep(1)
        assert len(house.ttl) == 0
        await house.patch(key, {"spec": {"other": 50}})
        await asyncio.sleep(1)
        assert len(house.ttl) == 1
        await house.patch(DEFINITION, annotated(None))
        await asyncio.sleep(200)
        assert len(house.ttl) == 0
        assert await house.exists(key)
        await house.patch(DEFINITION, annotated("{}"))
        await asyncio.sleep(1)
        assert not await house.exists(key), "its time was over already"

    await in_a_house(tmp_path, main)


async def test_a_definition_that_is_deleted_and_made_again_is_followed_again(
    tmp_path: Path,
) -> None:
    async def main(house: House) -> None:
        assert house.ttl is not None
        await define(house)
        await a_finished_widget(house, ttl=50)
        await asyncio.sleep(1)
        await house.delete(DEFINITION)
        await asyncio.sleep(5)
        assert not await house.exists(DEFINITION)
        assert len(house.ttl) == 0
        await define(house)
        key = await a_finished_widget(house, ttl=50)
        await asyncio.sleep(45)
        assert await house.exists(key)
        await asyncio.sleep(6)
        assert not await house.exists(key)

    await in_a_house(tmp_path, main)


async def test_objects_expired_during_downtime_are_deleted_at_start(tmp_path: Path) -> None:
    async with a_house(tmp_path, "definitions") as house:
        await define(house)
        await a_finished_widget(house, "old")
        await a_finished_widget(house, "kept", ttl=10**6)
        await asyncio.sleep(3600)
    async with a_house(tmp_path, *PARTS) as house:
        await asyncio.sleep(2)
        assert await house.names(NAME) == ["kept"]


@pytest.mark.parametrize(("hours", "wait"), [(2, 61), (-2, 3600 + 7200)])
async def test_after_a_clock_jump_objects_expire_by_the_new_time(
    tmp_path: Path, hours: int, wait: int
) -> None:
    async def main(house: House) -> None:
        await define(house)
        key = await a_finished_widget(house, ttl=3600)
        await asyncio.sleep(1)
        house.clock.set_by(timedelta(hours=hours))
        if hours < 0:
            await asyncio.sleep(wait - 2)
            assert await house.exists(key)
            await asyncio.sleep(2)
        else:
            await asyncio.sleep(wait)
        assert not await house.exists(key)

    await in_a_house(tmp_path, main)


async def test_the_ttl_may_be_changed_after_the_end_and_finalizers_are_honoured(
    tmp_path: Path,
) -> None:
    async def main(house: House) -> None:
        await define(house)
        key = await a_finished_widget(house)
        await house.patch(key, {"spec": {"ttlSecondsAfterFinished": 600}})
        await house.patch(key, {"metadata": {"finalizers": ["example.org/keep"]}})
        await asyncio.sleep(599)
        assert "deletionTimestamp" not in (await house.get(key))["metadata"]
        await asyncio.sleep(2)
        assert (await house.get(key))["metadata"]["finalizers"] == ["example.org/keep"]
        await house.patch(key, {"metadata": {"finalizers": None}})
        assert not await house.exists(key)

    await in_a_house(tmp_path, main)


async def test_a_malformed_rule_gets_an_event_and_can_be_mended(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        await define(house, '{"ttl": 7.5}')
        assert await house.reasons() == ["InvalidTTLRule"]
        event = (await house.all_of(EVENTS))[0]
        assert event["involvedObject"]["name"] == NAME
        assert CUSTOM_TTL_ANNOTATION in event["message"]
        key = await a_finished_widget(house)
        await house.patch(DEFINITION, annotated("{}"))
        await asyncio.sleep(61)
        assert not await house.exists(key)

    await in_a_house(tmp_path, main)


async def test_an_object_whose_ttl_cannot_be_used_is_kept_with_an_event(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        await define(house)
        bad = await a_finished_widget(house, "bad", ttl="soon")
        good = await a_finished_widget(house, "good")
        await asyncio.sleep(61)
        assert await house.names(NAME) == ["bad"], "one does not hold up another"
        assert not await house.exists(good)
        events = await house.all_of(EVENTS)
        assert {(event["reason"], event["involvedObject"]["name"]) for event in events} == {
            ("InvalidTTL", "bad")
        }
        await house.patch(bad, {"spec": {"ttlSecondsAfterFinished": 0}})
        await asyncio.sleep(1)
        assert not await house.exists(bad)

    await in_a_house(tmp_path, main)


async def test_with_the_gate_closed_nothing_expires(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        await define(house)
        key = await a_finished_widget(house, ttl=0)
        await asyncio.sleep(3600)
        assert await house.exists(key)

    await in_a_house(tmp_path, main, FeatureGates({"TTLAfterFinished": False}))


async def test_ttl_deletes_failed_runs_after_the_time_that_the_rule_names(tmp_path: Path) -> None:
    """Conditions and rule are Tekton's: a failed run has the condition Succeeded with False."""

    async def main(house: House) -> None:
        await define(house, '{"values": ["Succeeded=True", "Succeeded=False"], "ttl": 60}')
        failed, running = [await house.create(NAME, widget(name, spec={})) for name in "ab"]
        for key, status in ((failed, "False"), (running, "Unknown")):
            condition = {"type": "Succeeded", "status": status}
            condition["lastTransitionTime"] = house.stamp()
            await house.patch(key, {"status": {"conditions": [condition]}}, "status")
        await asyncio.sleep(58)
        assert await house.exists(failed)
        await asyncio.sleep(3600)
        assert not await house.exists(failed)
        assert await house.exists(running)

    await in_a_house(tmp_path, main)
