"""A stored document, cut where most writes change it: at its revision and before its status.

To write the next version, the pieces that change are replaced and all are joined; the rest is
copied without being looked at.
"""

from typing import Any

import msgspec


class Pieces(msgspec.Struct, frozen=True, gc=False):
    """Joined, the pieces are the document byte for byte."""

    #: Up to the digits of the revision, and from there to the end of the metadata.
    before_revision: bytes
    after_revision: bytes
    spec: bytes
    status: bytes

    def document(self, revision: int) -> bytes:
        return b'%b%d%b,"spec":%b,"status":%b}' % (
            self.before_revision,
            revision,
            self.after_revision,
            self.spec,
            self.status,
        )


class Cut(msgspec.Struct, frozen=True, gc=False):
    pieces: Pieces
    metadata: bytes


def cut(document: bytes, revision: int) -> Cut | None:
    """None for a document in another order, or one that says twice what is its revision."""
    outline = _read_outline(document)
    metadata = bytes(outline.metadata)
    before, mark, after = metadata.partition(b'"resourceVersion":"%d"' % revision)
    if not mark or mark in after:
        return None
    pieces = Pieces(
        b'{"apiVersion":%b,"kind":%b,"metadata":%b"resourceVersion":"'
        % (bytes(outline.api_version), bytes(outline.kind), before),
        b'"' + after,
        bytes(outline.spec),
        bytes(outline.status),
    )
    return Cut(pieces, metadata) if pieces.document(revision) == document else None


def at_revision(document: bytes, revision: int, new: int) -> bytes:
    """A stored document of one revision, saying that it is of another."""
    parts = document.split(b'"resourceVersion":"%d"' % revision)
    if len(parts) == 2:
        return b'%b"resourceVersion":"%d"%b' % (parts[0], new, parts[1])
    # Something else in it says the same of another object.
    decoded = msgspec.json.decode(document)
    decoded["metadata"]["resourceVersion"] = str(new)
    return msgspec.json.encode(decoded)


def read_metadata(document: bytes) -> dict[str, Any]:
    """The metadata alone, decoded."""
    metadata: dict[str, Any] = msgspec.json.decode(_read_outline(document).metadata)
    return metadata


class _Outline(msgspec.Struct, rename="camel"):
    api_version: msgspec.Raw
    kind: msgspec.Raw
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


_read_outline = msgspec.json.Decoder(_Outline).decode
