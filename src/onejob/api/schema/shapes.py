"""Shapes: type checks, canonical form and merge rules of values in documents.

A shape checks a decoded JSON value and returns its stored form; objects and lists are modified in
place. Wrong types raise `Mismatch`; unknown fields are removed and reported.
"""

import re
import sys
from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

from onejob.wire.field_errors import shortened
from onejob.wire.quantity import InvalidQuantity, canonical_quantity
from onejob.wire.timestamps import InvalidTime, canonical_micro_time, canonical_time

#: Path of a value, innermost segment last: ((None, "spec"), "containers").
Path: TypeAlias = "tuple[Path | None, str | int] | None"

#: Maximum number of reported problems; the same as upstream's.
MAX_PROBLEMS: Final = 100


class Mismatch(Exception):
    """A value of the wrong type. `text` is the message of Go's JSON decoder."""

    def __init__(self, found: str, wanted: str, problem: str = "") -> None:
        super().__init__(problem)
        self.found = found
        self.wanted = wanted
        self.problem = problem
        self.struct = ""
        self.fields: list[str] = []

    def add_parent(self, struct: str, field: str) -> None:
        """Add an enclosing object to the path. Called from the inside out."""
        self.struct = self.struct or struct
        self.fields.append(field)

    @property
    def text(self) -> str:
        if self.problem:
            return self.problem
        place = "Go value"
        if self.struct:
            place = f"Go struct field {self.struct}.{'.'.join(reversed(self.fields))}"
        return f"json: cannot unmarshal {self.found} into {place} of type {self.wanted}"


class Shape:
    """Shape of any value; keeps it unchanged."""

    #: Class of JSON values that need no further check; None if there is none.
    plain: ClassVar[type | None] = None
    #: Go's name of the type, for error messages.
    go_name: str = "interface {}"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        """Return the value in canonical form; add problems to `problems`."""
        return value

    def zero(self) -> Any:
        """Return the value that replaces a null inside a list or map."""
        return {}


class StringShape(Shape):
    plain = str
    go_name = "string"

    def __init__(self, default: str | None = None) -> None:
        #: For keys of list items only: upstream's value for an omitted key.
        self.default = default

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not str:
            raise Mismatch(json_type(value), "string")
        return value

    def zero(self) -> Any:
        return ""


class BooleanShape(Shape):
    plain = bool
    go_name = "bool"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not bool:
            raise Mismatch(json_type(value), "bool")
        return value

    def zero(self) -> Any:
        return False


class IntegerShape(Shape):
    def __init__(self, bits: int) -> None:
        self.go_name = f"int{bits}"
        self.limit = 2 ** (bits - 1)

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is int and -self.limit <= value < self.limit:
            return value
        if value.__class__ in (int, float):
            raise Mismatch(f"number {value}", self.go_name)
        raise Mismatch(json_type(value), self.go_name)

    def zero(self) -> Any:
        return 0


class NumberShape(Shape):
    go_name = "float64"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ not in (int, float):
            raise Mismatch(json_type(value), "float64")
        if abs(value) > sys.float_info.max:
            raise Mismatch(f"number {shortened(str(value))}", "float64")
        return value

    def zero(self) -> Any:
        return 0


class BytesShape(Shape):
    """Base64 text."""

    go_name = "[]uint8"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not str:
            raise Mismatch(json_type(value), "[]uint8")
        # Go ignores line breaks inside base64.
        text = value.replace("\n", "").replace("\r", "")
        if not _is_base64(text):
            position = _base64_error_position(text)
            raise Mismatch("", "", f"illegal base64 data at input byte {position}")
        return value

    def zero(self) -> Any:
        return ""


class TimeShape(Shape):
    go_name = "v1.Time"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not str:
            raise Mismatch(json_type(value), "string")
        try:
            text = self.canonical(value)
        except InvalidTime as error:
            raise Mismatch("", "", str(error)) from None
        # Go's zero time, which upstream writes as null: it means unset.
        return None if text.startswith("0001-01-01T00:00:00") else text

    def canonical(self, text: str) -> str:
        return canonical_time(text)


class MicroTimeShape(TimeShape):
    go_name = "v1.MicroTime"

    def canonical(self, text: str) -> str:
        return canonical_micro_time(text)


class QuantityShape(Shape):
    go_name = "resource.Quantity"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        try:
            if value.__class__ not in (str, int, float):
                # Upstream parses the JSON text itself, which is never a quantity in this case.
                value = "x"
            return canonical_quantity(value)
        except InvalidQuantity as error:
            raise Mismatch("", "", str(error)) from None

    def zero(self) -> Any:
        return "0"


class IntOrStringShape(Shape):
    go_name = "intstr.IntOrString"

    def __init__(self) -> None:
        self._number = IntegerShape(32)

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        return value if value.__class__ is str else self._number.check(value, path, problems)

    def zero(self) -> Any:
        return 0


ANYTHING: Final = Shape()


class ListShape(Shape):
    def __init__(
        self,
        items: Shape,
        *,
        list_type: str = "atomic",
        keys: tuple[str, ...] = (),
        strategies: frozenset[str] = frozenset(),
        merge_key: str = "",
    ) -> None:
        self.items = items
        #: Merge type in server-side apply: atomic, set or map; `keys` identify the items of a map.
        self.list_type = list_type
        self.keys = keys
        #: Strategic merge directives: `merge` or none, possibly with `retainKeys`.
        self.strategies = strategies
        self.merge_key = merge_key
        self.go_name = f"[]{items.go_name}"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not list:
            raise Mismatch(json_type(value), self.go_name)
        items = self.items
        plain = items.plain
        for index, item in enumerate(value):
            if item.__class__ is plain:
                continue
            if item is None:
                value[index] = items.zero()
                continue
            checked = items.check(item, (path, index), problems)
            if checked is not item:
                value[index] = checked
        return value

    def zero(self) -> Any:
        return []


class MapShape(Shape):
    def __init__(self, values: Shape, *, atomic: bool = False) -> None:
        self.values = values
        self.atomic = atomic
        self.go_name = f"map[string]{values.go_name}"

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not dict:
            raise Mismatch(json_type(value), self.go_name)
        values = self.values
        plain = values.plain
        for key, item in value.items():
            if item.__class__ is plain:
                continue
            if item is None:
                value[key] = values.zero()
                continue
            checked = values.check(item, (path, key), problems)
            if checked is not item:
                value[key] = checked
        return value


class ObjectShape(Shape):
    """Named type with known fields."""

    #: Whether clients have a Go type for it, which encodes some fields even if they are empty.
    go_written: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        package, _, struct = name.rpartition(".")
        #: Full name of the definition, as in OpenAPI.
        self.name = name
        self.struct = struct
        self.go_name = f"{package.rpartition('.')[2]}.{struct}"
        self.fields: Mapping[str, Shape] = {}
        #: Fields that Go encodes even if they are empty. Their presence is checked by validation,
        #: not here.
        self.required: frozenset[str] = frozenset()
        self.atomic = False
        self.api_version = ""
        self.kind = ""
        #: Canonical field names by alias.
        self.aliases: Mapping[str, str] = {}
        #: Fields that a strategic merge patch replaces as a whole.
        self.replaced: frozenset[str] = frozenset()
        #: For each field, the class of values that need no check, or else the shape that checks
        #: them.
        self._rules: dict[str, Any] = {}

    def define(self, fields: Mapping[str, Shape], aliases: Mapping[str, str]) -> None:
        """Set the fields. Separate from __init__ because types may be recursive."""
        self.fields = fields
        self.aliases = aliases
        self.replaced = frozenset(name for name, shape in fields.items() if _is_replaced(shape))
        self._rules = {name: shape.plain or shape for name, shape in fields.items()}

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not dict:
            raise Mismatch(json_type(value), self.go_name)
        rules = self._rules
        dropped: list[str] = []
        name = ""
        try:
            for name, item in value.items():
                rule = rules.get(name)
                if item.__class__ is rule:
                    continue
                if rule is None:
                    dropped.append(name)
                    if len(problems) < MAX_PROBLEMS:
                        problems.append(f'unknown field "{render_path((path, name))}"')
                elif item is None:
                    dropped.append(name)
                else:
                    checked = self.fields[name].check(item, (path, name), problems)
                    if checked is None or (not checked and self._omits(name, checked)):
                        dropped.append(name)
                    elif checked is not item:
                        value[name] = checked
        except Mismatch as mismatch:
            mismatch.add_parent(self.struct, name)
            raise
        for name in dropped:
            del value[name]
        for alias, target in self.aliases.items():
            if alias in value:
                item = value.pop(alias)
                value.setdefault(target, item)
        return value

    def _omits(self, name: str, value: Any) -> bool:
        """Return whether Go omits an empty list or map in this field."""
        return (
            self.go_written
            and value.__class__ in (list, dict)
            and name not in self.required
            and isinstance(self.fields[name], ListShape | MapShape)
        )


class EitherShape(Shape):
    """A JSON schema, or a value of another JSON type in its place."""

    def __init__(self, name: str, other: type) -> None:
        #: Full name of the definition, as in OpenAPI.
        self.name = name
        #: Class of the alternative values, and their shape.
        self.other = other
        self.alternative: Shape = ANYTHING
        self.schema: Shape = ANYTHING

    def define(self, schema: Shape, alternative: Shape) -> None:
        """Set the shapes. Separate from __init__ because schemas are recursive."""
        self.schema = schema
        self.alternative = alternative

    def shape_of(self, value: Any) -> Shape:
        """Return the shape that applies to a value."""
        return self.alternative if value.__class__ is self.other else self.schema

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        return self.shape_of(value).check(value, path, problems)


class JsonShape(Shape):
    """Any JSON value including null, kept unchanged: `apiextensions.v1.JSON`."""

    go_name = "v1.JSON"

    def zero(self) -> Any:
        return None


def _is_replaced(shape: Shape) -> bool:
    if isinstance(shape, ListShape):
        return "merge" not in shape.strategies
    return not isinstance(shape, ObjectShape | MapShape | EitherShape | JsonShape) and (
        type(shape) is not Shape
    )


def field_shape(shape: Shape, name: str) -> Shape:
    """Return the shape of one field of an object, or of the values of a map."""
    if isinstance(shape, ObjectShape):
        return shape.fields.get(name, ANYTHING)
    return shape.values if isinstance(shape, MapShape) else ANYTHING


def render_path(path: Path) -> str:
    """Return a path as text, `spec.containers[0].foo`, with long names shortened."""
    segments: list[str] = []
    while path is not None:
        path, segment = path
        segments.append(f"[{segment}]" if isinstance(segment, int) else f".{shortened(segment)}")
    return "".join(reversed(segments)).removeprefix(".")


def json_type(value: Any) -> str:
    """Return the name of a JSON value's type in Go's decoder."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"


_NO_BASE64_LETTER: Final = re.compile(r"[^A-Za-z0-9+/]", re.ASCII)


def _is_base64(text: str) -> bool:
    if len(text) % 4 or text.endswith("==="):
        # Python accepts misplaced padding.
        return False
    try:
        a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True


def _base64_error_position(text: str) -> int:
    """Return the byte offset at which Go's decoder fails."""
    stranger = _NO_BASE64_LETTER.search(text)
    if stranger is None:
        # The last group of four characters is incomplete.
        return max(len(text) - 1, 0) // 4 * 4
    position = letters = stranger.start()
    if text[position] != "=" or letters % 4 < 2:
        return position
    if letters % 4 == 2 and text[position + 1 : position + 2] != "=":
        return position if text[position + 1 :] else len(text)
    return position + 4 - letters % 4
