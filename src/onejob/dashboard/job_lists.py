"""Cooperative listing: yields to the event loop in between, as there may be 10^5 Jobs."""

from collections.abc import Callable
from typing import Final

from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.client.base import Client, Selection
from onejob.objects.meta import JOBS, PODS, Key
from onejob.planning.job.pod_template import generate_name
from onejob.store.base import Store

_PAGE: Final = 500
#: Pod names contain at least this many characters of a long Job name.
_MIN_NAME_PREFIX_LENGTH: Final = 45


def pod_prefix(job_name: str) -> str:
    """Return the beginning of the names of all Pods of a Job."""
    # Names of indexed Pods are cut shorter the longer their index is.
    return generate_name(job_name)[:_MIN_NAME_PREFIX_LENGTH]


async def pods_with_prefix(
    store: Store, namespace: str, prefix: str, most: int
) -> tuple[list[bytes], bool]:
    """Return the documents of at most `most` Pods, and whether these are all.

    Names of Pods begin with that of their Job, so only a part of the namespace is scanned. They may
    belong to other Jobs.
    """
    found: list[bytes] = []
    turns = Turns()
    after: Key | None = Key(PODS, namespace, prefix)
    while after is not None and len(found) < most:
        page = store.list(PODS, namespace, limit=min(_PAGE, most - len(found)), after=after)
        for stored in page.items:
            if not stored.key.name.startswith(prefix):
                return found, True
            await turns.spend(PER_DOCUMENT_COST_BYTES)
            found.append(stored.value)
        after = page.next_after
    return found, after is None


async def job_documents(
    client: Client, namespace: str, wanted: Callable[[bytes], bool]
) -> list[bytes]:
    """Return the documents of Jobs for which `wanted`, called before decoding, returns True."""
    return await documents_of(client, Selection(JOBS, namespace), wanted)


async def documents_of(
    client: Client, selection: Selection, wanted: Callable[[bytes], bool] = lambda document: True
) -> list[bytes]:
    """Return the selected documents for which `wanted` returns True."""
    found, turns, token = list[bytes](), Turns(), ""
    while True:
        page = await client.list(selection, limit=_PAGE, token=token)
        for document in page.documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            if wanted(document):
                found.append(document)
        token = page.continue_token
        if not token:
            return found
