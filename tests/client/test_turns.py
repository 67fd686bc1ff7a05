"""Large batches yield to the event loop: giant Jobs must not delay small ones."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from onejob.client.base import Create, Patch, Selection
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import Key
from onejob.objects.pod import Pod, read_pod
from onejob.wire.errors import NotFound
from tests.harness import NAMESPACE, running

CONFIG_MAPS = "configmaps"
MANY = 500


def _creations() -> list[Create]:
    return [
        Create(
            CONFIG_MAPS,
            NAMESPACE,
            msgspec.json.encode(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c-{number}"}}
            ),
        )
        for number in range(MANY)
    ]


async def test_others_get_turns_while_many_writes_are_staged(tmp_path: Path) -> None:
    async with running(tmp_path) as plane:
        seen: set[int] = set()

        async def look() -> None:
            while True:
                seen.add(plane.store.staged_revision)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        before = plane.store.staged_revision
        await plane.client.write_many(_creations())
        looking.cancel()
        between = {revision for revision in seen if before < revision < before + MANY}
        assert len(between) >= 4


async def test_others_get_a_turn_between_batches_that_are_refused(tmp_path: Path) -> None:
    """A client that retries at once would otherwise monopolize the loop."""
    async with running(tmp_path) as plane:
        others = asyncio.Event()
        asyncio.get_running_loop().call_soon(others.set)
        nobody = Key(CONFIG_MAPS, NAMESPACE, "nobody")
        for _ in range(3):
            (result,) = await plane.client.write_many([Patch(nobody, b"{}", "merge")])
            assert isinstance(result, NotFound)
        assert others.is_set()


async def test_many_changes_are_delivered_in_slices(tmp_path: Path) -> None:
    async with running(tmp_path) as plane:
        told: list[int] = []

        def changed(deltas: Sequence[Delta[Pod]]) -> None:
            told.append(len(deltas))

        informer: Informer[Pod] = Informer(
            plane.client,
            Selection(CONFIG_MAPS),
            read_pod,
            lambda view: Key(CONFIG_MAPS, view.metadata.namespace, view.metadata.name),
        )
        informer.on_change(changed)
        following = asyncio.create_task(informer.run())
        await informer.synced()
        results = await plane.client.write_many(_creations())
        assert len(results) == MANY
        await informer.reached(plane.store.revision)
        following.cancel()
        assert sum(told) == MANY
        assert max(told) <= 100
