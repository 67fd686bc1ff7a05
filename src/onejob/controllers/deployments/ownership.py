"""Adoption and release of objects by an owner's selector, on caches with all own writes."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from onejob.client.base import Client, Patch, Written
from onejob.informers.informer import Informer
from onejob.informers.shared import AnyObject
from onejob.informers.workqueue import Retry
from onejob.objects.meta import Key, LabelSelector, Meta
from onejob.planning.deployment.claiming import adoption_patch, plan_claims, release_patch
from onejob.wire.errors import Conflict, Invalid, NotFound

#: Seconds to wait for the caches to include our own writes before requeueing.
_CATCH_UP_SECONDS = 5.0

_read_metadata = msgspec.json.Decoder(AnyObject).decode


class Owned(Protocol):
    @property
    def metadata(self) -> Meta: ...

    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=Owned)


async def catch_up(*awaited: tuple[Informer[Any], int]) -> None:
    """Wait until each cache includes a revision. Raises Retry."""
    try:
        async with asyncio.timeout(_CATCH_UP_SECONDS):
            for informer, revision in awaited:
                await informer.reached(revision)
    except TimeoutError as late:
        raise Retry("the caches do not include our own writes yet") from late


async def claim(
    client: Client,
    kind: str,
    owner: Key,
    metadata: Meta,
    selector: LabelSelector,
    candidates: Iterable[T],
) -> tuple[list[T], int]:
    """Adopt matching objects without a controller, and release owned ones that no longer match.

    Return the objects owned before, and the revision of the newest write: the caches contain the
    adopted ones from then on. Raises Retry if the owner was deleted or replaced.
    """
    claims = plan_claims(metadata, selector, candidates)
    patches = [Patch(each.key, release_patch(metadata, each.metadata)) for each in claims.releases]
    if claims.adoptions:
        await _require_present(client, owner, metadata)
        patches += [
            Patch(each.key, adoption_patch(kind, metadata, each.metadata))
            for each in claims.adoptions
        ]
    newest = 0
    for result in await client.write_many(patches) if patches else ():
        if isinstance(result, Written):
            newest = max(newest, result.revision)
        elif not isinstance(result, NotFound | Invalid | Conflict):
            raise result
    return list(claims.kept), newest


async def _require_present(client: Client, key: Key, metadata: Meta) -> None:
    """Raise Retry unless the owner exists and is not being deleted."""
    try:
        live = _read_metadata(await client.get(key)).metadata
    except NotFound as gone:
        raise Retry(f"{key} was deleted and adopts nothing") from gone
    if live.uid != metadata.uid or live.deleting:
        raise Retry(f"{key} was deleted or replaced and adopts nothing")
