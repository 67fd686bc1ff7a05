"""Parts of a stored document, without decoding the rest: its revision, its metadata."""

from typing import Any

import msgspec


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


class _Outline(msgspec.Struct):
    metadata: msgspec.Raw


_read_outline = msgspec.json.Decoder(_Outline).decode
