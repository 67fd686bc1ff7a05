"""Kubernetes protobuf decoder for bodies of typed Go clients (`kubectl create job`, `auth can-i`).

A body is converted to the document that the client would have sent as JSON, so no other module
handles protobuf. `protobuf_encoding` is the encoder.
"""

import math
import struct
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from onejob.api.decoding.json_reading import MAX_DEPTH, MAX_VALUES, decode_json, is_too_deep
from onejob.api.schema.protobuf_table import (
    MAGIC,
    Field,
    alternative_numbers,
    field_table,
    message_name,
)
from onejob.api.schema.schema import load_schema
from onejob.api.schema.shapes import (
    ANYTHING,
    BooleanShape,
    BytesShape,
    EitherShape,
    IntegerShape,
    IntOrStringShape,
    JsonShape,
    ListShape,
    MapShape,
    MicroTimeShape,
    NumberShape,
    ObjectShape,
    QuantityShape,
    Shape,
    StringShape,
    TimeShape,
)
from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest, RequestTooLarge

#: Wire value: a varint or fixed number, or the bytes of text or of a message.
_Wire: TypeAlias = int | bytes

_TOO_DEEP: Final = "exceeded max depth"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Malformed(Exception):
    """The data is truncated or contains something that is not allowed."""


class _Skip(Exception):
    """The value is absent: an empty time is null."""


class _Budget(threading.local):
    """Remaining fields and levels of the body that a thread is decoding."""

    left = 0
    levels = 0


_budget: Final = _Budget()


def decode_protobuf(body: bytes) -> Document:
    """Decode a body.

    Raises BadRequest if it is malformed or its kind is not served, RequestTooLarge if it has more
    fields than a document may have.
    """
    _budget.left = 2 * MAX_VALUES
    _budget.levels = MAX_DEPTH
    if not body.startswith(MAGIC):
        raise BadRequest(
            f"provided data does not appear to be a protobuf message, expected prefix {list(MAGIC)}"
        )
    try:
        api_version, kind, raw = _envelope(body[len(MAGIC) :])
        if not load_schema().knows(api_version, kind):
            raise BadRequest(f'no kind "{kind}" is registered for version "{api_version}"')
        document: Document = {"apiVersion": api_version, "kind": kind}
        shape = load_schema().kind(api_version, kind)
        _read_message(raw, field_table()[message_name(shape)], shape, document)
    except (_Malformed, UnicodeDecodeError, OverflowError, KeyError) as error:
        raise BadRequest(f"error decoding protobuf: {error}") from None
    # Message levels differ from JSON levels: maps and embedded JSON add further ones.
    if is_too_deep(document):
        raise BadRequest(f"error decoding protobuf: {_TOO_DEEP}")
    return document


def _envelope(data: bytes) -> tuple[str, str, bytes]:
    """Return apiVersion, kind and raw object of an `Unknown`: 1 typeMeta {1 apiVersion, 2 kind}, 2
    raw."""
    outer = dict(_fields(data))
    inner = dict(_fields(_as_bytes(outer.get(1, b""))))
    api_version = _as_bytes(inner.get(1, b"")).decode()
    kind = _as_bytes(inner.get(2, b"")).decode()
    return api_version, kind, _as_bytes(outer.get(2, b""))


def _read_message(
    data: bytes, fields: "dict[int, Field]", shape: ObjectShape, into: Document
) -> None:
    """Decode a message into the document `into`; unknown fields are skipped."""
    for number, wire in _fields(data):
        known = fields.get(number)
        if known is None:
            continue
        if known.inline:
            _read_message(_as_bytes(wire), field_table()[known.inline], shape, into)
            continue
        field_shape = shape.fields.get(known.name)
        if field_shape is None:
            continue
        if isinstance(field_shape, ListShape):
            _append_packed(into.setdefault(known.name, []), wire, field_shape.items)
        elif isinstance(field_shape, MapShape):
            key, value = _map_entry(_as_bytes(wire), field_shape.values)
            into.setdefault(known.name, {})[key] = value
        else:
            _put(into, known, wire, field_shape, shape.required)


def _put(
    into: Document, known: "Field", wire: _Wire, shape: Shape, required: frozenset[str]
) -> None:
    """Store a field unless it is an empty non-pointer scalar.

    Go encodes empty scalars in protobuf but omits them in JSON.
    """
    try:
        value = _value(wire, shape)
    except _Skip:
        return
    if value is None:
        return
    counts = known.pointer or known.name in required
    if counts or isinstance(value, dict | list) or value not in ("", 0, False):
        into[known.name] = value


def _append_packed(items: list[Any], wire: _Wire, shape: Shape) -> None:
    """Append a wire value to a list, or each element of a packed list."""
    if isinstance(shape, IntegerShape) and isinstance(wire, bytes):
        # Packed encoding: several numbers in one field.
        position = 0
        while position < len(wire):
            _budget.left -= 1
            if _budget.left < 0:
                raise _too_many()
            number, position = _varint(wire, position)
            items.append(_to_signed(number))
    else:
        items.append(_value(wire, shape))


def _map_entry(data: bytes, shape: Shape) -> tuple[str, Any]:
    """Return key and value of a map entry."""
    entry = dict(_fields(data))
    key = _as_bytes(entry.get(1, b"")).decode()
    if isinstance(shape, ListShape):
        # Go wraps a list inside a map in a separate message.
        values: list[Any] = []
        for _, wire in _fields(_as_bytes(entry.get(2, b""))):
            _append_packed(values, wire, shape.items)
        return key, values
    value = _value(entry[2], shape) if 2 in entry else None
    return key, shape.zero() if value is None else value


def _value(wire: _Wire, shape: Shape) -> Any:
    """Return a value of the wire in JSON. Raises _Malformed, or _Skip for one that JSON omits."""
    match shape:
        case StringShape():
            return _as_bytes(wire).decode()
        case BytesShape():
            return b64encode(_as_bytes(wire)).decode()
        case BooleanShape():
            return _as_int(wire) != 0
        case IntegerShape():
            return _to_signed(_as_int(wire))
        case TimeShape():
            return _time(dict(_fields(_as_bytes(wire))), isinstance(shape, MicroTimeShape))
        case QuantityShape():
            return _text(dict(_fields(_as_bytes(wire))), 1)
        case IntOrStringShape():
            return _int_or_string(dict(_fields(_as_bytes(wire))))
        case ObjectShape():
            return _object(wire, shape)
        case NumberShape():
            return _double(_as_bytes(wire))
        case EitherShape():
            return _either(_as_bytes(wire), shape)
        case JsonShape():
            message = dict(_fields(_as_bytes(wire)))
            return _json(message) if message.get(1) else None
        case _ if shape is ANYTHING:
            return _json(dict(_fields(_as_bytes(wire))))
        case _:
            raise _Malformed(f"unexpected {shape.go_name}")


def _object(wire: _Wire, shape: ObjectShape) -> Document:
    """Decode a message.

    Raises _Malformed if it is nested too deeply, because each level copies the rest of the body.
    """
    if _budget.levels == 0:
        raise _Malformed(_TOO_DEEP)
    _budget.levels -= 1
    into: Document = {}
    message = field_table().get(message_name(shape), {})
    _read_message(_as_bytes(wire), message, shape, into)
    _budget.levels += 1
    return into


def _double(data: bytes) -> float:
    """Return a number; whole numbers as int, as in Go's JSON."""
    if len(data) != 8:
        raise _Malformed("text or a message where a double was expected")
    value: float = struct.unpack("<d", data)[0]
    if not math.isfinite(value):
        raise _Malformed(f"unsupported value: {value}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _either(data: bytes, shape: EitherShape) -> Any:
    """Return the value that MarshalJSON of Go's types would choose: a non-empty list, then the
    schema."""
    schema_number, other_number = alternative_numbers(shape)
    alternative = shape.alternative
    schema: Document | None = None
    items: list[Any] = []
    allows = False
    for number, wire in _fields(data):
        if number == schema_number:
            schema = _value(wire, shape.schema)
        elif number == other_number and isinstance(alternative, ListShape):
            items.append(_value(wire, alternative.items))
        elif number == other_number:
            allows = _value(wire, alternative)
    if items or schema is not None:
        return items or schema
    return allows if shape.other is bool else None


def _time(message: dict[int, _Wire], micro: bool) -> str:
    """Return a Time or MicroTime as text. Raises _Skip for an empty one."""
    if not message:
        raise _Skip
    seconds = _to_signed(_as_int(message.get(1, 0)))
    nanos = _to_signed(_as_int(message.get(2, 0)))
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds" if micro else "seconds")
    return f"{text}Z"


def _int_or_string(message: dict[int, _Wire]) -> int | str:
    """Decode an IntOrString: 1 type (0: number), 2 intVal, 3 strVal."""
    return _text(message, 3) if message.get(1) else _to_signed(_as_int(message.get(2, 0)))


def _json(message: dict[int, _Wire]) -> Any:
    """Decode the JSON text in a FieldsV1, RawExtension or JSON."""
    return decode_json(_as_bytes(message.get(1, b"{}"))).document


def _text(message: dict[int, _Wire], number: int) -> str:
    """Return a text field of a message, "" if it is absent."""
    return _as_bytes(message.get(number, b"")).decode()


def _fields(data: bytes) -> Iterator[tuple[int, _Wire]]:
    """Yield number and value of each field; charges the budget of the body."""
    position = 0
    while position < len(data):
        _budget.left -= 1
        if _budget.left < 0:
            raise _too_many()
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, position = _varint(data, position)
            case 5:
                size = 4
            case wire_type:
                raise _Malformed(f"wire type {wire_type} is not supported")
        if position + size > len(data):
            raise _Malformed("unexpected EOF")
        yield tag >> 3, data[position : position + size]
        position += size


def _too_many() -> RequestTooLarge:
    return RequestTooLarge(
        f"Request entity too large: the document holds more than {2 * MAX_VALUES} fields"
    )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it. Raises _Malformed."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _Malformed("unexpected EOF")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), position
    raise _Malformed("integer overflow")


def _to_signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _as_bytes(wire: _Wire) -> bytes:
    """Return a length-delimited value. Raises _Malformed for a number."""
    if isinstance(wire, int):
        raise _Malformed("a number where text or a message was expected")
    return wire


def _as_int(wire: _Wire) -> int:
    """Return a number. Raises _Malformed for other values."""
    if isinstance(wire, bytes):
        raise _Malformed("text or a message where a number was expected")
    return wire
