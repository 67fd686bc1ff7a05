"""Type checks of validating policies against the schemas of the kinds that they are for. Pure.

Their warnings go into the policy's status and change nothing else: `object` is untyped when a
policy is evaluated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from onejob.admission_policies.definitions import ParamKind
from onejob.api.schema.added_kinds import OpenObjectShape
from onejob.api.schema.schema import Schema
from onejob.api.schema.shapes import (
    BooleanShape,
    BytesShape,
    IntegerShape,
    IntOrStringShape,
    ListShape,
    MapShape,
    NumberShape,
    ObjectShape,
    Shape,
    StringShape,
    TimeShape,
)
from onejob.api.strategy import Document
from onejob.cel.admission import Expressions
from onejob.cel.errors import CompileError
from onejob.cel.schema import declare, escape
from onejob.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Type,
    list_of,
    map_of,
)
from onejob.wire.registry import KindRegistry

#: Kinds that are checked for one rule.
_MAX_KINDS: Final = 10
_SCALARS: Final[tuple[tuple[type[Shape], Type], ...]] = (
    (StringShape, STRING),
    (BooleanShape, BOOL),
    (IntegerShape, INT),
    (NumberShape, DOUBLE),
    (BytesShape, BYTES),
    (TimeShape, TIMESTAMP),
    (IntOrStringShape, DYN),
)


class Warned(Struct, frozen=True):
    field: str
    text: str

    def document(self) -> Document:
        return {"fieldRef": self.field, "warning": self.text}


class _Checked(Struct, frozen=True):
    """A kind that a policy is for."""

    group: str
    version: str
    kind: str
    type: Type

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def check_types(spec: Mapping[str, Any], kinds: KindRegistry, schema: Schema) -> list[Warned]:
    """Return the warnings for the spec of a validating policy, in the order of its fields."""
    targets = _targets(spec, kinds, schema)
    params = _params(spec, schema)
    warnings: list[Warned] = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            source = validation.get(field)
            texts = [_check(source, spec, params, target) for target in targets] if source else []
            if any(texts):
                place = f"spec.validations[{index}].{field}"
                warnings.append(Warned(place, "\n".join(filter(None, texts))))
    return warnings


def _check(source: str, spec: Mapping[str, Any], params: Type, target: _Checked) -> str:
    expressions = Expressions(
        has_params=spec.get("paramKind") is not None, objects=target.type, params=params
    )
    for variable in spec.get("variables") or ():
        try:
            expressions.add_variable(variable["name"], variable["expression"], checking=True)
        except CompileError:
            # Reported where the variable is used.
            continue
    try:
        expressions.check(source)
    except CompileError as error:
        return f"{target}: {error}\n"
    return ""


def _targets(spec: Mapping[str, Any], kinds: KindRegistry, schema: Schema) -> Sequence[_Checked]:
    found: dict[tuple[str, str, str], _Checked] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for count, (group, version, name) in enumerate(_named_kinds(rule, kinds), 1):
            api_version = f"{group}/{version}" if group else version
            declared = _declared(schema, api_version, name)
            if declared is not None:
                found[group, version, name] = _Checked(group, version, name, declared)
            if count == _MAX_KINDS:
                return [found[place] for place in sorted(found)]
    return [found[place] for place in sorted(found)]


def _named_kinds(rule: Mapping[str, Any], kinds: KindRegistry) -> Iterator[tuple[str, str, str]]:
    """Yield group, version and kind of the resources that a rule names without wildcards."""
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    if any("*" in text for text in (*groups, *versions)):
        return
    plurals = [text for text in rule.get("resources") or () if "*" not in text and "/" not in text]
    for group in sorted(groups):
        for version in sorted(versions):
            for plural in sorted(plurals):
                kind = kinds.by_path.get((group, version, plural))
                if kind is not None:
                    yield group, version, kind.kind


def _params(spec: Mapping[str, Any], schema: Schema) -> Type:
    raw = spec.get("paramKind")
    if raw is None:
        return DYN
    wanted = ParamKind(raw.get("apiVersion", ""), raw.get("kind", ""))
    return _declared(schema, wanted.api_version, wanted.kind) or DYN


def _declared(schema: Schema, api_version: str, kind: str) -> Type | None:
    if not schema.knows(api_version, kind):
        return None
    shape = schema.kind(api_version, kind)
    if isinstance(shape, OpenObjectShape):
        return None
    published = schema.added.get(shape.name)
    if published is None:
        return _type_of(shape, frozenset())
    # The shapes of custom resources do not have the types of their fields.
    metadata = _type_of(shape.fields["metadata"], frozenset())
    return declare(published, resource_root=True, name=shape.name, metadata=metadata)


def _type_of(shape: Shape, visited: frozenset[str]) -> Type | None:
    """Return the type of a shape; None if expressions cannot use its values.

    `visited` are the names of the enclosing types: recursive ones have no fields.
    """
    for scalar, declared in _SCALARS:
        if isinstance(shape, scalar):
            return declared
    match shape:
        case ListShape():
            element = _type_of(shape.items, visited)
            return None if element is None else list_of(element)
        case MapShape():
            value = _type_of(shape.values, visited)
            return None if value is None else map_of(STRING, value)
        case ObjectShape():
            return _object_type(shape, visited)
        case _:
            return None


def _object_type(shape: ObjectShape, visited: frozenset[str]) -> Type:
    fields: dict[str, Field] = {}
    if shape.name not in visited:
        inside = visited | {shape.name}
        for name, inner in shape.fields.items():
            escaped, declared = escape(name), _type_of(inner, inside)
            if escaped is not None and declared is not None:
                fields[escaped] = Field(name, declared)
    return Type("object", name=shape.name or shape.kind, fields=fields)
