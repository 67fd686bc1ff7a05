"""Semantic equality of documents."""

from typing import Any

from onejob.api.schema.shapes import ANYTHING, ListShape, QuantityShape, Shape, field_shape
from onejob.wire.quantity import InvalidQuantity, same_quantity


def semantically_equal(a: Any, b: Any, type_: Shape | None = None) -> bool:
    """Return whether two values are equivalent.

    A missing value, null, an empty list and an empty object are equivalent. With a type, quantities
    are compared by value; without, by their text, which is canonical in stored documents.
    """
    return _equal(a, b, type_ or ANYTHING)


def _equal(a: Any, b: Any, shape: Shape) -> bool:
    """Return whether two values have the same meaning; absent, null and empty values are equal."""
    if a == b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return _equal_objects(a, b, shape)
    if a.__class__ is list and b.__class__ is list:
        items = shape.items if isinstance(shape, ListShape) else ANYTHING
        return len(a) == len(b) and all(_equal(x, y, items) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return _is_nothing(a) and _is_nothing(b)
    return isinstance(shape, QuantityShape) and _equal_quantities(a, b)


def _equal_objects(a: dict[str, Any], b: dict[str, Any], shape: Shape) -> bool:
    return all(
        _equal(a.get(name), b.get(name), field_shape(shape, name)) for name in a.keys() | b.keys()
    )


def _is_nothing(value: Any) -> bool:
    return value is None or value == {} or value == []


def _equal_quantities(a: Any, b: Any) -> bool:
    """Return whether two quantities are the same amount; False if one is malformed."""
    try:
        return same_quantity(a, b)
    except InvalidQuantity:
        return False
