"""Protobuf bodies and samples of all messages."""

from typing import Any

from onejob.api.schema.shapes import (
    BooleanShape,
    BytesShape,
    IntegerShape,
    IntOrStringShape,
    ListShape,
    MapShape,
    MicroTimeShape,
    ObjectShape,
    QuantityShape,
    Shape,
    StringShape,
    TimeShape,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(data)) + data
    return encoded


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + message((1, message((1, api_version), (2, kind))), (2, raw))


def sample(shape: Shape, zero: bool) -> Any:
    """A value with every field there is: all empty, or all set to something."""
    match shape:
        case ObjectShape():
            return {name: sample(inner, zero) for name, inner in shape.fields.items()}
        case ListShape():
            return [sample(shape.items, zero)]
        case MapShape():
            return {"k": sample(shape.values, zero)}
        case MicroTimeShape():
            return "2026-11-15T10:00:00.500000Z"
        case TimeShape():
            return "2026-11-15T10:00:00Z"
        case BooleanShape():
            return not zero
        case IntegerShape() | IntOrStringShape():
            return 0 if zero else 7
        case QuantityShape():
            return "0" if zero else "7"
        case BytesShape():
            return "" if zero else "YWI="
        case StringShape():
            return "" if zero else "s"
        case _:
            return {}
