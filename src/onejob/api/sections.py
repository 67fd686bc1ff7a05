"""Lazily decoded JSON documents: sections stay encoded until they are read.

A write touches one or two of metadata, spec and status; the rest of the document goes back into
the store byte for byte. A stored document is therefore split, not decoded: its members are
`msgspec.Raw` until they are read, and msgspec copies members that are still Raw when the document
is encoded again.

For all other code these are plain dicts: members are decoded when read, iterated or compared.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from functools import lru_cache
from typing import Any, Final

import msgspec

Raw = msgspec.Raw

_MISSING: Final = object()
#: Members of a document that are split further, because writes read few of their fields.
_SPLIT: Final = frozenset(("metadata", "spec", "status"))
#: Sections of fewer bytes are decoded at once, which is faster than splitting them.
_SHORT: Final = 512

decode: Final[Callable[[bytes | Raw], Any]] = msgspec.json.Decoder().decode
#: Split a JSON object into its members, each of them Raw.
split: Final[Callable[[bytes | Raw], dict[str, Any]]] = msgspec.json.Decoder(dict[str, Raw]).decode
#: Split one level deeper, for a document whose members are all objects.
_split_twice: Final[Callable[[bytes], dict[str, dict[str, Any]]]] = msgspec.json.Decoder(
    dict[str, dict[str, Raw]]
).decode
#: Cached decoding of short strings that many documents share, such as a phase.
_decode_often: Final = lru_cache(maxsize=256)(decode)
_read: Final = dict.__getitem__
_get: Final = dict.get
_set: Final = dict.__setitem__
_raw_items: Final = dict.items

#: Return a member without decoding it: Raw if it has not been read.
held: Final[Callable[..., Any]] = dict.get
names: Final[Callable[[dict[str, Any]], KeysView[str]]] = dict.keys
#: Return all members without decoding them.
members: Final[Callable[[dict[str, Any]], Iterable[tuple[str, Any]]]] = dict.items


class Section(dict[str, Any]):
    """A JSON object whose members are decoded when they are read."""

    __slots__ = ()

    def _decoded(self, name: str, raw: Raw) -> Any:
        value = decode(raw)
        _set(self, name, value)
        return value

    def __getitem__(self, name: str) -> Any:
        value = _read(self, name)
        return self._decoded(name, value) if type(value) is Raw else value

    def get(self, name: str, default: Any = None) -> Any:
        value = _get(self, name, default)
        return self._decoded(name, value) if type(value) is Raw else value

    def setdefault(self, name: str, default: Any = None) -> Any:
        value = dict.setdefault(self, name, default)
        return self._decoded(name, value) if type(value) is Raw else value

    def pop(self, name: str, *default: Any) -> Any:
        value = dict.pop(self, name, *default)
        return self._plain(name, value) if type(value) is Raw else value

    def popitem(self) -> tuple[str, Any]:
        name, value = dict.popitem(self)
        return name, self._plain(name, value) if type(value) is Raw else value

    def _plain(self, name: str, raw: Raw) -> Any:
        """Return the decoded value of a member without storing it in the section."""
        return decode(raw)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._decode_all()
        return dict.items(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._decode_all()
        return dict.values(self)

    def _decode_all(self) -> None:
        for name, value in list(_raw_items(self)):
            if type(value) is Raw:
                self._decoded(name, value)

    def __iter__(self) -> Iterator[str]:
        # Required: `dict(section)` and `{**section}` would copy Raw members without decoding them
        # unless the class defines its own iterator.
        return dict.__iter__(self)

    def __or__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        return {**self, **other}

    def __ror__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        return {**other, **self}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        if len(self) != len(other):
            return False
        for name, mine in list(_raw_items(self)):
            theirs = _get(other, name, _MISSING)
            if theirs is mine:
                continue
            if theirs is _MISSING:
                return False
            if (type(mine) is Raw) is not (type(theirs) is Raw):
                # Decodes the one that is still encoded.
                mine, theirs = self[name], other[name]
            if not mine == theirs and (type(mine) is not Raw or not _same_json(mine, theirs)):
                return False
        return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def fork(self) -> "Section":
        """Return a deep copy; encoded members stay encoded."""
        copy = type(self)()
        for name, value in _raw_items(self):
            _set(copy, name, value if type(value) is Raw else copied(value))
        return copy


class SectionedDocument(Section):
    """A complete API object whose metadata, spec and status are sections."""

    __slots__ = ()

    def _decoded(self, name: str, raw: Raw) -> Any:
        value = self._plain(name, raw)
        _set(self, name, value)
        return value

    def _plain(self, name: str, raw: Raw) -> Any:
        # Nearly all metadata fields are read. Metadata is split only if it has managedFields, which
        # are long and rarely read.
        if name not in _SPLIT:
            return decode(raw)
        encoded = bytes(raw)
        if len(encoded) < _SHORT or (name == "metadata" and b'"managedFields"' not in encoded):
            return decode(encoded)
        try:
            return Section(split(raw))
        except msgspec.ValidationError:
            # Not an object; the schema check reports it.
            return decode(raw)


def _same_json(a: Raw, b: Raw) -> bool:
    """Return whether two values that are not the same bytes are equal as JSON."""
    one, other = bytes(a), bytes(b)
    if one[:1] == b'"' == other[:1] and b"\\" not in one and b"\\" not in other:
        return False
    return bool(decode(one) == decode(other))


def sectioned(document: bytes) -> SectionedDocument:
    """Split a stored document. Raises msgspec.DecodeError if it is not a JSON object."""
    return SectionedDocument(split(document))


class SplitPatch(SectionedDocument):
    """A merge patch without directives and nulls, whose sections are plain dicts of Raw members."""

    __slots__ = ()


def sectioned_patch(patch: bytes) -> SectionedDocument:
    """Split a merge patch; the result is a SplitPatch if possible."""
    if b'"$' not in patch and b"null" not in patch:
        try:
            return SplitPatch(_split_twice(patch))
        except msgspec.ValidationError:
            # Some members are not objects.
            pass
    return SectionedDocument(split(patch))


def text_of(section: dict[str, Any], name: str) -> Any:
    """Return a member that is a short string, without storing it decoded; None if absent."""
    value = _get(section, name)
    return _decode_often(bytes(value)) if type(value) is Raw else value


def shallow(value: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the same type that shares its members, for callers that replace some."""
    if type(value) is dict:
        return value.copy()
    # `type(value)(value)` would be slower and decode all members, because the class has its own
    # iterator.
    return type(value)({name: member for name, member in _raw_items(value)})  # noqa: C416


def same_member(a: dict[str, Any], b: dict[str, Any], name: str) -> bool:
    """Return whether both have an equal member of this name, or neither has one.

    Unread sections are compared as bytes first.
    """
    mine, theirs = _get(a, name), _get(b, name)
    if mine is theirs or (type(mine) is Raw and type(theirs) is Raw and mine == theirs):
        return True
    return bool(a.get(name) == b.get(name))


def with_first(document: dict[str, Any], first: dict[str, Any]) -> SectionedDocument:
    """Return the document with the members of `first` in front of all others."""
    ordered = SectionedDocument(first)
    for name, value in _raw_items(document):
        if name not in first:
            _set(ordered, name, value)
    return ordered


def same_bytes(a: dict[str, Any], b: dict[str, Any], name: str) -> bool:
    """Return whether the member is unread in both documents and has the same bytes."""
    mine, theirs = _get(a, name), _get(b, name)
    return type(mine) is Raw and type(theirs) is Raw and (mine is theirs or mine == theirs)


def plain(value: Any) -> Any:
    """Return the value of `held` or `members`, decoded."""
    if type(value) is Raw:
        return decode(value)
    return dict(value) if isinstance(value, Section) else value


def copied(value: Any) -> Any:
    """Return a deep copy of a JSON value, in a fifth of the time of the generic `deepcopy`."""
    kind = type(value)
    if kind is dict:
        return {name: copied(member) for name, member in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value.fork() if isinstance(value, Section) else value


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
