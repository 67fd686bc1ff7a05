"""Adapter from structural schemas to shapes: normalization, field ownership and merging."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from onejob.api.crd.pruning import drop_nulls, prune
from onejob.api.crd.structural import MAP_TYPE, Node
from onejob.api.documents import deep_copy
from onejob.api.schema.shapes import (
    ANYTHING,
    ListShape,
    MapShape,
    Mismatch,
    ObjectShape,
    Path,
    Shape,
    StringShape,
    json_type,
    render_path,
)
from onejob.wire.field_errors import invalid

_TYPE_META: Final = ("apiVersion", "kind", "metadata")


class CustomShape(ObjectShape):
    """Shape of a whole custom object.

    It checks only metadata, which is the same for all kinds; types are validated later, with their
    own paths and messages.
    """

    go_written = False

    def __init__(self, name: str, node: Node, type_fields: Mapping[str, Shape]) -> None:
        super().__init__(name)
        self.node = node
        self._meta = ObjectShape(name)
        self._meta.define(type_fields, {})
        self.fields = _Fields(node, type_fields)

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not dict:
            raise Mismatch(json_type(value), self.go_name)
        known = {name: value[name] for name in _TYPE_META if name in value}
        try:
            self._meta.check(known, path, problems)
        except Mismatch as mismatch:
            # Upstream decodes the metadata of custom resources separately.
            if mismatch.fields[-1:] == ["metadata"]:
                mismatch.fields.pop()
            raise
        value.update(known)
        for name in _TYPE_META:
            if name not in known:
                value.pop(name, None)
        drop_nulls(value, self.node)
        prune(value, self.node, path, problems, root=True)
        if self._has_embedded_objects:
            self._check_embedded(value, self.node, path)
        return value

    @cached_property
    def _has_embedded_objects(self) -> bool:
        """Whether the schema contains an embedded resource."""
        return self.node.any(lambda node: node.embedded)

    def _check_embedded(self, value: Any, node: Node, path: Path) -> None:
        """Check the metadata of embedded objects, which has the same types."""
        if isinstance(value, list) and node.items is not None:
            for index, item in enumerate(value):
                self._check_embedded(item, node.items, (path, index))
        elif isinstance(value, dict):
            if node.embedded and "metadata" in value:
                self._check_embedded_metadata(value["metadata"], (path, "metadata"))
            for name, member in value.items():
                below = node.property(name) or node.values
                if below is not None and isinstance(member, (dict, list)):
                    self._check_embedded(member, below, (path, name))

    def _check_embedded_metadata(self, metadata: Any, path: Path) -> None:
        try:
            self._meta.fields["metadata"].check(deep_copy(metadata), path, [])
        except Mismatch as mismatch:
            error = invalid(render_path(path), metadata, mismatch.text)
            raise Mismatch("", "", str(error)) from None


class _Fields(Mapping[str, Shape]):
    """Shapes of properties, created on first access."""

    def __init__(self, node: Node, made: Mapping[str, Shape] | None = None) -> None:
        self._node = node
        self._made: dict[str, Shape] = dict(made or {})
        self._fixed = frozenset(self._made)

    def __getitem__(self, name: str) -> Shape:
        shape = self._made.get(name)
        if shape is None:
            node = self._node.property(name)
            if node is not None:
                shape = shape_of(node)
            elif self._node.preserves:
                shape = DEDUCED
            else:
                raise KeyError(name)
            self._made[name] = shape
        return shape

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._node.names or self._node.preserves

    def __iter__(self) -> Iterator[str]:
        return iter((*self._fixed, *(name for name in self._node.names if name not in self._fixed)))

    def __len__(self) -> int:
        return len(self._fixed | self._node.names.keys())


def shape_of(node: Node) -> Shape:
    """Return the shape of values of a node."""
    atomic = node.raw.get(MAP_TYPE) == "atomic"
    match node.type:
        case "array" if node.items is not None:
            return ListShape(shape_of(node.items), list_type=node.list_type, keys=node.list_keys)
        case "object" if node.values is not None:
            return MapShape(shape_of(node.values), atomic=atomic)
        case "object":
            shape = ObjectShape("")
            shape.atomic = atomic
            shape.fields = _Fields(node)
            return shape
        case "string":
            default = node.raw.get("default")
            return StringShape(default) if isinstance(default, str) else ANYTHING
        case _:
            return DEDUCED if node.preserves else ANYTHING


class _Deduced(MapShape):
    """Shape of fields without a schema: objects are merged by field, lists are atomic."""

    def __init__(self) -> None:
        super().__init__(ANYTHING)
        self.values = self


DEDUCED: Final = _Deduced()
