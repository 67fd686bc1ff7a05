"""Protobuf bodies, and samples of all messages."""

from typing import Any

from onejob.api.schema.shapes import (
    BooleanShape,
    BytesShape,
    EitherShape,
    IntegerShape,
    IntOrStringShape,
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


def sample(shape: Shape, zero: bool, around: tuple[Shape, ...] = ()) -> Any:
    """Return a value with every field of its shape, all empty or all set.

    A recursive shape is {}.
    """
    match shape:
        case ObjectShape() if shape in around:
            return {}
        case ObjectShape():
            inside = (*around, shape)
            return {name: sample(inner, zero, inside) for name, inner in shape.fields.items()}
        case EitherShape():
            return sample(shape.schema, zero, around)
        case ListShape():
            return [sample(shape.items, zero, around)]
        case MapShape():
            return {"k": sample(shape.values, zero, around)}
        case MicroTimeShape():
            return "2026-11-15T10:00:00.500000Z"
        case TimeShape():
            return "2026-11-15T10:00:00Z"
        case BooleanShape():
            return not zero
        case IntegerShape() | IntOrStringShape():
            return 0 if zero else 7
        case NumberShape():
            return 0 if zero else 7.5
        case QuantityShape():
            return "0" if zero else "7"
        case BytesShape():
            return "" if zero else "YWI="
        case StringShape():
            return "" if zero else "s"
        case _:
            return {}
