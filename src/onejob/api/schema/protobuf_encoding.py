"""Kubernetes protobuf encoder: objects, lists and watch events.

Documents are stored as JSON and sent unchanged to every client that accepts JSON, even if it
prefers protobuf. This encoder serves the few clients that accept nothing else. Fields that exist
only in onejob are not part of Kubernetes' messages and are omitted.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from onejob.api.schema.protobuf_table import (
    MAGIC,
    alternative_numbers,
    field_table,
    message_name,
)
from onejob.api.schema.protobuf_writing import (
    bytes_field,
    double_field,
    number_field,
    text_field,
)
from onejob.api.schema.schema import load_schema
from onejob.api.schema.shapes import (
    BooleanShape,
    BytesShape,
    EitherShape,
    IntegerShape,
    IntOrStringShape,
    JsonShape,
    ListShape,
    MapShape,
    NumberShape,
    ObjectShape,
    QuantityShape,
    Shape,
    StringShape,
    TimeShape,
)
from onejob.api.strategy import Document
from onejob.wire.kinds import Kind

_STATUS_TYPE: Final = ("v1", "Status")


def has_message(kind: Kind) -> bool:
    schema = load_schema()
    return schema.knows(kind.api_version, kind.kind) and (
        message_name(schema.kind(kind.api_version, kind.kind)) in field_table()
    )


def encode_object(document: bytes) -> bytes:
    """Encode an object or a Status, given as JSON."""
    decoded: Document = msgspec.json.decode(document)
    return _envelope(decoded["apiVersion"], decoded["kind"], _raw(decoded))


def encode_list(kind: Kind, metadata: Mapping[str, Any], documents: Sequence[bytes]) -> bytes:
    """Encode a list of objects, given as JSON."""
    shape = load_schema().kind(*_STATUS_TYPE).fields["metadata"]
    assert isinstance(shape, ObjectShape)
    items = [bytes_field(2, _raw(msgspec.json.decode(document))) for document in documents]
    raw = bytes_field(1, _message(metadata, shape)) + b"".join(items)
    return _envelope(kind.api_version, kind.list_kind, raw)


def encode_event(event_type: str, document: bytes) -> bytes:
    """Encode a watch event: `WatchEvent` {1 type, 2 object {1 raw}}."""
    return text_field(1, event_type) + bytes_field(2, bytes_field(1, encode_object(document)))


def framed(event: bytes) -> bytes:
    """Return an event with its length prefix, as in HTTP streams."""
    return len(event).to_bytes(4, "big") + event


def _envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Encode `Unknown` {1 typeMeta {1 apiVersion, 2 kind}, 2 raw, 3 contentEncoding, 4
    contentType}."""
    type_meta = text_field(1, api_version) + text_field(2, kind)
    head = MAGIC + bytes_field(1, type_meta)
    return b"".join((head, bytes_field(2, raw), text_field(3, ""), text_field(4, "")))


def _raw(document: Document) -> bytes:
    """Return the encoded object, without the envelope of its type."""
    return _message(document, load_schema().kind(document["apiVersion"], document["kind"]))


def _message(document: Mapping[str, Any], shape: ObjectShape) -> bytes:
    """Return an encoded message."""
    return _fields(document, shape, message_name(shape))


def _fields(document: Mapping[str, Any], shape: ObjectShape, message: str) -> bytes:
    """Encode fields in the order of their numbers, as Go does."""
    numbers = _numbers(message)
    present = sorted({numbers[name] for name in document if name in numbers})
    written = []
    for number, name, inline in present:
        if inline:
            inner = _fields(document, shape, inline)
            if inner:
                written.append(bytes_field(number, inner))
            continue
        value = document[name]
        if value is not None and (field := shape.fields.get(name)) is not None:
            written.append(_field(number, value, field))
    return b"".join(written)


@lru_cache(maxsize=1024)
def _numbers(message: str) -> dict[str, tuple[int, str, str]]:
    """Return the position of each JSON name: the field number, and the name of the field or of the
    message inlined there."""
    numbers: dict[str, tuple[int, str, str]] = {}
    for number, field in field_table().get(message, {}).items():
        if field.inline:
            numbers |= dict.fromkeys(_numbers(field.inline), (number, "", field.inline))
        else:
            numbers[field.name] = (number, field.name, "")
    return numbers


def _field(number: int, value: Any, shape: Shape) -> bytes:
    """Return an encoded field, repeated for each item of a list or map."""
    match shape:
        case ListShape():
            return b"".join(_field(number, item, shape.items) for item in value)
        case MapShape():
            return b"".join(
                bytes_field(number, text_field(1, key) + _map_value(value[key], shape.values))
                for key in sorted(value)
            )
        case StringShape():
            return text_field(number, value)
        case BytesShape():
            return bytes_field(number, b64decode(value))
        case BooleanShape() | IntegerShape():
            return number_field(number, int(value))
        case TimeShape():
            return bytes_field(number, _time(value))
        case QuantityShape():
            return bytes_field(number, text_field(1, str(value)))
        case IntOrStringShape():
            return bytes_field(number, _int_or_string(value))
        case ObjectShape():
            return bytes_field(number, _message(value, shape))
        case NumberShape():
            return double_field(number, value)
        case EitherShape():
            return bytes_field(number, _encode_either(value, shape))
        case JsonShape() if value is None:
            return bytes_field(number, b"")
        case _:
            # FieldsV1, RawExtension and JSON contain JSON text.
            return bytes_field(number, bytes_field(1, msgspec.json.encode(value)))


def _encode_either(value: Any, shape: EitherShape) -> bytes:
    schema_number, other_number = alternative_numbers(shape)
    chosen = shape.shape_of(value)
    if chosen is not shape.schema:
        return _field(other_number, value, chosen)
    written = _field(schema_number, value, chosen)
    # Go sets `allows` even if there is a schema.
    return number_field(other_number, 1) + written if shape.other is bool else written


def _map_value(value: Any, shape: Shape) -> bytes:
    if isinstance(shape, ListShape):
        # Go wraps a list inside a map in a separate message.
        return bytes_field(2, _field(1, value, shape))
    return _field(2, value, shape)


def _time(text: str) -> bytes:
    """Return an encoded Time."""
    moment = datetime.fromisoformat(text)
    seconds = int(moment.timestamp() // 1)
    return number_field(1, seconds) + number_field(2, moment.microsecond * 1000)


def _int_or_string(value: int | str) -> bytes:
    """Encode an IntOrString: 1 type (0: number), 2 intVal, 3 strVal."""
    if isinstance(value, str):
        return number_field(1, 1) + number_field(2, 0) + text_field(3, value)
    return number_field(1, 0) + number_field(2, value) + text_field(3, "")
