"""JSON documents of the API: encoded at rest, plain dicts while a write is decided.

There are no other forms. A stored document is bytes; a write decodes it into dicts, and the new
document shares with the old one every part that the write does not change.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

Raw = msgspec.Raw

decode: Final[Callable[[bytes | Raw], Any]] = msgspec.json.Decoder().decode
#: Split a JSON object into its members, each of them encoded.
split: Final[Callable[[bytes | Raw], dict[str, Any]]] = msgspec.json.Decoder(dict[str, Raw]).decode

_encode_sorted: Final = msgspec.json.Encoder(order="deterministic").encode


def deep_copy(value: Any) -> Any:
    """Return a deep copy of a JSON value, in a fifth of the time of the generic `deepcopy`."""
    kind = type(value)
    if kind is dict:
        return {name: deep_copy(member) for name, member in value.items()}
    if kind is list:
        return [deep_copy(item) for item in value]
    return value


def same_json(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, 1 and true are different."""
    return bool(a == b) and _encode_sorted(a) == _encode_sorted(b)


def at_revision(document: bytes, revision: int, new: int) -> bytes:
    """Return a stored document with its resourceVersion replaced by `new`."""
    parts = document.split(b'"resourceVersion":"%d"' % revision)
    if len(parts) == 2:
        return b'%b"resourceVersion":"%d"%b' % (parts[0], new, parts[1])
    # The text occurs elsewhere too, e.g. in an embedded object.
    decoded = decode(document)
    decoded["metadata"]["resourceVersion"] = str(new)
    return msgspec.json.encode(decoded)


def read_metadata(document: bytes) -> dict[str, Any]:
    """Return the decoded metadata of a document; the rest is not decoded."""
    metadata: dict[str, Any] = decode(_read_outline(document).metadata)
    return metadata


class _Outline(msgspec.Struct):
    metadata: Raw


_read_outline = msgspec.json.Decoder(_Outline).decode
