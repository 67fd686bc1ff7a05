"""Conversion of JSON to CEL values: times, durations, bytes, doubles, lists that are sets.

Most values are used unchanged. A type without conversion has no converter, so that a rule pays only
for the values that it uses. Conversion is idempotent.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeAlias

from onejob.cel.errors import EvaluationError
from onejob.cel.library.times import parse_date, parse_duration, parse_timestamp
from onejob.cel.types import Type
from onejob.cel.values import MapList, OptionalValue, SetList

Converter: TypeAlias = Callable[[Any], Any]

_DATE_BYTES = 12


def _double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _timestamp(value: Any) -> Any:
    return parse_timestamp(value) if type(value) is str else value


def _date(value: Any) -> Any:
    return parse_date(value) if type(value) is str else value


def _duration(value: Any) -> Any:
    return parse_duration(value) if type(value) is str else value


def _bytes(value: Any) -> Any:
    if type(value) is not str:
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError("illegal base64 data") from error


_SCALARS: dict[str, Converter] = {
    "double": _double,
    "duration": _duration,
    "bytes": _bytes,
}


def is_scalar(declared: Type) -> bool:
    return declared.kind in ("double", "timestamp", "duration", "bytes", "optional")


def converter(declared: Type) -> Converter | None:
    """Return the converter from JSON to this type; None if JSON values are used unchanged."""
    if declared.kind == "timestamp":
        return _date if declared.max_size == _DATE_BYTES else _timestamp
    if declared.kind in _SCALARS:
        return _SCALARS[declared.kind]
    match declared.kind:
        case "list":
            return _list_converter(declared)
        case "map":
            return _map_converter(declared)
        case "object":
            return _object_converter(declared)
        case "optional":
            return _optional_converter(declared)
        case _:
            return None


def _list_converter(declared: Type) -> Converter | None:
    element = converter(declared.parameters[0])
    if declared.list_type == "set":
        make: Callable[[Any], list[Any]] = SetList
    elif declared.list_type == "map":

        def make(values: Any) -> list[Any]:
            result = MapList(values)
            result.keys = declared.list_keys
            return result
    elif element is None:
        return None
    else:
        make = list

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return make(value if element is None else [element(each) for each in value])

    return convert


def _map_converter(declared: Type) -> Converter | None:
    element = converter(declared.parameters[1])
    if element is None:
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        return {key: element(each) for key, each in value.items()}

    return convert


def _object_converter(declared: Type) -> Converter | None:
    fields = [
        (field.property_name, found)
        for field in declared.fields.values()
        if (found := converter(field.type)) is not None
    ]
    if not fields:
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        changed = {name: found(value[name]) for name, found in fields if name in value}
        return {**value, **changed} if changed else value

    return convert


def _optional_converter(declared: Type) -> Converter | None:
    content = converter(declared.parameters[0])
    if content is None:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, OptionalValue) or not value.present:
            return value
        return OptionalValue(True, content(value.content))

    return convert
