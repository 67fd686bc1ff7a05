"""In-process writers: they follow the same rules as clients over HTTP."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from onejob.api.service import Service
from onejob.client.base import Bind, Create, Patch
from onejob.client.local import LocalClient
from onejob.gates import FeatureGates
from onejob.objects.meta import NAMESPACES, PODS, Key
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Invalid
from onejob.wire.requests import WriteOptions
from tests.build import template

pytestmark = pytest.mark.virtual_time

Doc = dict[str, Any]

TRUSTED = WriteOptions(trusted=True)
ANYBODY = WriteOptions(field_manager="test")

RUNNING = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


async def with_service(folder: Path, test: Callable[[Service], Awaitable[None]]) -> None:
    clock = virtual_clock()
    store = await LogStore.open(folder / "store", clock=clock, committer=LoopCommitter())
    service = Service(store, clock=clock, rng=Random(5), gates=FeatureGates())
    await LocalClient(service).write(
        Create(NAMESPACES, "", encode({"metadata": {"name": "default"}}))
    )
    await test(service)
    await store.close()


def encode(doc: Doc) -> bytes:
    return msgspec.json.encode(doc)


def a_pod() -> bytes:
    metadata = {"generateName": "job-", "namespace": "default"}
    return encode({"metadata": metadata, **template()})


async def create_pod(client: LocalClient) -> Key:
    written = await client.write(Create(PODS, "default", a_pod()))
    return Key(PODS, "default", msgspec.json.decode(written.document)["metadata"]["name"])


def report(key: Key, state: Doc) -> Patch:
    status = {"containerStatuses": [{"name": "c", "ready": False, "state": state}]}
    return Patch(key, encode({"status": status}), "strategic", "status")


@pytest.mark.parametrize("options", [TRUSTED, ANYBODY], ids=["trusted", "anybody"])
async def test_a_container_that_has_ended_cannot_run_again(
    tmp_path: Path, options: WriteOptions
) -> None:
    async def test(service: Service) -> None:
        client = LocalClient(service, options)
        key = await create_pod(client)
        await client.write(report(key, RUNNING))
        await client.write(report(key, ENDED))
        with pytest.raises(Invalid, match="may not be transitioned to non-terminated state"):
            await client.write(report(key, RUNNING))
        await client.write(report(key, ENDED))

    await with_service(tmp_path, test)


@pytest.mark.parametrize("options", [TRUSTED, ANYBODY], ids=["trusted", "anybody"])
async def test_a_binding_that_is_only_tried_changes_nothing(
    tmp_path: Path, options: WriteOptions
) -> None:
    async def test(service: Service) -> None:
        key = await create_pod(LocalClient(service))
        before = service.store.staged_revision
        only_trying = LocalClient(service, replace(options, dry_run=True))
        await only_trying.write(Bind(key, "node", ""))
        assert service.store.staged_revision == before
        assert b'"nodeName"' not in await only_trying.get(key)

    await with_service(tmp_path, test)
