"""Merge patches of the status by onejob's own writers, without decoding the rest of the object.

For kinds with large documents and no rules for their status: the spec goes back into the store byte
for byte, and so does each unchanged field of the status. `Writes.patch` handles all other cases and
is the reference for these.
"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from onejob.api.writing.section_patches import SectionWrite
from onejob.store.base import Stored

_NULL: Final = Raw(b"null")

_encode = msgspec.json.encode


class _Precondition(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    #: "" for none.
    resource_version: str = ""


class StatusPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """A merge patch that replaces or removes whole fields of the status."""

    metadata: _Precondition = _Precondition()
    status: dict[str, Raw] | UnsetType = UNSET


class _Sections(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An object of which nothing is decoded. Members are stored in this order."""

    api_version: str
    kind: str
    metadata: Raw
    spec: Raw
    status: dict[str, Raw] | UnsetType = UNSET


_read = msgspec.json.Decoder(StatusPatch).decode
_read_sections = msgspec.json.Decoder(_Sections).decode


def read_status_patch(body: bytes) -> StatusPatch | None:
    """Return the patch, or None if it changes anything else, or merges objects."""
    try:
        patch = _read(body)
    except msgspec.ValidationError:
        return None
    if patch.status is not UNSET and any(
        bytes(value).startswith(b"{") for value in patch.status.values()
    ):
        return None
    return patch


def patch_status(stored: Stored, patch: StatusPatch) -> SectionWrite | Stored | None:
    """Return the write for a patch; `stored` itself if the patch changes nothing.

    None if rules other than those of this module apply. The precondition must have been checked.
    """
    if patch.status is UNSET:
        return stored
    try:
        sections = _read_sections(stored.value)
    except msgspec.ValidationError:
        # An object with other members; an earlier version stored them.
        return None
    metadata = bytes(sections.metadata)
    parts = metadata.split(b'"resourceVersion":"%d"' % stored.revision)
    if (
        len(parts) != 2
        or b'"deletionTimestamp"' in metadata
        # Another manager may own a part of the status.
        or b'"subresource":"status"' in metadata
    ):
        return None
    status = {} if sections.status is UNSET else sections.status
    changed = sections.status is UNSET
    for name, value in patch.status.items():
        if value == _NULL:
            changed = status.pop(name, None) is not None or changed
        elif status.get(name) != value:
            status[name] = value
            changed = True
    if not changed:
        return stored
    before = b'{"apiVersion":%b,"kind":%b,"metadata":%b' % (
        _encode(sections.api_version), _encode(sections.kind), parts[0],
    )  # fmt: skip
    after = b"".join((parts[1], b',"spec":', sections.spec, b',"status":', _encode(status), b"}"))
    return SectionWrite(before, after, cold=False)
