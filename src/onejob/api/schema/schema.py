"""Schema of all served kinds, from data generated at build time (`build_schema.py`).

The data is loaded once, on first use; the shapes of a kind are built on first access.
"""

import gzip
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

import msgspec

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
    Mismatch,
    NumberShape,
    ObjectShape,
    QuantityShape,
    Shape,
    StringShape,
    TimeShape,
)
from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest

#: Result of `Schema.kind`: the shape of whole objects of one kind.
Type: TypeAlias = ObjectShape


class TypeMismatch(BadRequest):
    """A document whose types do not match its kind (400).

    `problem` is the message without the kind, for callers that respond differently (a patch with
    this result is a 422).
    """

    def __init__(self, type_: Type, problem: str) -> None:
        version = type_.api_version.rpartition("/")[2]
        super().__init__(
            f'{type_.kind} in version "{version}" cannot be handled as a {type_.kind}: {problem}'
        )
        self.problem = problem


def normalise(doc: Document, type_: Type) -> list[str]:
    """Convert `doc` to its stored form, in place.

    Nulls and unknown fields are dropped; quantities and times become canonical. Returns one message
    per unknown field, in document order. Raises TypeMismatch (400) for a value of the wrong type.
    """
    problems: list[str] = []
    try:
        type_.check(doc, None, problems)
    except Mismatch as mismatch:
        raise TypeMismatch(type_, mismatch.text) from None
    return problems


def all_problems(unknown: Sequence[str], duplicates: Sequence[str]) -> list[str]:
    """Return all problems to report about a body.

    The contents of unknown fields are not checked, so duplicates inside them are omitted.
    """
    ignored = tuple(text.removeprefix('unknown field "').removesuffix('"') for text in unknown)
    kept = [
        text
        for text in duplicates
        if not any(
            text.startswith(f'duplicate field "{path}{end}') for path in ignored for end in '."['
        )
    ]
    return [*unknown, *kept]


class _Property(msgspec.Struct, frozen=True):
    ref: str = msgspec.field(default="", name="$ref")
    type: str = ""
    format: str = ""
    items: "_Property | None" = None
    values: "_Property | None" = msgspec.field(default=None, name="additionalProperties")
    list_type: str = msgspec.field(default="", name="x-kubernetes-list-type")
    list_keys: tuple[str, ...] = msgspec.field(default=(), name="x-kubernetes-list-map-keys")
    map_type: str = msgspec.field(default="", name="x-kubernetes-map-type")
    patch_strategy: str = msgspec.field(default="", name="x-kubernetes-patch-strategy")
    merge_key: str = msgspec.field(default="", name="x-kubernetes-patch-merge-key")
    default: str | None = None
    alias_of: str = msgspec.field(default="", name="x-onejob-alias-of")


class _KindName(msgspec.Struct, frozen=True):
    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class _Definition(_Property, frozen=True):
    """Definition of a type."""

    properties: dict[str, _Property] = {}
    required: frozenset[str] = frozenset()
    kinds: tuple[_KindName, ...] = msgspec.field(default=(), name="x-kubernetes-group-version-kind")


class _KindNames(msgspec.Struct, frozen=True):
    """Partial definition: only the kinds that it defines."""

    kinds: tuple[_KindName, ...] = msgspec.field(default=(), name="x-kubernetes-group-version-kind")


class _Index(msgspec.Struct, frozen=True):
    types: dict[str, _KindNames]


class _Data(msgspec.Struct, frozen=True):
    release: str
    #: Decoded when a kind that refers to them is first used: most never are.
    types: dict[str, msgspec.Raw]


_DATA: Final = Path(__file__).parent.parent / "data" / "schema.json.gz"
_decode_definition = msgspec.json.Decoder(_Definition).decode


class Schema:
    """Shapes of all types, created on first use."""

    def __init__(self, data: _Data, index: _Index) -> None:
        #: Kubernetes release of the data: `v1.37.0`.
        self.release: Final = data.release
        #: OpenAPI v3 definitions of added kinds, by name.
        self.added: dict[str, dict[str, Any]] = {}
        self._definitions = data.types
        self._shapes: dict[str, Shape] = dict(_SPECIAL)
        self._complete: dict[str, ObjectShape] = {}
        self._lock = Lock()
        self._names = {
            (kind.api_version, kind.kind): name
            for name, definition in index.types.items()
            for kind in definition.kinds
        }

    def for_server(self) -> "Schema":
        """Return a schema to which kinds can be added.

        It shares the shapes of built-in kinds with this one.
        """
        own = copy(self)
        own.added = {}
        own._names = dict(self._names)
        own._complete = dict(self._complete)
        return own

    def add(self, api_version: str, kind: str, shape: Type, definition: dict[str, Any]) -> None:
        """Add or replace the shape of a kind; `definition` is its OpenAPI definition."""
        shape.api_version, shape.kind = api_version, kind
        self._names[api_version, kind] = shape.name
        self._complete[shape.name] = shape
        self.added = {**self.added, shape.name: definition}

    def drop(self, api_version: str, kind: str) -> None:
        """Remove an added kind. Built-in and unknown kinds are ignored."""
        name = self._names.get((api_version, kind), "")
        if name in self.added:
            del self._names[api_version, kind], self._complete[name]
            self.added = {key: value for key, value in self.added.items() if key != name}

    def kind(self, api_version: str, kind: str) -> Type:
        """Return the shape of a kind. Raises KeyError if it is not served."""
        # Go clients send DeleteOptions under the group of the object to delete.
        name = self._names["v1" if kind == "DeleteOptions" else api_version, kind]
        shape = self._complete.get(name)
        if shape is None:
            # One thread at a time: incomplete shapes must not be visible.
            with self._lock:
                found = self._reference(name)
                assert isinstance(found, ObjectShape), f"{api_version} {kind} is no object"
                shape = self._complete[name] = found
        return shape

    def knows(self, api_version: str, kind: str) -> bool:
        """Return whether the schema has the kind."""
        return ("v1" if kind == "DeleteOptions" else api_version, kind) in self._names

    def normalise(self, doc: Document, type_: Type) -> list[str]:
        """Bring a document into canonical form, in place; return the problems."""
        return normalise(doc, type_)

    def _reference(self, name: str) -> Shape:
        """Return the shape of a named type, from a cache; types may contain themselves."""
        known = self._shapes.get(name)
        if known is not None:
            return known
        if name in _OR_SCHEMA:
            either = self._shapes[name] = EitherShape(name, _OR_SCHEMA[name])
            schema = self._reference(_EXTENSIONS + "JSONSchemaProps")
            either.define(schema, self._instead_of_schema(name, schema))
            return either
        definition = _decode_definition(self._definitions[name])
        shape = ObjectShape(name)
        self._shapes[name] = shape
        shape.atomic = definition.map_type == "atomic"
        shape.required = definition.required
        if definition.kinds:
            shape.api_version = definition.kinds[0].api_version
            shape.kind = definition.kinds[0].kind
        shape.define(
            {field: self._shape(prop) for field, prop in definition.properties.items()},
            {
                field: prop.alias_of
                for field, prop in definition.properties.items()
                if prop.alias_of
            },
        )
        return shape

    def _instead_of_schema(self, name: str, schema: Shape) -> Shape:
        if _OR_SCHEMA[name] is bool:
            return _BOOLEAN
        return ListShape(_STRING if name.endswith("StringArray") else schema)

    def _shape(self, prop: _Property) -> Shape:
        """Return the shape of a property."""
        if prop.ref:
            return self._reference(prop.ref)
        match prop.type, prop.format:
            case "string", "byte":
                return _BYTES
            case "string", _:
                return StringShape(prop.default) if prop.default else _STRING
            case "boolean", _:
                return _BOOLEAN
            case "integer", "int32":
                return _INT32
            case "integer", _:
                return _INT64
            case "number", _:
                return _NUMBER
            case "array", _:
                assert prop.items is not None, "a list without items in the schema"
                return ListShape(
                    self._shape(prop.items),
                    list_type=prop.list_type or "atomic",
                    keys=prop.list_keys,
                    strategies=frozenset(filter(None, prop.patch_strategy.split(","))),
                    merge_key=prop.merge_key,
                )
            case "object", _ if prop.values is not None:
                return MapShape(self._shape(prop.values), atomic=prop.map_type == "atomic")
            case _:
                return ANYTHING


@lru_cache(maxsize=1)
def load_schema() -> Schema:
    """Return the built-in schema, loaded on first use."""
    with gzip.open(_DATA) as file:
        # The documentation follows and is three times as long; it is not even decompressed.
        shapes = file.readline()
    return Schema(msgspec.json.decode(shapes, type=_Data), msgspec.json.decode(shapes, type=_Index))


def load_definitions() -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Return the raw definitions and their documentation, both by name.

    The documentation of a type itself is under "". Decoded on every call: only OpenAPI needs them,
    and caches its results.
    """
    with gzip.open(_DATA) as file:
        shapes, documentation = file
    return msgspec.json.decode(shapes)["types"], msgspec.json.decode(documentation)


_STRING: Final = StringShape()
_BOOLEAN: Final = BooleanShape()
_INT32: Final = IntegerShape(32)
_INT64: Final = IntegerShape(64)
_NUMBER: Final = NumberShape()
_BYTES: Final = BytesShape()

_MACHINERY: Final = "io.k8s.apimachinery.pkg."
_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
#: Alternatives to a schema in a CustomResourceDefinition, by definition name.
_OR_SCHEMA: Final = {
    _EXTENSIONS + "JSONSchemaPropsOrArray": list,
    _EXTENSIONS + "JSONSchemaPropsOrBool": bool,
    _EXTENSIONS + "JSONSchemaPropsOrStringArray": list,
}
_SPECIAL: Final[dict[str, Shape]] = {
    _EXTENSIONS + "JSON": JsonShape(),
    _MACHINERY + "api.resource.Quantity": QuantityShape(),
    _MACHINERY + "apis.meta.v1.FieldsV1": ANYTHING,
    _MACHINERY + "apis.meta.v1.MicroTime": MicroTimeShape(),
    _MACHINERY + "apis.meta.v1.Time": TimeShape(),
    _MACHINERY + "runtime.RawExtension": ANYTHING,
    _MACHINERY + "util.intstr.IntOrString": IntOrStringShape(),
}
