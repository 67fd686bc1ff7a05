"""Field numbers of the Kubernetes protobuf messages that clients send and receive.

The table, `protobuf_fields.txt`, is parsed on first use. It has one message per block: its name,
then its fields in the order of their numbers, starting at 1. `-` is an unused number; `name*` a
field that is a pointer in Go, so that an explicit zero counts; `&message` a message whose fields
are inlined in JSON. Types are not repeated: the JSON field's shape in the schema determines its
wire format.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from onejob.api.schema.shapes import EitherShape, ObjectShape

_TABLE: Final = Path(__file__).with_name("protobuf_fields.txt")

#: Prefix of every object on the wire.
MAGIC: Final = b"k8s\x00"


class Field(msgspec.Struct, frozen=True):
    """Field of a protobuf message. Either `name` or `inline` is set."""

    name: str = ""
    #: A pointer in Go: if it is present it is set, even to zero.
    pointer: bool = False
    #: Name of the message whose fields are inlined in JSON.
    inline: str = ""


@lru_cache(maxsize=1)
def field_table() -> dict[str, dict[int, Field]]:
    """Return the fields of every message by number."""
    table: dict[str, dict[int, Field]] = {}
    fields: dict[int, Field] = {}
    for line in _TABLE.read_text().splitlines():
        if not line.startswith(" "):
            fields = table[line] = {}
            number = 0
            continue
        for token in line.split():
            number += 1
            if token.startswith("&"):
                fields[number] = Field(inline=token[1:])
            elif token != "-":
                fields[number] = Field(token.rstrip("*"), token.endswith("*"))
    return table


_PACKAGES: Final = re.compile(
    r"io\.k8s\.(api|apimachinery\.pkg\.apis|apiextensions-apiserver\.pkg\.apis)\."
)


def message_name(shape: ObjectShape | EitherShape) -> str:
    """Return the name of a type in the table: its package and struct, as in `batch.v1.Job`."""
    package = _PACKAGES.match(shape.name)
    return shape.name[package.end() :] if package else shape.name


def alternative_numbers(shape: EitherShape) -> tuple[int, int]:
    """Return the field numbers of a union in Go, such as JSONSchemaPropsOrBool: of its schema, and
    of its other member."""
    numbers = {field.name == "schema": n for n, field in field_table()[message_name(shape)].items()}
    return numbers[True], numbers[False]
