"""The default StorageClass, whose claims get folders on the node's disk."""

import msgspec

from onejob.client.base import Client, Create, Selection
from onejob.objects.claims import CLASSES, read_class
from onejob.planning.claims.claim import default_class
from onejob.planning.claims.documents import default_class_document
from onejob.wire.errors import AlreadyExists


async def create_default_class(client: Client) -> None:
    """Create the default class, unless the server has one."""
    listed = (await client.list(Selection(CLASSES))).documents
    if default_class(map(read_class, listed)) is not None:
        return
    body = msgspec.json.encode(default_class_document())
    try:
        await client.write(Create(CLASSES, "", body, replaces_damaged=True))
    except AlreadyExists:
        return
