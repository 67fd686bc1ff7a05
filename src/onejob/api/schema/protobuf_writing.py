"""Protobuf wire format primitives. Every function returns one complete field."""

import struct


def varint(value: int) -> bytes:
    """Encode an integer; negative numbers as their 64-bit two's complement."""
    if value < 0:
        value += 1 << 64
    if value < 0x80:
        return value.to_bytes(1, "little")
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode text, raw bytes or a message, which share one wire type."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())
