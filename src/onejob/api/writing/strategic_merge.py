"""Strategic merge patch: a merge patch that knows from the schema which lists merge, and by what.

Directives: `$patch` (replace, delete, merge), `$deleteFromPrimitiveList/<field>`,
`$setElementOrder/<field>`, `$retainKeys`. Pure: the result shares nothing with the arguments.
"""

from collections import deque
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from onejob.api.schema.shapes import ListShape, ObjectShape, Shape, field_shape, json_type
from onejob.api.strategy import Document
from onejob.api.writing.patching import copied
from onejob.wire.errors import BadRequest
from onejob.wire.field_errors import shortened

_encode_sorted: Final = msgspec.json.Encoder(order="deterministic").encode

_MOST_SHOWN: Final = 20

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_SET_ORDER: Final = "$setElementOrder/"


def strategic_merge(doc: Document, patch: Document, type_: ObjectShape) -> Document:
    """Raises BadRequest when the patch contradicts itself or the schema."""
    return _merge_map(copied(doc), copied(patch), type_)


def _merge_map(original: Document, patch: Document, shape: Shape) -> Document:
    match patch.pop(_PATCH, "merge"):
        case "replace":
            replacement: Document = _without_directives(patch)
            return replacement
        case "delete":
            return {}
        case "merge":
            pass
        case directive:
            raise BadRequest(f"unknown patch type: {directive}")
    _retain_keys(original, patch)
    removals = _take_directives(patch, _DELETE_FROM)
    for field, order in _take_directives(patch, _SET_ORDER).items():
        shape_of_list = field_shape(shape, field)
        if isinstance(shape_of_list, ListShape):
            _merge_in_order(original, patch, field, order, shape_of_list)
    for field, value in patch.items():
        if value is None:
            original.pop(field, None)
        elif not (field not in original and _is_deletion(value)):
            known = field_shape(shape, field)
            original[field] = _merge_value(original.get(field), value, known)
    # Last, so that a field both extended and shortened comes out the same in any key order.
    for field, unwanted in removals.items():
        if isinstance(original.get(field), list):
            gone = _places(unwanted, "")
            original[field] = [i for i in original[field] if _identity(i, "") not in gone]
    return original


def _merge_value(original: Any, patch: Any, shape: Shape) -> Any:
    if isinstance(patch, dict):
        # Also against nothing: the directives of a new object still mean what they say.
        return _merge_map(original if isinstance(original, dict) else {}, patch, shape)
    if isinstance(patch, list) and isinstance(original, list) and _merges(shape):
        assert isinstance(shape, ListShape)
        return _merge_list(original, patch, shape)
    return _without_directives(patch)


def _merge_list(original: list[Any], patch: list[Any], shape: ListShape) -> list[Any]:
    """Items that the patch names come in the patch's order; those it adds stand before the
    ones it does not know, as upstream places them."""
    _check_items(original, patch, shape)
    if not shape.merge_key:
        return _ordered(_unique(original + patch), patch, original, "")
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_without_directives(item) for item in patch if _PATCH not in item]
    key = shape.merge_key
    deleted = {_identity(item, key) for item in patch if _is_deletion(item)}
    kept = [item for item in original if _identity(item, key) not in deleted]
    merged = list(kept)
    places = _places(merged, key)
    wanted = [item for item in patch if not _is_deletion(item)]
    for item in wanted:
        change = copied(item)
        place = places.setdefault(_identity(item, key), len(merged))
        if place < len(merged):
            merged[place] = _merge_map(merged[place], change, shape.items)
        else:
            merged.append(_merge_map({}, change, shape.items))
    return _ordered(merged, wanted, kept, key)


def _merge_in_order(
    original: Document, patch: Document, field: str, order: list[Any], shape: ListShape
) -> None:
    """`$setElementOrder` names the whole order the client wants; items only the server knows
    keep their place relative to those named."""
    before = original.get(field)
    change = patch.pop(field, None)
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
    """`items` split into those named in `order` (in that order) and the rest (in the server's),
    woven so that two items the server knew both of stay in the server's order."""
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
    """Where each item stands first. Looked up, not searched for: lists may be long."""
    places: dict[Hashable, int] = {}
    for place, item in enumerate(items):
        places.setdefault(_identity(item, key), place)
    return places


def _identity(item: Any, key: str) -> Hashable:
    """What makes two items the same one: their merge key, or all they are if there is none."""
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
    text = str(items[:_MOST_SHOWN])
    return text if len(items) <= _MOST_SHOWN else f"{text[:-1]}, ... {len(items)} items]"


def _retain_keys(original: Document, patch: Document) -> None:
    """Fields of the original that are not listed go: how a union changes its member."""
    if _RETAIN_KEYS not in patch:
        return
    retained = patch.pop(_RETAIN_KEYS)
    named = {name for name, value in patch.items() if value is not None and name[:1] != "$"}
    if not isinstance(retained, list) or not named <= set(filter(_is_text, retained)):
        raise BadRequest("invalid patch format of retainKeys")
    for name in original.keys() - set(filter(_is_text, retained)):
        del original[name]


def _take_directives(patch: Document, prefix: str) -> dict[str, list[Any]]:
    taken: dict[str, list[Any]] = {}
    for name in [name for name in patch if name.startswith(prefix)]:
        value = patch.pop(name)
        if not isinstance(value, list):
            raise BadRequest(f"invalid patch format of {prefix.strip('$/')}: expected a list")
        taken[name.removeprefix(prefix)] = value
    return taken


def _without_directives(value: Any) -> Any:
    """What a patch puts where nothing was: no directives, no nulls."""
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
    return name in (_PATCH, _RETAIN_KEYS) or name.startswith((_DELETE_FROM, _SET_ORDER))


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_PATCH) == "delete"


def _is_marker(item: Any) -> bool:
    """An item of a list that only says what to do with the list."""
    return _is_deletion(item) or (isinstance(item, dict) and item == {_PATCH: "replace"})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _unique(items: list[Any]) -> list[Any]:
    return [items[place] for place in _places(items, "").values()]


def _merges(shape: Shape) -> bool:
    return isinstance(shape, ListShape) and "merge" in shape.strategies
