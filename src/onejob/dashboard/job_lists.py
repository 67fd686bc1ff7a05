"""Cooperative listing: yields to the event loop in between, as there may be 10^5 Jobs."""

from collections.abc import Callable
from typing import Final

from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.client.base import Client, Selection
from onejob.objects.meta import JOBS

_PAGE: Final = 500


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
