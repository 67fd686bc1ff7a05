"""Static types of the checker, with size limits from the schema."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """Static type of an expression.

    `kind` is the name of a simple type, or list, map, optional, type, object, opaque or param.
    """

    kind: str
    parameters: tuple["Type", ...] = ()
    #: Name of an object type, an opaque type or a type parameter.
    name: str = ""
    #: Maximum size of a value by the schema; None if the schema sets none.
    max_size: int | None = None
    #: Minimum length of a value in bytes, written as JSON.
    min_bytes: int = 0
    fields: Mapping[str, "Field"] = field(default_factory=dict)
    #: x-kubernetes-list-type "set" or "map", which determines list equality.
    list_type: str = ""
    list_keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind in ("object", "opaque"):
            return self.name
        if self.kind == "param":
            return self.name.partition("#")[0]
        shown = _SHOWN.get(self.kind, self.kind)
        if not self.parameters:
            return shown
        return f"{shown}({', '.join(str(each) for each in self.parameters)})"


@dataclass(frozen=True, slots=True)
class Field:
    #: The property's own name, without CEL's escaping.
    property_name: str
    type: Type


class AnyFields(Mapping[str, Field]):
    """Fields of an object type without a schema: all names are allowed, with any values."""

    def __getitem__(self, name: str) -> Field:
        return Field(name, DYN)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_SHOWN = {
    "timestamp": "timestamp",
    "duration": "duration",
    "optional": "optional_type",
    "null": "null",
}

DYN = Type("dyn")
ERROR = Type("error")
NULL = Type("null")
BOOL = Type("bool", min_bytes=4)
INT = Type("int", min_bytes=1)
UINT = Type("uint", min_bytes=1)
DOUBLE = Type("double", min_bytes=1)
STRING = Type("string", min_bytes=2)
BYTES = Type("bytes", min_bytes=2)
TIMESTAMP = Type("timestamp", min_bytes=21)
DURATION = Type("duration", min_bytes=3)

SIMPLE: Mapping[str, Type] = {
    each.kind: each
    for each in (DYN, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
}


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional", (value,))


def type_of(value: Type) -> Type:
    return Type("type", (value,))


def opaque(name: str) -> Type:
    return Type("opaque", name=name)


def parameter(name: str) -> Type:
    return Type("param", name=name)


class Substitution:
    """Bindings of type parameters, inferred while arguments are matched."""

    def __init__(self, bound: dict[str, Type] | None = None) -> None:
        self._bound: dict[str, Type] = bound if bound is not None else {}

    def copy(self) -> "Substitution":
        return Substitution(dict(self._bound))

    def take(self, other: "Substitution") -> None:
        self._bound = other._bound

    def resolve(self, given: Type) -> Type:
        """Return the type with all bound parameters substituted."""
        if given.kind == "param":
            found = self._bound.get(given.name)
            return given if found is None else self.resolve(found)
        if not given.parameters:
            return given
        inner = tuple(self.resolve(each) for each in given.parameters)
        if all(new is old for new, old in zip(inner, given.parameters, strict=True)):
            return given
        return Type(
            given.kind,
            inner,
            given.name,
            given.max_size,
            given.min_bytes,
            given.fields,
            given.list_type,
            given.list_keys,
        )

    def assign(self, wanted: Type, given: Type) -> bool:
        """Return whether a value of type `given` is assignable to `wanted`.

        Binds type parameters.
        """
        wanted, given = self._shallow(wanted), self._shallow(given)
        if wanted is given:
            return True
        if wanted.kind == "param":
            return self._bind(wanted, given)
        if given.kind == "param":
            return self._bind(given, wanted)
        if "dyn" in (wanted.kind, given.kind) or "error" in (wanted.kind, given.kind):
            return True
        if wanted.kind != given.kind:
            # Null represents an absent object, time or optional value.
            nullable = ("object", "opaque", "timestamp", "duration", "optional")
            return (given.kind == "null" and wanted.kind in nullable) or (
                wanted.kind == "null" and given.kind in nullable
            )
        if wanted.kind in ("object", "opaque"):
            return wanted.name == given.name
        if wanted.kind == "type":
            return True
        return len(wanted.parameters) == len(given.parameters) and all(
            self.assign(left, right)
            for left, right in zip(wanted.parameters, given.parameters, strict=True)
        )

    def _shallow(self, given: Type) -> Type:
        while given.kind == "param" and given.name in self._bound:
            given = self._bound[given.name]
        return given

    def _bind(self, variable: Type, value: Type) -> bool:
        if self._occurs(variable.name, value):
            return False
        self._bound[variable.name] = value
        return True

    def _occurs(self, name: str, value: Type) -> bool:
        value = self._shallow(value)
        if value.kind == "param":
            return value.name == name
        return any(self._occurs(name, each) for each in value.parameters)
