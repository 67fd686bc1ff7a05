"""The default StorageClass, whose claims get folders on the node's disk."""

from typing import Final

import msgspec

from onejob.client.base import Client, Create, Selection
from onejob.objects.meta import Meta, View
from onejob.planning.claims.documents import default_class_document
from onejob.planning.claims.names import IS_DEFAULT
from onejob.wire.errors import AlreadyExists

_CLASSES: Final = "storageclasses.storage.k8s.io"


class _Class(View, frozen=True):
    """The only part that is read: every server imports this module, most need no other view."""

    metadata: Meta = Meta()


_read: Final = msgspec.json.Decoder(_Class).decode


async def create_default_class(client: Client) -> None:
    """Create the default class, unless the server has one."""
    for document in (await client.list(Selection(_CLASSES))).documents:
        annotations = _read(document).metadata.annotations
        if annotations.get(IS_DEFAULT) == "true":
            return
    body = msgspec.json.encode(default_class_document())
    try:
        await client.write(Create(_CLASSES, "", body, replaces_damaged=True))
    except AlreadyExists:
        return
