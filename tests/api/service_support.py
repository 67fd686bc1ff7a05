"""Service in virtual time, and documents for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.gates import FeatureGates
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from onejob.wire.errors import (
    ApiError,
)
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import (
    User,
    WriteOptions,
)
from tests import build

JOB = BY_RESOURCE["jobs.batch"]

POD = BY_RESOURCE["pods"]

CONFIGMAP = BY_RESOURCE["configmaps"]

NAMESPACE = BY_RESOURCE["namespaces"]

PERSON = WriteOptions(User("somebody"), field_manager="test")

Doc = dict[str, Any]


@asynccontextmanager
async def a_service(folder: Path, limits: Limits | None = None) -> AsyncIterator[Service]:
    """Run a service with the namespace `default`, in virtual time."""
    clock = virtual_clock()
    store = await LogStore.open(
        folder / "db", clock=clock, committer=LoopCommitter(), limits=limits
    )
    service = Service(store, clock=clock, rng=Random(7), gates=FeatureGates())
    await service.create(NAMESPACE, "", {"metadata": {"name": "default"}}, PERSON)
    try:
        yield service
    finally:
        await store.close()


def served(folder: Path, test: Callable[[Service], Awaitable[None]], **options: Any) -> None:
    """Run one test with a service, in virtual time."""

    async def run() -> None:
        async with a_service(folder, **options) as service:
            await test(service)

    run_virtual(run())


def a_pod(name: str = "p", **metadata: Any) -> Doc:
    """Return a Pod; keywords are fields of its metadata."""
    return build.a_pod(name, metadata=metadata)


def a_map(name: str, **metadata: Any) -> Doc:
    """Return a ConfigMap; keywords are fields of its metadata."""
    return {"metadata": {"name": name, **metadata}, "data": {"k": "v"}}


def read(document: bytes) -> Doc:
    decoded: Doc = msgspec.json.decode(document)
    return decoded


async def create(service: Service, doc: Doc, kind: Any = JOB, namespace: str = "default") -> Doc:
    """Create an object as a user and return it."""
    return read((await service.create(kind, namespace, doc, PERSON)).document)


async def failure(attempt: Awaitable[Any]) -> ApiError:
    """Await an attempt that must be refused, and return the error."""
    with pytest.raises(ApiError) as caught:
        await attempt
    return caught.value
