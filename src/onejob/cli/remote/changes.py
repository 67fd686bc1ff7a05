"""Writes of a remote run. Each is repeated until the server has performed or refused it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, TypeVar

import msgspec

from onejob.cli.remote.planning import RUN_LABEL
from onejob.cli.remote.resuming import is_passing
from onejob.cli.run.plan import PREREQUISITES
from onejob.cli.run.progress import RunProgress
from onejob.client.base import Client, Create, Delete, Patch, Selection, Written
from onejob.client.pacing import retry_delay
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, NAMESPACES, Key, Meta, View
from onejob.wire.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from onejob.wire.kinds import BY_RESOURCE

#: Attempts at one write; with the delays between them, a little over a minute.
_TRIES: Final = 18
#: Resources of the kinds that a Job may own.
_OWNED: Final = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
_Result = TypeVar("_Result")


class _Object(View, frozen=True):
    kind: str = ""
    metadata: Meta = Meta()


_read = msgspec.json.Decoder(_Object).decode


async def create_surely(client: Client, op: Create, run_id: str, rng: Random) -> Written:
    """Create an object of the run once, even if a response is lost. Raises ApiError."""
    name = _read(op.document).metadata.name
    repeated = False

    async def create() -> Written:
        nonlocal repeated
        try:
            return await client.write(op)
        except AlreadyExists:
            if not repeated or not name:
                raise
            # Created by an attempt whose response was lost, unless it is another client's.
            found = await client.get(Key(op.resource, op.namespace, name))
            metadata = _read(found).metadata
            if op.resource != NAMESPACES and metadata.labels.get(RUN_LABEL) != run_id:
                raise
            return Written(int(metadata.resource_version or 0), found)
        finally:
            repeated = True

    return await _retried(create, rng)


async def adopt(
    client: Client,
    documents: Sequence[bytes],
    jobs: Sequence[Job],
    rng: Random,
    notice: Callable[[str], None],
) -> None:
    """Make the Jobs owners of the objects created for them, in their namespace.

    The cluster deletes these objects with the last of the Jobs.
    """
    for document in documents:
        found = _read(document)
        namespace = found.metadata.namespace
        owners = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": of.name, "uid": of.uid}
            for of in (job.metadata for job in jobs)
            if of.namespace == namespace
        ]
        if not owners or found.kind not in _OWNED:
            continue
        body = msgspec.json.encode({"metadata": {"ownerReferences": owners}})
        patch = Patch(Key(_OWNED[found.kind], namespace, found.metadata.name), body, "merge")
        try:
            await _retried(partial(client.write, patch), rng)
        except ApiError as error:
            notice(f"{found.kind.lower()}/{found.metadata.name} will be kept: {error.message}")


async def delete_run_objects(
    client: Client, run_id: str, namespaces: Sequence[str], rng: Random
) -> None:
    """Delete the Jobs of the run, with their Pods, and the objects created for them."""
    for resource in (JOBS, *PREREQUISITES):
        if not BY_RESOURCE[resource].namespaced:
            continue
        for namespace in namespaces:
            what = Selection(resource, namespace, f"{RUN_LABEL}={run_id}")
            try:
                found = await _retried(partial(client.list, what), rng)
            except (Forbidden, NotFound):
                # Preflight required the permission for all kinds that the run created.
                continue
            for document in found.documents:
                metadata = _read(document).metadata
                key = Key(resource, metadata.namespace, metadata.name)
                with suppress(NotFound, Conflict):
                    op = Delete(key, "Background", uid=metadata.uid)
                    await _retried(partial(client.write, op), rng)


async def suspend_jobs(
    client: Client, progress: RunProgress, rng: Random, notice: Callable[[str], None]
) -> None:
    """Suspend the unfinished Jobs, which ends their Pods and keeps the rest."""
    body = msgspec.json.encode({"spec": {"suspend": True}})
    for job in progress:
        if job.done:
            continue
        try:
            await _retried(partial(client.write, Patch(job.key, body, "merge")), rng)
        except ApiError as error:
            notice(f"cannot suspend {job.title}: {error.message}")


async def _retried(attempt: Callable[[], Awaitable[_Result]], rng: Random) -> _Result:
    for number in range(_TRIES):
        try:
            return await attempt()
        except ApiError as error:
            if not is_passing(error) or number == _TRIES - 1:
                raise
        await asyncio.sleep(retry_delay(number, rng))
    raise AssertionError("the last attempt returns or raises")
