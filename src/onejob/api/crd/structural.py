"""Structural schemas: lazily created nodes for traversing objects.

Nodes are created on first access: of a schema with tens of thousands of nodes, an object uses a few
dozen.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
RULES: Final = "x-kubernetes-validations"


class Node:
    """One node of a structural schema. `raw` is the node as written in the CRD."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.type: str = raw.get("type") or ""
        self.nullable = bool(raw.get("nullable"))
        self.int_or_string = bool(raw.get(INT_OR_STRING))
        self.preserves = bool(raw.get(PRESERVE))
        self.embedded = bool(raw.get(EMBEDDED))
        self.list_type: str = raw.get(LIST_TYPE) or "atomic"
        self.list_keys: tuple[str, ...] = tuple(raw.get(LIST_KEYS) or ())
        self.has_default = raw.get("default") is not None
        self.required: tuple[str, ...] = tuple(raw.get("required") or ())
        self._properties: Mapping[str, Any] = raw.get("properties") or {}
        self._made: dict[str, Node] = {}
        #: Sizes of defaults in bytes by property, filled by `defaulting.default_bytes`.
        self.default_bytes: dict[str, int] = {}

    @property
    def names(self) -> Mapping[str, Any]:
        """Return the properties as written in the CRD."""
        return self._properties

    def property(self, name: str) -> "Node | None":
        """Return the node of a declared property, created on first use; None if it is not
        declared."""
        made = self._made.get(name)
        if made is None and name in self._properties:
            made = self._made[name] = Node(self._properties[name])
        return made

    def properties(self) -> "Iterator[tuple[str, Node]]":
        """Yield the declared properties by name."""
        for name in self._properties:
            node = self.property(name)
            assert node is not None
            yield name, node

    @cached_property
    def values(self) -> "Node | None":
        """Return the schema of additionalProperties; None if there is none."""
        additional = self.raw.get("additionalProperties")
        return Node(additional) if isinstance(additional, Mapping) else None

    @cached_property
    def allows_all(self) -> bool:
        """Return whether additionalProperties is `true`; such fields are neither pruned nor
        validated."""
        return self.raw.get("additionalProperties") is True

    @cached_property
    def items(self) -> "Node | None":
        """Node of the items of a list; None if it has no schema."""
        items = self.raw.get("items")
        return Node(items) if isinstance(items, Mapping) else None

    @cached_property
    def defaults(self) -> "list[tuple[str, Any]]":
        """Return the properties that have a default."""
        return [
            (name, schema["default"])
            for name, schema in self._properties.items()
            if schema.get("default") is not None
        ]

    @cached_property
    def has_defaults(self) -> bool:
        """Return whether this node or any nested one has a default."""
        return self.any(lambda node: node.has_default)

    @cached_property
    def has_rules(self) -> bool:
        """Whether the schema or one inside it has CEL rules."""
        return self.any(lambda node: bool(node.raw.get(RULES)))

    def any(self, holds: Any) -> bool:
        """Return whether the predicate holds for this node or any descendant."""
        return holds(self) or any(below.any(holds) for below in self.below())

    def below(self) -> "Iterator[Node]":
        """Yield the child nodes."""
        for _, node in self.properties():
            yield node
        if self.values is not None:
            yield self.values
        if self.items is not None:
            yield self.items


def children(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and schema of each direct subschema, except junctors."""
    for name, below in (schema.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", below
    for field in ("additionalProperties", "items"):
        if isinstance(schema.get(field), Mapping):
            yield f"{path}.{field}", schema[field]


def junctors(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and schema of each direct subschema in allOf, anyOf, oneOf and not."""
    for field in ("anyOf", "allOf", "oneOf"):
        for index, below in enumerate(schema.get(field) or ()):
            yield f"{path}.{field}[{index}]", below
    if isinstance(schema.get("not"), Mapping):
        yield f"{path}.not", schema["not"]
