"""Client-side `generateName`: choose the names of created objects before sending them.

A create whose response is lost may or may not have been performed. Under a name chosen by the
client the object can be looked up and the create sent again: the server accepts a name once.
"""

from random import Random
from typing import Any, Final

import msgspec

#: The server's alphabet for generated names, which cannot spell words.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LENGTH: Final = 5
_MAX_PREFIX_LENGTH: Final = 58

_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def with_chosen_name(document: bytes, rng: Random) -> tuple[bytes, str]:
    """Return the document with a name generated from its `generateName`, and the name.

    A document that has a name, or no `generateName`, is returned unchanged with the name it has
    (perhaps "").
    """
    members = _read_members(document)
    if "metadata" not in members:
        return document, ""
    metadata: dict[str, Any] = dict(_read_members(members["metadata"]))
    name = _text(metadata.get("name"))
    prefix = _text(metadata.get("generateName"))
    if name or not prefix:
        return document, name
    name = prefix[:_MAX_PREFIX_LENGTH] + "".join(rng.choices(_ALPHABET, k=_RANDOM_LENGTH))
    metadata["name"] = name
    named: dict[str, Any] = {**members, "metadata": metadata}
    return msgspec.json.encode(named), name


class _Owner(msgspec.Struct):
    uid: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []


class _Named(msgspec.Struct):
    metadata: _Meta


_read_named = msgspec.json.Decoder(_Named).decode


def matches_sent(found: bytes, sent: bytes) -> bool:
    """Return whether a found object is the one sent earlier.

    It has the same name and prefix, the same owners and the annotations that were sent.
    """
    there, ours = _read_named(found).metadata, _read_named(sent).metadata
    return (
        (there.name, there.generate_name) == (ours.name, ours.generate_name)
        and there.owner_references == ours.owner_references
        and ours.annotations.items() <= there.annotations.items()
    )


def _text(raw: msgspec.Raw | None) -> str:
    """Return a JSON text; "" if it is absent or of another type."""
    value = msgspec.json.decode(raw) if raw is not None else ""
    return value if isinstance(value, str) else ""
