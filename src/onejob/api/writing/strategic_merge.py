"""Strategic merge patch: a merge patch that merges lists by the merge keys in the schema.

Directives: `$patch` (replace, delete, merge), `$deleteFromPrimitiveList/<field>`,
`$setElementOrder/<field>`, `$retainKeys`. Pure: the arguments are not modified, and the result
shares the parts that the patch does not change with the document.
"""

from collections import deque
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from onejob.api.schema.shapes import ListShape, Shape, field_shape, json_type
from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest
from onejob.wire.field_errors import shortened

_encode_sorted: Final = msgspec.json.Encoder(order="deterministic").encode

_MAX_SHOWN_ITEMS: Final = 20

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_SET_ORDER: Final = "$setElementOrder/"


def strategic_merge(doc: Document, patch: Document, type_: Shape) -> Document:
    """Return the patched document.

    Raises BadRequest if the patch contradicts itself or the schema.
    """
    return _merge_map(doc, patch, type_)


def _merge_map(original: Document, patch: Document, shape: Shape) -> Document:
    """Return the object with the patch and its directives applied. Raises BadRequest."""
    if not any(map(_is_directive, patch)):
        return _merge_fields(original, patch, shape)
    match patch.get(_PATCH, "merge"):
        case "replace":
            replacement: Document = _without_directives(patch)
            return replacement
        case "delete":
            return {}
        case "merge":
            return _merge_directed(original, _parse_directives(patch), shape)
        case directive:
            raise BadRequest(f"unknown patch type: {directive}")


def _merge_fields(original: Document, patch: Document, shape: Shape) -> Document:
    """Merge a patch without directives at this level. Returns `original` itself if unchanged."""
    merged: Document | None = None
    for field, value in patch.items():
        if value.__class__ is str and original.get(field) == value:
            continue
        if merged is None:
            merged = original.copy()
        _merge_field(merged, original, field, value, field_shape(shape, field))
    return original if merged is None else merged


class _Directed(msgspec.Struct, frozen=True):
    """A parsed object patch with directives."""

    fields: Document
    #: By field, in the order of the patch.
    orders: dict[str, list[Any]]
    removals: dict[str, list[Any]]
    #: The patch itself, if it lists the keys to retain.
    retaining: Document | None


def _parse_directives(patch: Document) -> _Directed:
    """Split a patch into fields and directives, such as $setElementOrder."""
    fields: Document = {}
    orders: dict[str, list[Any]] = {}
    removals: dict[str, list[Any]] = {}
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            removals[name.removeprefix(_DELETE_FROM)] = _list_of(value, _DELETE_FROM)
        elif name.startswith(_SET_ORDER):
            orders[name.removeprefix(_SET_ORDER)] = _list_of(value, _SET_ORDER)
        elif name not in (_PATCH, _RETAIN_KEYS):
            fields[name] = value
    return _Directed(fields, orders, removals, patch if _RETAIN_KEYS in patch else None)


def _merge_directed(original: Document, patch: _Directed, shape: Shape) -> Document:
    merged = original.copy()
    if patch.retaining is not None:
        _retain_keys(merged, patch.retaining)
    fields = patch.fields
    for field, order in patch.orders.items():
        shape_of_list = field_shape(shape, field)
        if isinstance(shape_of_list, ListShape):
            _merge_in_order(merged, fields.get(field), field, order, shape_of_list)
            fields = {name: value for name, value in fields.items() if name != field}
    if fields:
        merged = _merge_fields(merged, fields, shape)
    # Last, so that the result for a field with additions and removals is independent of key order.
    for field, unwanted in patch.removals.items():
        present = merged.get(field)
        if isinstance(present, list):
            merged[field] = _without_items(present, unwanted)
    return merged


def _without_items(present: list[Any], unwanted: list[Any]) -> list[Any]:
    if all([item.__class__ is str for item in present]):  # noqa: C419
        return [item for item in present if item not in unwanted]
    gone = _places(unwanted, "")
    return [item for item in present if _identity(item, "") not in gone]


def _merge_field(
    merged: Document, original: Document, field: str, value: Any, shape: Shape
) -> None:
    """Apply the patch of one field to `merged`."""
    if value is None:
        if field in merged:
            del merged[field]
    elif not isinstance(value, dict | list):
        merged[field] = value
    elif not (field not in original and _is_deletion(value)):
        merged[field] = _merge_value(original.get(field), value, shape)


def _merge_value(original: Any, patch: Any, shape: Shape) -> Any:
    if isinstance(patch, dict):
        # Also merged if there is no original, so that directives in a new object take effect.
        return _merge_map(original if isinstance(original, dict) else {}, patch, shape)
    if isinstance(patch, list) and isinstance(original, list) and _merges_items(shape):
        assert isinstance(shape, ListShape)
        return _merge_list(original, patch, shape)
    return _without_directives(patch)


def _merge_list(original: list[Any], patch: list[Any], shape: ListShape) -> list[Any]:
    """Merge two lists.

    Items in the patch take its order; items that it adds precede the ones it does not contain, as
    upstream places them.
    """
    _check_items(original, patch, shape)
    if not shape.merge_key:
        return _ordered(_without_duplicates(original + patch), patch, original, "")
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_without_directives(item) for item in patch if _PATCH not in item]
    key = shape.merge_key
    deleted = {_identity(item, key) for item in patch if _is_deletion(item)}
    kept = [item for item in original if _identity(item, key) not in deleted]
    merged = list(kept)
    places = _places(merged, key)
    wanted = [item for item in patch if not _is_deletion(item)]
    for item in wanted:
        place = places.setdefault(_identity(item, key), len(merged))
        if place < len(merged):
            merged[place] = _merge_map(merged[place], item, shape.items)
        else:
            merged.append(_merge_map({}, item, shape.items))
    return _ordered(merged, wanted, kept, key)


def _merge_in_order(
    original: Document, change: Any, field: str, order: list[Any], shape: ListShape
) -> None:
    """Merge a list of `original` in place, with the order of `$setElementOrder`.

    The directive lists the complete order that the client wants; items that only the server has
    keep their position relative to the listed ones.
    """
    before = original.get(field)
    if not isinstance(before, list | None) or not isinstance(change, list | None):
        raise BadRequest(f"$setElementOrder/{field} needs lists")
    if before is None and change is None:
        return
    _check_order(change or [], order, shape.merge_key)
    merged = _merge_value(before, change, shape) if change is not None else before
    if merged and (shape.merge_key or not isinstance(merged[0], dict)):
        merged = _ordered(merged, order, before or [], shape.merge_key)
    original[field] = merged


def _ordered(items: list[Any], order: list[Any], server: list[Any], key: str) -> list[Any]:
    """Return `items` sorted by `order`, interleaved with the remaining ones in the server's order.

    Two items that are both in `server` keep the server's order if one of them is not listed.
    """
    wanted_places, server_places = _places(order, key), _places(server, key)

    def wanted_at(item: Any) -> int:
        return wanted_places.get(_identity(item, key), -1)

    def server_at(item: Any) -> int:
        return server_places.get(_identity(item, key), -1)

    named = deque(sorted((i for i in items if wanted_at(i) >= 0), key=wanted_at))
    rest = deque(sorted((i for i in items if wanted_at(i) < 0), key=server_at))
    woven: list[Any] = []
    while named and rest:
        rest_first = 0 <= server_at(rest[0]) < server_at(named[0])
        woven.append((rest if rest_first else named).popleft())
    return [*woven, *named, *rest]


def _places(items: list[Any], key: str) -> dict[Hashable, int]:
    """Return an index of each item's first position: linear searches are slow in long lists."""
    places: dict[Hashable, int] = {}
    for place, item in enumerate(items):
        places.setdefault(_identity(item, key), place)
    return places


def _identity(item: Any, key: str) -> Hashable:
    """Return the value that identifies an item: its merge key, or the whole item without one."""
    if key:
        if not isinstance(item, dict):
            return id(item), "is like no other"
        item = item.get(key)
    return _encode_sorted(item) if isinstance(item, dict | list) else item


def _check_items(original: list[Any], patch: list[Any], shape: ListShape) -> None:
    if not shape.merge_key:
        return
    for item in (*original, *patch):
        if not isinstance(item, dict):
            raise BadRequest(f"cannot merge {json_type(item)} into a list of {shape.items.go_name}")
    for item in patch:
        if item.get(_PATCH) != "replace" and shape.merge_key not in item:
            raise BadRequest(
                f"map: {shortened(str(item))} does not contain declared merge key: "
                f"{shape.merge_key}"
            )


def _check_order(change: list[Any], order: list[Any], key: str) -> None:
    places = _places(order, key)
    kept = [item for item in change if not _is_deletion(item)]
    positions = [places.get(_identity(item, key), -1) for item in kept]
    if -1 in positions or positions != sorted(positions):
        raise BadRequest(
            f"The order in patch list:\n{_excerpt(change)}\n doesn't match {_excerpt(order)}"
        )


def _excerpt(items: list[Any]) -> str:
    """Return the first items of a list as text."""
    text = str(items[:_MAX_SHOWN_ITEMS])
    return text if len(items) <= _MAX_SHOWN_ITEMS else f"{text[:-1]}, ... {len(items)} items]"


def _retain_keys(original: Document, patch: Document) -> None:
    """Remove fields that `$retainKeys` does not list, in place: a union switches to another member.

    Raises BadRequest if the directive is malformed or does not list a field of the patch.
    """
    retained = patch[_RETAIN_KEYS]
    named = {name for name, value in patch.items() if value is not None and name[:1] != "$"}
    if not isinstance(retained, list) or not named <= set(filter(_is_text, retained)):
        raise BadRequest("invalid patch format of retainKeys")
    for name in original.keys() - set(filter(_is_text, retained)):
        del original[name]


def _list_of(value: Any, directive: str) -> list[Any]:
    """Return the list of a directive. Raises BadRequest for another type."""
    if not isinstance(value, list):
        raise BadRequest(f"invalid patch format of {directive.strip('$/')}: expected a list")
    return value


def _without_directives(value: Any) -> Any:
    """Return the value of a patch without directives and nulls, to be set where nothing exists."""
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_marker(item)]
    if isinstance(value, dict):
        return {
            name: _without_directives(item)
            for name, item in value.items()
            if item is not None and not _is_directive(name) and not _is_deletion(item)
        }
    return value


def _is_directive(name: str) -> bool:
    return name[:1] == "$" and (
        name in (_PATCH, _RETAIN_KEYS) or name.startswith((_DELETE_FROM, _SET_ORDER))
    )


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_PATCH) == "delete"


def _is_marker(item: Any) -> bool:
    """Return whether a list item is only a directive: a deletion, or `$patch: replace` alone."""
    return _is_deletion(item) or (isinstance(item, dict) and item == {_PATCH: "replace"})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _without_duplicates(items: list[Any]) -> list[Any]:
    return [items[place] for place in _places(items, "").values()]


def _merges_items(shape: Shape) -> bool:
    """Return whether lists of this shape are merged rather than replaced."""
    return isinstance(shape, ListShape) and "merge" in shape.strategies
