"""Documents whose sections stay encoded until something reads them.

A write touches one or two of metadata, spec and status; the rest of the document goes back into
the store byte for byte. So a stored document is split, not decoded: its members are `msgspec.Raw`
until they are read, and msgspec copies what is still Raw when the document is encoded again.

To everybody else these are plain dicts: what is read, iterated or compared is decoded.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from functools import lru_cache
from typing import Any, Final

import msgspec

Raw = msgspec.Raw

_MISSING: Final = object()
#: The members of a document that are split further: writes read few of their fields.
_SPLIT: Final = frozenset(("metadata", "spec", "status"))
#: Bytes of a section that takes less time to decode than to split.
_SHORT: Final = 512

decode: Final[Callable[[bytes | Raw], Any]] = msgspec.json.Decoder().decode
#: A JSON object as its members, each of them Raw.
split: Final[Callable[[bytes | Raw], dict[str, Any]]] = msgspec.json.Decoder(dict[str, Raw]).decode
#: The same one level deeper, for a document that has nothing but objects.
_split_twice: Final[Callable[[bytes], dict[str, dict[str, Any]]]] = msgspec.json.Decoder(
    dict[str, dict[str, Raw]]
).decode
#: Of a short text, such as a phase, that many documents have.
_decode_often: Final = lru_cache(maxsize=256)(decode)
_read: Final = dict.__getitem__
_get: Final = dict.get
_set: Final = dict.__setitem__
_raw_items: Final = dict.items

#: A member as it is held: Raw if nobody has read it.
held: Final[Callable[..., Any]] = dict.get
names: Final[Callable[[dict[str, Any]], KeysView[str]]] = dict.keys
#: All of them.
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
        """The value of a member that is no longer in the section."""
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
        # Not only for symmetry: `dict(section)` and `{**section}` copy the members of a dict as
        # they are unless its class has an iterator of its own.
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
                # Whichever of the two is still encoded is decoded.
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
        """A copy that shares nothing that could be changed in place."""
        copy = type(self)()
        for name, value in _raw_items(self):
            _set(copy, name, value if type(value) is Raw else copied(value))
        return copy


class SectionedDocument(Section):
    """A whole object, of which metadata, spec and status are sections."""

    __slots__ = ()

    def _decoded(self, name: str, raw: Raw) -> Any:
        value = self._plain(name, raw)
        _set(self, name, value)
        return value

    def _plain(self, name: str, raw: Raw) -> Any:
        # Of metadata nearly everything is read; it is split only for managedFields, which few read
        # and which are long.
        if name not in _SPLIT:
            return decode(raw)
        encoded = bytes(raw)
        if len(encoded) < _SHORT or (name == "metadata" and b'"managedFields"' not in encoded):
            return decode(encoded)
        try:
            return Section(split(raw))
        except msgspec.ValidationError:
            # Not an object: for whoever checks the shapes of bodies.
            return decode(raw)


def _same_json(a: Raw, b: Raw) -> bool:
    """Of two that are not the same bytes."""
    one, other = bytes(a), bytes(b)
    if one[:1] == b'"' == other[:1] and b"\\" not in one and b"\\" not in other:
        return False
    return bool(decode(one) == decode(other))


def sectioned(document: bytes) -> SectionedDocument:
    """Raises msgspec.DecodeError for what is no JSON object."""
    return SectionedDocument(split(document))


class SplitPatch(SectionedDocument):
    """A merge patch whose sections only say what fields shall be: plain dicts of what is Raw."""

    __slots__ = ()


def sectioned_patch(patch: bytes) -> SectionedDocument:
    """A merge patch; a SplitPatch if it can be one."""
    if b'"$' not in patch and b"null" not in patch:
        try:
            return SplitPatch(_split_twice(patch))
        except msgspec.ValidationError:
            # It has members that are no objects.
            pass
    return SectionedDocument(split(patch))


def text_of(section: dict[str, Any], name: str) -> Any:
    """A member that is a short text, if it is there."""
    value = _get(section, name)
    return _decode_often(bytes(value)) if type(value) is Raw else value


def shallow(value: dict[str, Any]) -> dict[str, Any]:
    """A copy with the same members, which are shared: for whoever replaces some of them."""
    if type(value) is dict:
        return value.copy()
    # A class with an iterator of its own is not copied as quickly as a plain dict is.
    return type(value)({name: member for name, member in _raw_items(value)})  # noqa: C416


def same_member(a: dict[str, Any], b: dict[str, Any], name: str) -> bool:
    """Whether both hold the same under this name, or neither holds anything. Sections that nobody
    has read are compared as bytes."""
    mine, theirs = _get(a, name), _get(b, name)
    if mine is theirs or (type(mine) is Raw and type(theirs) is Raw and mine == theirs):
        return True
    return bool(a.get(name) == b.get(name))


def with_first(document: dict[str, Any], first: dict[str, Any]) -> SectionedDocument:
    """The same document, with these members in front of all others."""
    ordered = SectionedDocument(first)
    for name, value in _raw_items(document):
        if name not in first:
            _set(ordered, name, value)
    return ordered


def same_bytes(a: dict[str, Any], b: dict[str, Any], name: str) -> bool:
    """Whether both hold the same encoded member, which neither has read."""
    mine, theirs = _get(a, name), _get(b, name)
    return type(mine) is Raw and type(theirs) is Raw and (mine is theirs or mine == theirs)


def plain(value: Any) -> Any:
    """A value that is held, decoded throughout."""
    if type(value) is Raw:
        return decode(value)
    return dict(value) if isinstance(value, Section) else value


def copied(value: Any) -> Any:
    """Of JSON: a fifth of the time that `deepcopy`, which expects anything, would take."""
    kind = type(value)
    if kind is dict:
        return {name: copied(member) for name, member in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value.fork() if isinstance(value, Section) else value


def at_revision(document: bytes, revision: int, new: int) -> bytes:
    """A stored document of one revision, saying that it is of another."""
    parts = document.split(b'"resourceVersion":"%d"' % revision)
    if len(parts) == 2:
        return b'%b"resourceVersion":"%d"%b' % (parts[0], new, parts[1])
    # Something else in it says the same of another object.
    decoded = decode(document)
    decoded["metadata"]["resourceVersion"] = str(new)
    return msgspec.json.encode(decoded)


def read_metadata(document: bytes) -> dict[str, Any]:
    """The metadata alone, decoded."""
    metadata: dict[str, Any] = decode(_read_outline(document).metadata)
    return metadata


class _Outline(msgspec.Struct):
    metadata: Raw


_read_outline = msgspec.json.Decoder(_Outline).decode
