"""Sets of fields of a document: who owns what, and what a write changed.

A field is the path to it, a tuple of elements in the form that `fieldsV1` has them: `f:<name>` for
a field or a key of a map, `k:<keys>` for an item of a keyed list, `v:<value>` for an item of a
set. What the schema calls atomic has no fields inside.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from onejob.api.shapes import ListShape, MapShape, ObjectShape, Shape, StringShape

FieldPath: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[FieldPath]

NO_FIELDS: Final[FieldSet] = frozenset()


class _Missing:
    """Stands for a value that is not there; null never gets this far."""


_MISSING: Final = _Missing()


def fields_of(doc: Any, shape: Shape) -> FieldSet:
    """What a manager owns who applied `doc`: its leaves, and the items of its lists."""
    found: set[FieldPath] = set()
    _collect(doc, shape, (), found)
    return frozenset(found)


def _collect(value: Any, shape: Shape, path: FieldPath, found: set[FieldPath]) -> None:
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


@dataclass(slots=True)
class Comparison:
    added: set[FieldPath] = field(default_factory=set)
    modified: set[FieldPath] = field(default_factory=set)
    removed: set[FieldPath] = field(default_factory=set)

    def without(self, ignored: Iterable[FieldPath]) -> "Comparison":
        """Leaving out some fields and all inside them."""
        prefixes = tuple(ignored)
        return Comparison(
            {path for path in self.added if not is_inside(path, prefixes)},
            {path for path in self.modified if not is_inside(path, prefixes)},
            {path for path in self.removed if not is_inside(path, prefixes)},
        )

    @property
    def same(self) -> bool:
        return not (self.added or self.modified or self.removed)


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    comparison = Comparison()
    _compare(old, new, shape, (), comparison)
    return comparison


def _compare(old: Any, new: Any, shape: Shape, path: FieldPath, found: Comparison) -> None:
    before = _child_map(old, shape)
    after = _child_map(new, shape)
    if not before and not after:
        # Leaves, atomic values and empty containers.
        if old is _MISSING:
            found.added.add(path)
        elif new is _MISSING:
            found.removed.add(path)
        elif old != new:
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
    """The parts of a value that are fields of their own; None when it is atomic."""
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
            # An item without its keys has no name; then the list counts as one value.
            if None not in elements:
                return [
                    (element, item, shape.items)
                    for element, item in zip(elements, value, strict=True)
                    if element is not None
                ]
    return None


def key_element(item: Any, shape: ListShape) -> str | None:
    """How an item of a keyed list is named; None when it lacks a key without default."""
    if not isinstance(item, dict) or not isinstance(shape.items, ObjectShape):
        return None
    keys: dict[str, Any] = {}
    for key in shape.keys:
        known = shape.items.fields.get(key)
        default = known.default if isinstance(known, StringShape) else None
        keys[key] = item.get(key, default)
    if None in keys.values():
        return None
    return "k:" + json.dumps(keys, sort_keys=True, separators=(",", ":"))


def item_element(item: Any, shape: ListShape) -> str | None:
    """How an item of a set or a keyed list is named."""
    return _value_element(item) if shape.list_type == "set" else key_element(item, shape)


def _value_element(item: Any) -> str:
    return "v:" + json.dumps(item, sort_keys=True, separators=(",", ":"))


def is_inside(path: FieldPath, prefixes: Iterable[FieldPath]) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in prefixes)


def with_parents(fields: Iterable[FieldPath]) -> set[FieldPath]:
    """The fields and everything they are inside of."""
    return {path[:length] for path in fields for length in range(1, len(path) + 1)}


def encode_fields(fields: FieldSet) -> dict[str, Any]:
    """As `fieldsV1`: nested objects, `.` marking a field that is in the set besides its parts."""
    root: dict[str, Any] = {}
    for path in sorted(fields):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    _drop_lone_dots(root)
    return root


def _drop_lone_dots(node: dict[str, Any]) -> None:
    for child in node.values():
        if len(child) == 1 and "." in child:
            child.clear()
        else:
            _drop_lone_dots(child)


def decode_fields(node: Any) -> FieldSet:
    """Raises ValueError for what is not `fieldsV1`."""
    return frozenset(_decode(node, ()))


def _decode(node: Any, path: FieldPath) -> Iterator[FieldPath]:
    if not isinstance(node, dict):
        raise ValueError("fieldsV1 holds something else than objects")
    for element, child in node.items():
        if element == ".":
            yield path
        elif element[:2] not in ("f:", "k:", "v:", "i:"):
            raise ValueError(f"unknown path element {element}")
        elif child == {}:
            yield (*path, element)
        else:
            yield from _decode(child, (*path, element))


def render_field(path: FieldPath) -> str:
    """`.spec.containers[name="c"].image`, as conflicts name a field."""
    return "".join(map(_render_element, path))


def _render_element(element: str) -> str:
    kind, text = element[:1], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        pairs = json.loads(text).items()
        return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in pairs) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"
