"""Field sets: the paths of a document that a manager owns or a write changed (`fieldsV1`).

A field is represented by its path, a tuple of elements in the notation of `fieldsV1`: `f:<name>`
for a field or a key of a map, `k:<keys>` for an item of a keyed list, `v:<value>` for an item of a
set. A value that is atomic in the schema has no fields inside.
"""

import json
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, field

from onejob.api.documents import deep_copy
from onejob.api.schema.shapes import ListShape, MapShape, ObjectShape, Shape, StringShape

FieldPath: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[FieldPath]
#: A set of fields in the encoding of managedFields: nested objects.
FieldsV1: TypeAlias = dict[str, Any]


class _Missing:
    """Type of the marker for an absent value. Nulls are dropped before comparison."""


_MISSING: Final = _Missing()


def fields_of(doc: Any, shape: Shape) -> FieldSet:
    """Return the fields that a manager owns by applying `doc`: its leaves and its list items."""
    found: set[FieldPath] = set()
    _collect(doc, shape, (), found)
    return frozenset(found)


def _collect(value: Any, shape: Shape, path: FieldPath, found: set[FieldPath]) -> None:
    """Add the paths of all fields in the value to `found`."""
    if not value or not isinstance(value, dict | list):
        found.add(path)
        return
    children = _children(value, shape)
    if children is None:
        found.add(path)
        return
    for element, child, child_shape in children:
        if element[0] != "f":
            found.add((*path, element))
        _collect(child, child_shape, (*path, element), found)


class Comparison(Struct):
    added: set[FieldPath] = field(default_factory=set)
    modified: set[FieldPath] = field(default_factory=set)
    removed: set[FieldPath] = field(default_factory=set)

    def without(self, ignored: Iterable[FieldPath]) -> "Comparison":
        """Return the comparison without the `ignored` fields and all fields inside them."""
        prefixes = tuple(ignored)
        return Comparison(
            {path for path in self.added if not _is_inside(path, prefixes)},
            {path for path in self.modified if not _is_inside(path, prefixes)},
            {path for path in self.removed if not _is_inside(path, prefixes)},
        )

    @property
    def same(self) -> bool:
        """True if no field was added, modified or removed."""
        return not (self.added or self.modified or self.removed)


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """Return the paths that were added, removed and changed."""
    comparison = Comparison()
    _compare(old, new, shape, (), comparison)
    return comparison


def _compare(old: Any, new: Any, shape: Shape, path: FieldPath, found: Comparison) -> None:
    """Add the differences between two values to `found`."""
    if old == new:
        return
    before = _child_map(old, shape)
    after = _child_map(new, shape)
    if not before and not after:
        # Leaves, atomic values and empty containers.
        if old is _MISSING:
            found.added.add(path)
        elif new is _MISSING:
            found.removed.add(path)
        else:
            found.modified.add(path)
        return
    for element in before.keys() | after.keys():
        old_child, known = before.get(element, (_MISSING, None))
        new_child, shape_of_child = after.get(element, (_MISSING, known))
        assert shape_of_child is not None
        _compare(old_child, new_child, shape_of_child, (*path, element), found)
    if old is _MISSING:
        found.added.add(path)
    elif new is _MISSING:
        found.removed.add(path)


def _child_map(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape]]:
    if not isinstance(value, dict | list):
        return {}
    children = _children(value, shape)
    return {element: (child, inner) for element, child, inner in children or ()}


def _children(value: Any, shape: Shape) -> list[tuple[str, Any, Shape]] | None:
    """Return the parts of a value that are fields of their own; None if it is atomic."""
    if isinstance(value, dict):
        if isinstance(shape, ObjectShape) and not shape.atomic:
            fields = shape.fields
            return [("f:" + name, item, fields[name]) for name, item in value.items()
                    if name in fields]  # fmt: skip
        if isinstance(shape, MapShape) and not shape.atomic:
            return [("f:" + name, item, shape.values) for name, item in value.items()]
    elif isinstance(value, list) and isinstance(shape, ListShape):
        if shape.list_type == "set":
            return [(_value_element(item), item, shape.items) for item in value]
        if shape.list_type == "map":
            elements = [key_element(item, shape) for item in value]
            # An item without its keys has no path element; the list is then treated as atomic.
            if None not in elements:
                return [
                    (element, item, shape.items)
                    for element, item in zip(elements, value, strict=True)
                    if element is not None
                ]
    return None


def key_element(item: Any, shape: ListShape) -> str | None:
    """Return the path element of an item of a keyed list.

    None if the item lacks a key that has no default.
    """
    if not isinstance(item, dict) or not isinstance(shape.items, ObjectShape):
        return None
    keys: dict[str, Any] = {}
    for key in shape.keys:
        known = shape.items.fields.get(key)
        default = known.default if isinstance(known, StringShape) else None
        keys[key] = item.get(key, default)
    if None in keys.values():
        return None
    return "k:" + msgspec.json.encode(keys, order="sorted").decode()


def item_element(item: Any, shape: ListShape) -> str | None:
    """Return the path element of an item of a set or a keyed list; None as in `key_element`."""
    return _value_element(item) if shape.list_type == "set" else key_element(item, shape)


def _value_element(item: Any) -> str:
    return "v:" + msgspec.json.encode(item, order="sorted").decode()


def _is_inside(path: FieldPath, prefixes: Iterable[FieldPath]) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in prefixes)


#: Number of paths per sort: a millisecond or two of work.
_RUN: Final = 2000


def in_order(fields: Iterable[FieldPath]) -> Iterable[FieldPath]:
    """Return the fields sorted.

    Large sets are sorted in runs and merged, because a single `sorted` call holds the GIL and would
    block the event loop until it is done.
    """
    paths = list(fields)
    if len(paths) <= _RUN:
        return sorted(paths)
    return merge(*(sorted(paths[at : at + _RUN]) for at in range(0, len(paths), _RUN)))


def with_parents(fields: Iterable[FieldPath]) -> set[FieldPath]:
    """Return the fields and all their ancestors."""
    return {path[:length] for path in fields for length in range(1, len(path) + 1)}


def encode_fields(fields: Iterable[FieldPath]) -> FieldsV1:
    """Encode a set of fields as `fieldsV1`.

    The encoding is nested objects. An empty object is a field of the set; so is an object with the
    member `.` in addition to its parts.
    """
    root: FieldsV1 = {}
    for path in in_order(fields):
        _insert(root, path)
    return root


def encode_all(value: Any, shape: Shape, known: Any = _MISSING) -> FieldsV1:
    """Return all fields of `value` that are not in `known`, encoded as `fieldsV1`.

    A faster form of `compare(...).added` for new objects, where it accounts for most of the work.
    """
    node: FieldsV1 = {}
    children = _children(value, shape) if value else None
    before = known if isinstance(known, dict) else {}
    for element, child, inner in children or ():
        present = before.get(element[2:], _MISSING) if before else _MISSING
        if present is _MISSING:
            # Most fields are leaves.
            has_parts = child and type(child) in (dict, list)
            node[element] = encode_all(child, inner) if has_parts else {}
        elif child != present:
            parts = encode_all(child, inner, present)
            # An existing object without new fields is not itself a new field.
            if parts or not isinstance(child, dict):
                node[element] = parts
    if node and known is _MISSING:
        node["."] = {}
    return node


def add_fields(encoded: FieldsV1, fields: Iterable[FieldPath]) -> FieldsV1:
    added: FieldsV1 = deep_copy(encoded)
    # Sorted, so that equal writes produce equal bytes in every process.
    for path in in_order(fields):
        _insert(added, path)
    return added


def _insert(root: FieldsV1, path: FieldPath) -> None:
    """Add a path to the encoded set."""
    node = root
    for depth, element in enumerate(path):
        child = node.get(element)
        if child is None:
            child = node[element] = {}
        elif not child and depth < len(path) - 1:
            # A field of the set that gets parts now.
            child["."] = {}
        node = child
    if node:
        node["."] = {}


def remove_fields(encoded: FieldsV1, fields: Iterable[FieldPath]) -> FieldsV1:
    """Return the encoding without exactly these fields; fields inside them are kept.

    Returns `encoded` itself if it contains none of them.
    """
    present = [path for path in fields if _contains(encoded, path)]
    if not present:
        return encoded
    remaining: FieldsV1 = deep_copy(encoded)
    for path in present:
        _delete(remaining, path)
    return remaining


def _contains(encoded: FieldsV1, path: FieldPath) -> bool:
    """Return whether the encoded set contains the path itself."""
    node: Any = encoded
    for element in path:
        node = node.get(element)
        if node is None:
            return False
    return not node or "." in node


def _delete(node: FieldsV1, path: FieldPath) -> None:
    """Remove a path from the encoded set, and parents that are left empty. Raises KeyError."""
    element, *rest = path
    child = node[element]
    if rest:
        _delete(child, tuple(rest))
        if child.keys() == {"."}:
            child.clear()
        elif not child:
            # Not a field of the set, only the parent of one.
            del node[element]
    elif child:
        del child["."]
    else:
        del node[element]


def check_encoding(node: Any) -> None:
    """Raise ValueError if a value is not valid `fieldsV1`."""
    if not isinstance(node, dict):
        raise ValueError("fieldsV1 holds something else than objects")
    for element, child in node.items():
        if element[:2] not in ("f:", "k:", "v:", "i:", "."):
            raise ValueError(f"unknown path element {element}")
        if child != {}:
            check_encoding(child)


def decode_fields(encoded: FieldsV1) -> FieldSet:
    return frozenset(_decode(encoded, ()))


def _decode(node: FieldsV1, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the paths of an encoded set."""
    for element, child in node.items():
        if element == ".":
            yield path
        elif child == {}:
            yield (*path, element)
        else:
            yield from _decode(child, (*path, element))


def render_field(path: FieldPath) -> str:
    """Render a path as in conflict messages, e.g. `.spec.containers[name="c"].image`."""
    return "".join(map(_render_element, path))


def _render_element(element: str) -> str:
    kind, text = element[:1], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        pairs = json.loads(text).items()
        return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in pairs) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"
