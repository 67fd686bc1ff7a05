"""Fast path for deletions: ended Pods are deleted in batches, all others regularly."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Patch, Written
from onejob.client.local import LocalClient
from onejob.objects.meta import PODS, Key
from onejob.store.database import Reader
from onejob.wire.errors import Conflict, NotFound
from onejob.wire.requests import WriteOptions
from tests.harness import NAMESPACE, Plane, running


async def with_plane(folder: Path, test: Callable[[Plane], Awaitable[None]]) -> None:
    async with running(folder) as plane:
        await test(plane)


async def ended_pods(plane: Plane, count: int) -> list[Key]:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "image": "busybox"}], "nodeName": "n"},
    }
    end = b'{"status":{"phase":"Succeeded"}}'
    keys = [Key(PODS, NAMESPACE, f"pod-{number}") for number in range(count)]
    for key in keys:
        named = {**document, "metadata": {"name": key.name}}
        await plane.client.write(Create(PODS, NAMESPACE, msgspec.json.encode(named)))
        await plane.client.write(Patch(key, end, "strategic", "status"))
    return keys


async def metadata(plane: Plane, key: Key) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(await plane.client.get(key))["metadata"]
    return read


async def test_the_last_versions_of_many_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(plane: Plane) -> None:
        keys = await ended_pods(plane, 250)
        read: list[int] = []
        together = Reader.values

        def values(reader: Reader, wanted: Mapping[int, Key]) -> Any:
            read.append(len(wanted))
            return together(reader, wanted)

        def value(reader: Reader, _: Key, revision: int) -> bytes:
            raise AssertionError(f"revision {revision} is read by itself")

        monkeypatch.setattr(Reader, "values", values)
        monkeypatch.setattr(Reader, "value", value)
        results = await plane.client.write_many([Delete(key) for key in keys])
        assert read == [100, 100, 50]
        for key, result in zip(keys, results, strict=True):
            assert isinstance(result, Written)
            last = msgspec.json.decode(result.document)["metadata"]
            assert (last["name"], last["resourceVersion"]) == (key.name, str(result.revision))
        assert plane.store.count(PODS) == 0

    await with_plane(tmp_path, test)


@pytest.mark.parametrize(
    ("propagation", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
async def test_one_that_others_are_to_follow_or_to_outlive_waits_for_them(
    tmp_path: Path, propagation: Any, finalizer: str
) -> None:
    async def test(plane: Plane) -> None:
        [key] = await ended_pods(plane, 1)
        await plane.client.write(Delete(key, propagation))
        assert (await metadata(plane, key))["finalizers"] == [finalizer]

    await with_plane(tmp_path, test)


@pytest.mark.parametrize(("uid", "revision"), [("another", ""), ("", "1")])
async def test_a_precondition_that_does_not_hold_is_a_conflict(
    tmp_path: Path, uid: str, revision: str
) -> None:
    async def test(plane: Plane) -> None:
        [key] = await ended_pods(plane, 1)
        with pytest.raises(Conflict):
            await plane.client.write(Delete(key, uid=uid, resource_version=revision))
        known = await metadata(plane, key)
        await plane.client.write(Delete(key, uid=known["uid"]))
        with pytest.raises(NotFound):
            await plane.client.write(Delete(key))

    await with_plane(tmp_path, test)


async def test_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    async def test(plane: Plane) -> None:
        [key] = await ended_pods(plane, 1)
        trying = LocalClient(plane.service, WriteOptions(dry_run=True))
        await trying.write(Delete(key))
        assert (await metadata(plane, key))["name"] == key.name

    await with_plane(tmp_path, test)
