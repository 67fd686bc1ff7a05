"""managedFields entries for status writes of onejob's controllers and node, derived on reads.

These writes do not maintain managedFields, which would cost more than the write itself. All status
fields without another owner are theirs, so their entry can be derived when a client reads the
object.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onejob.api.documents import decode, split
from onejob.api.schema.shapes import ObjectShape
from onejob.api.strategy import Document
from onejob.api.writing.field_sets import (
    FieldsV1,
    add_fields,
    decode_fields,
    encode_all,
    encode_fields,
)
from onejob.api.writing.managed_fields import (
    Entry,
    read_entries,
    status_writer,
    write_entries,
)
from onejob.api.writing.metadata import timestamp
from onejob.store.base import Stored
from onejob.wire.kinds import Kind

#: Status fields of a Pod: the one that every status report contains, and the one set by the server.
_REPORTED: Final = b'"conditions"'
_SERVERS: Final = "f:qosClass"
#: Maximum number and size of cached documents with derived entries: polling clients read the same
#: version repeatedly.
_REMEMBERED: Final = 256
_REMEMBERED_BYTES: Final = 16 * 1024


def shares_status(metadata: Document) -> bool:
    """Return whether another manager owns part of the status: managedFields has a status entry.

    If so, onejob's own status writes are tracked as well, so that the current owner of each field
    is recorded.
    """
    entries = metadata.get("managedFields", ())
    return any(entry.get("subresource") == "status" for entry in entries)


class StatusEntries:
    """Documents with derived status entries, cached by revision; see `with_status_entry`."""

    def __init__(
        self,
        committed_at: Callable[[int], datetime | None],
        type_of: Callable[[Kind], ObjectShape],
    ) -> None:
        self._committed_at = committed_at
        self._type_of = type_of
        #: By revision, which is unique per version.
        self._remembered: dict[int, bytes] = {}

    def shown(self, stored: Stored, kind: Kind) -> bytes:
        """Return the stored document with the derived entries of the status writer."""
        found = self._remembered.get(stored.revision)
        if found is not None:
            return found
        found = self.written(stored.value, stored.revision, kind)
        if len(found) <= _REMEMBERED_BYTES and found is not stored.value:
            if len(self._remembered) >= _REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[stored.revision] = found
        return found

    def written(self, document: bytes, revision: int, kind: Kind) -> bytes:
        """Return the document for the response to a write.

        It is not cached, because the document of a dry run has the revision of the stored one.
        """
        if kind.kind == "Pod" and _REPORTED not in document:
            return document
        return with_status_entry(document, self._type_of(kind), self._committed_at(revision))


def with_status_entry(document: bytes, type_: ObjectShape, written_at: datetime | None) -> bytes:
    """Return the document with the managedFields entry of the component that wrote its status.

    `written_at` is the time of the object's last write, or None if unknown. Returns `document`
    itself if there is no status, or if other managers own all of it.
    """
    manager = status_writer(type_)
    members = split(document)
    if not manager or "status" not in members:
        return document
    status = decode(members["status"])
    fields = encode_all(status, type_.fields["status"], {})
    if type_.kind == "Pod":
        fields.pop(_SERVERS, None)
    metadata: Document = decode(members["metadata"])
    entries = read_entries({"metadata": metadata})
    fields = _not_owned(fields, entries)
    if not fields:
        return document
    time = _time_of(status, entries, written_at)
    own = Entry(manager, "Update", type_.api_version, "status", time, {"f:status": fields})
    earlier = next((entry for entry in entries if entry.identity == own.identity), None)
    if earlier is not None:
        entries.remove(earlier)
        merged = add_fields(earlier.encoded, decode_fields(own.encoded))
        own = replace(own, encoded=merged, time=max(time, earlier.time))
    write_entries({"metadata": metadata}, [*entries, own])
    return msgspec.json.encode({**members, "metadata": metadata})


def _not_owned(fields: FieldsV1, entries: list[Entry]) -> FieldsV1:
    owned = [entry.encoded["f:status"] for entry in entries if "f:status" in entry.encoded]
    if not owned:
        return fields
    rest = decode_fields(fields).difference(*map(decode_fields, owned))
    return encode_fields(rest)


def _time_of(status: Document, entries: list[Entry], written_at: datetime | None) -> str:
    """Return the time of the entry; "" if unknown.

    It is the object's last write, or the newest time in the status if the last write was another
    manager's.
    """
    if written_at is not None:
        time = timestamp(written_at)
        if all(entry.time < time for entry in entries):
            return time
    return max(_times_in(status), default="")


def _times_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [time for item in value.values() for time in _times_in(item)]
    if isinstance(value, list):
        return [time for item in value for time in _times_in(item)]
    return [value] if isinstance(value, str) and _is_time(value) else []


def _is_time(text: str) -> bool:
    return len(text) == len("2026-01-01T00:00:00Z") and text[10] == "T" and text[-1] == "Z"
