"""Lookup of the stored objects that tokens are bound to."""

from datetime import datetime

import msgspec

from onejob.api.access.service_accounts.tokens import Find, Known
from onejob.objects.meta import Key
from onejob.store.base import Store


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: datetime | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    service_account_name: str = ""
    node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()


_read = msgspec.json.Decoder(_Object).decode


def find_in(store: Store) -> Find:
    """Return a lookup of the objects that tokens are bound to, in the store."""

    def find(key: Key) -> Known | None:
        stored = store.get(key)
        if stored is None:
            return None
        found = _read(stored.value)
        return Known(
            found.metadata.uid,
            found.metadata.deletion_timestamp,
            found.spec.service_account_name,
            found.spec.node_name,
        )

    return find
