"""Validation of CRD schemas: field usage, structural rules, defaults, CEL rules and selectable
fields.

Pure functions that yield FieldErrors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from onejob.api.crd.columns import BadPath, parse_path
from onejob.api.crd.pruning import prune
from onejob.api.crd.structural import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    RULES,
    Node,
    children,
    junctors,
)
from onejob.api.crd.values import UNRELATED, Validator, within
from onejob.api.documents import deep_copy
from onejob.wire.field_errors import (
    OMITTED,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)

MAX_SELECTABLE_FIELDS: Final = 8
#: Maximum nesting; deeper schemas would overflow Python's stack in recursive functions.
MAX_DEPTH: Final = 64

_TYPES: Final = ["array", "boolean", "integer", "number", "object", "string"]
_INT_OR_STRING_ANY_OF: Final = [{"type": "integer"}, {"type": "string"}]
_UNSUPPORTED: Final = (
    "id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref",
)  # fmt: skip
_FORBIDDEN_IN_JUNCTORS: Final = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (PRESERVE, "must be false to be structural"),
    (EMBEDDED, "must be false to be structural"),
    (INT_OR_STRING, "must be false to be structural"),
    (LIST_KEYS, "must be empty to be structural"),
    (LIST_TYPE, "must be undefined to be structural"),
    (MAP_TYPE, "must be undefined to be structural"),
    (RULES, "must be empty to be structural"),
)
_ROOT_FIELDS: Final = (
    "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems",
    "uniqueItems", "multipleOf", "required", "items", "properties", "externalDocs", "example",
    PRESERVE, RULES,
)  # fmt: skip
_ROOT_FIELD_NAMES: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength "
    "MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties "
    "ExternalDocs Example XPreserveUnknownFields XValidations"
)
_META: Final = ("apiVersion", "kind", "metadata")

#: Place of a schema in the one that contains it; parts of messages depend on it.
_Level: TypeAlias = Literal["root", "item", "field"]


def check_schema(
    schema: Mapping[str, Any], path: str, *, has_status: bool, unchanged: bool
) -> Iterator[FieldError]:
    """Yield the errors of the schema of one version of a definition.

    `has_status` restricts the fields at the root, as the status subresource requires. `unchanged`:
    the stored definition has the same schema, so its CEL rules are not checked again.
    """
    if _depth(schema) > MAX_DEPTH:
        yield forbidden(path, f"schemas may not be nested deeper than {MAX_DEPTH} levels")
        return
    if has_status:
        if schema.get("type") not in (None, "", "object"):
            text = (
                'only "object" is allowed as the type at the root of the schema if the status '
                "subresource is enabled"
            )
            yield invalid(f"{path}.type", schema["type"], text)
        elif any(field not in _ROOT_FIELDS for field, value in schema.items() if value):
            text = (
                f"only [{_ROOT_FIELD_NAMES}] fields are allowed at the root of the schema if the "
                "status subresource is enabled"
            )
            yield invalid(path, OMITTED, text)
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    general = list(_field_errors(schema, path, _Position(root=True)))
    if _has_unsupported_field(schema):
        # As upstream: structural checks are skipped in this case.
        yield from general
        return
    structural = sorted(_structural_errors(schema, path, "root"), key=str)
    yield from structural
    defaults = [] if structural else list(_default_errors(schema, path))
    yield from defaults
    yield from general
    if not (structural or defaults or general or unchanged) and Node(schema).has_rules:
        from onejob.api.crd.rule_checks import check_defaults_by_rules, check_schema_rules

        rules = list(check_schema_rules(schema, path))
        yield from rules or check_defaults_by_rules(schema, path)


def _depth(schema: Any) -> int:
    """Return the nesting depth of a schema, at most MAX_DEPTH + 1; schemas inside junctors do not
    count.

    Not recursive, because the schema may be arbitrarily deep.
    """
    deepest = 0
    waiting = [(schema, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(node, Mapping) and depth <= MAX_DEPTH:
            waiting += [(below, depth + 1) for _, below in children(node, "")]
    return deepest


def _has_unsupported_field(schema: Mapping[str, Any]) -> bool:
    """Return whether the schema uses a field that structural schemas do not support."""
    if any(schema.get(field) for field in _UNSUPPORTED) or isinstance(schema.get("items"), list):
        return True
    below = (*children(schema, ""), *junctors(schema, ""))
    return any(_has_unsupported_field(node) for _, node in below)


# --- structural -----------------------------------------------------------------------------


def _structural_errors(schema: Mapping[str, Any], path: str, level: _Level) -> Iterator[FieldError]:
    """Yield violations of the rules for structural schemas, in this schema and all below it.

    `level` is the place of this schema in its parent.
    """
    kind = schema.get("type") or ""
    if kind == "array" and not isinstance(schema.get("items"), Mapping):
        yield required(f"{path}.items", "must be specified")
    for place, below in children(schema, path):
        yield from _structural_errors(below, place, "item" if place == f"{path}.items" else "field")
    if level == "root" and schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    yield from _int_or_string_errors(schema, path)
    yield from _junctor_and_pattern_errors(schema, path)
    yield from _type_errors(schema, kind, path, level)
    is_resource = level == "root" or bool(schema.get(EMBEDDED))
    properties = schema.get("properties") or {}
    for name in ("kind", "apiVersion"):
        if is_resource and name in properties and properties[name].get("type") != "string":
            given = properties[name].get("type") or ""
            yield invalid(f"{path}.properties[{name}].type", given, "must be string")
    if "metadata" in properties:
        place = f"{path}.properties[metadata]"
        yield from _metadata_errors(
            properties["metadata"], place, must_be_object=is_resource, is_root=level == "root"
        )
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not properties:
        yield required(
            f"{path}.properties",
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        )
    if level == "root":
        # As upstream: only checked at the root.
        for place, below in junctors(schema, path):
            yield from _undeclared_errors(below, schema, path, place)


def _type_errors(
    schema: Mapping[str, Any], kind: str, path: str, level: _Level
) -> Iterator[FieldError]:
    """Yield errors of `type` and of the fields of an embedded resource that depend on it."""
    place = f"{path}.type"
    if schema.get(EMBEDDED) and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield required(place, text) if not kind else invalid(place, kind, text)
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        where = {
            "root": "at the root",
            "item": "for specified array items",
            "field": "for specified object fields",
        }
        yield required(place, f"must not be empty {where[level]}")
    if schema.get(EMBEDDED) and schema.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", text)
    if level == "root" and kind not in ("", "object"):
        yield invalid(place, kind, "must be object at the root")


def _metadata_errors(
    schema: Mapping[str, Any], path: str, *, must_be_object: bool, is_root: bool
) -> Iterator[FieldError]:
    """Yield errors of the schema of a property `metadata`.

    `must_be_object`: its parent is a resource. `is_root`: its parent is the root, where only names
    may be restricted.
    """
    if must_be_object and schema.get("type") != "object":
        yield invalid(f"{path}.type", schema.get("type") or "", "must be object")
    if not is_root:
        return
    others = {
        field
        for field, value in schema.items()
        if field not in ("type", "properties", "default", "description") and value
    }
    names = set(schema.get("properties") or ()) - {"name", "generateName"}
    if others or names:
        yield forbidden(
            path,
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
        )


def _int_or_string_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield errors of extensions that x-kubernetes-int-or-string excludes."""
    if schema.get(INT_OR_STRING):
        for field in (PRESERVE, EMBEDDED):
            if schema.get(field):
                text = "must be false if x-kubernetes-int-or-string is true"
                yield invalid(f"{path}.{field}", True, text)


def _junctor_and_pattern_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield errors of the fields inside junctors (allOf, anyOf, oneOf, not), and of an invalid
    pattern."""
    for place, below in junctors(schema, path):
        if _is_int_or_string_any_of(schema, place, path):
            continue
        first = place == f"{path}.allOf[0]"
        plain = first and below.get("anyOf") == _INT_OR_STRING_ANY_OF
        yield from _errors_in_junctor(below, place, skip_any_of=plain)
    pattern = schema.get("pattern")
    if pattern:
        problem = _pattern_problem(pattern)
        if problem:
            text = f"must be a valid regular expression, but isn't: {problem}"
            yield invalid(f"{path}.pattern", pattern, text)


def _is_int_or_string_any_of(schema: Mapping[str, Any], place: str, path: str) -> bool:
    """Return whether the junctor at `place` is part of the anyOf that describes int-or-string."""
    return place.startswith(f"{path}.anyOf[") and schema["anyOf"] == _INT_OR_STRING_ANY_OF


def _pattern_problem(pattern: str) -> str:
    """Return the error message of an invalid regular expression; "" if it is valid."""
    from onejob.cel.errors import EvaluationError
    from onejob.cel.library.regex import compile_pattern

    try:
        compile_pattern(pattern)
    except EvaluationError as error:
        return str(error)
    return ""


def _errors_in_junctor(
    schema: Mapping[str, Any], path: str, *, skip_any_of: bool = False
) -> Iterator[FieldError]:
    """Yield errors for fields that are forbidden inside a junctor.

    There a schema may restrict values but not describe them. `skip_any_of` permits the types of an
    int-or-string.
    """
    for place, below in junctors(schema, path):
        if not (skip_any_of and place.startswith(f"{path}.anyOf[")):
            yield from _errors_in_junctor(below, place)
    for place, below in children(schema, path):
        if place != f"{path}.additionalProperties":
            yield from _errors_in_junctor(below, place)
    for field, text in _FORBIDDEN_IN_JUNCTORS:
        if schema.get(field) not in (None, "", False, [], ()):
            yield forbidden(f"{path}.{field}", text)
    if "metadata" in (schema.get("properties") or {}):
        text = "must not be specified in a nested position"
        yield forbidden(f"{path}.properties[metadata]", text)
    pattern = schema.get("pattern")
    if pattern and (problem := _pattern_problem(pattern)):
        text = f"must be a valid regular expression, but isn't: {problem}"
        yield invalid(f"{path}.pattern", pattern, text)


def _undeclared_errors(
    below: Mapping[str, Any], outer: Mapping[str, Any], outer_path: str, path: str
) -> Iterator[FieldError]:
    """Yield an error for each field that a schema inside a junctor restricts but the outer one does
    not define.

    `below`, at `path`, is the schema inside; `outer` is the schema of the same value outside.
    """
    known = outer.get("properties") or {}
    for name, inner in (below.get("properties") or {}).items():
        place = f"{outer_path}.properties[{name}]"
        if name in known:
            yield from _undeclared_errors(inner, known[name], place, path)
        elif not isinstance(outer.get("additionalProperties"), Mapping):
            yield required(place, f"because it is defined in {path}.properties[{name}]")
    if isinstance(below.get("items"), Mapping):
        if isinstance(outer.get("items"), Mapping):
            yield from _undeclared_errors(
                below["items"], outer["items"], f"{outer_path}.items", path
            )
        else:
            yield required(f"{outer_path}.items", f"because it is defined in {path}.items")
    for _, deeper in junctors(below, path):
        yield from _undeclared_errors(deeper, outer, outer_path, path)


# --- defaults -------------------------------------------------------------------------------


def _default_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield errors of defaults that contain unknown fields or that the schema itself rejects."""
    default = schema.get("default")
    if default is not None:
        node = Node(schema)
        place = f"{path}.default"
        problems: list[str] = []
        prune(deep_copy(default), node, None, problems)
        if problems:
            yield invalid(place, default, "must not have unknown fields")
        errors: list[FieldError] = []
        Validator(node).check(default, UNRELATED, None, errors)
        yield from (within(error, place) for error in errors)
    for place, below in children(schema, path):
        yield from _default_errors(below, place)


# --- fields -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Position:
    """Position of a schema in the definition, as far as it restricts the schema's fields."""

    root: bool = False
    #: Reason why no default may be set; "" if one may.
    no_defaults: str = ""
    inside_meta: bool = False


def _field_errors(
    schema: Mapping[str, Any], path: str, position: _Position
) -> Iterator[FieldError]:
    """Yield errors of fields that are unsupported, misplaced or contradictory, in this schema and
    all below it.

    Unlike the structural errors, they are always reported.
    """
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        yield forbidden(f"{path}.type", text)
    if schema.get("default") is not None and position.no_defaults:
        yield forbidden(f"{path}.default", f"must not be set {position.no_defaults}")
    for field in _UNSUPPORTED:
        if schema.get(field):
            yield forbidden(f"{path}.{field}", f"{field} is not supported")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if position.inside_meta and schema.get(EMBEDDED):
        yield forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)
    additional = schema.get("additionalProperties")
    if schema.get("properties") and additional is not None and additional is not True:
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", text)
    if schema.get(PRESERVE) is False:
        yield invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")
    yield from _list_and_map_type_errors(schema, kind, path)
    for place, below in children(schema, path):
        yield from _field_errors(below, place, _position_of_child(position, schema, place, path))
    for place, below in junctors(schema, path):
        yield from _field_errors(below, place, replace(position, root=False))


def _position_of_child(
    position: _Position, schema: Mapping[str, Any], place: str, path: str
) -> _Position:
    """Return the position of the subschema at `place`, given that of its parent at `path`."""
    name = place.removeprefix(f"{path}.properties[").removesuffix("]")
    if place.startswith(f"{path}.properties[") and name in _META:
        if position.root:
            return _Position(no_defaults=f"in top-level {name}", inside_meta=True)
        if schema.get(EMBEDDED):
            return replace(position, inside_meta=True)
    return replace(position, root=False)


def _list_and_map_type_errors(
    schema: Mapping[str, Any], kind: str, path: str
) -> Iterator[FieldError]:
    """Yield errors of x-kubernetes-map-type, -list-type and -list-map-keys."""
    map_type, list_type = schema.get(MAP_TYPE), schema.get(LIST_TYPE)
    place = f"{path}.type"
    if map_type is not None and kind != "object":
        text = f"must be object if {MAP_TYPE} is specified"
        yield invalid(place, kind, text) if kind else required(place, text)
    if map_type not in (None, "atomic", "granular"):
        yield not_supported(f"{path}.{MAP_TYPE}", map_type, ["atomic", "granular"])
    if list_type is not None and kind != "array":
        text = f"must be array if {LIST_TYPE} is specified"
        yield invalid(place, kind, text) if kind else required(place, text)
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.{LIST_TYPE}", list_type, ["atomic", "set", "map"])
    keys = schema.get(LIST_KEYS) or []
    if keys and list_type != "map":
        text = f"must be map if {LIST_KEYS} is non-empty"
        place = f"{path}.{LIST_TYPE}"
        yield invalid(place, list_type, text) if list_type else required(place, text)
    items = schema.get("items")
    if list_type in ("set", "map") and isinstance(items, Mapping):
        yield from _list_item_errors(items, list_type, keys, f"{path}.items")
    if list_type == "map":
        yield from _list_key_errors(items, keys, path)


def _list_item_errors(
    items: Mapping[str, Any], list_type: str, keys: Sequence[str], path: str
) -> Iterator[FieldError]:
    """Yield errors of the items of a list of type `set` or `map`."""
    if items.get("nullable"):
        text = f"cannot be nullable when {LIST_TYPE} is {list_type}"
        yield forbidden(f"{path}.nullable", text)
    if list_type == "set":
        text = f"must be atomic as item of a list with {LIST_TYPE}=set"
        if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
            yield invalid(f"{path}.{LIST_TYPE}", items.get(LIST_TYPE), text)
        if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            yield invalid(f"{path}.{MAP_TYPE}", items.get(MAP_TYPE), text)
        return
    properties = items.get("properties") or {}
    for key in keys:
        if key not in properties:
            continue
        place = f"{path}.properties[{key}]"
        if key not in (items.get("required") or ()) and properties[key].get("default") is None:
            text = (
                f"this property is in {LIST_KEYS}, so it must have a default or be a required "
                "property"
            )
            yield required(f"{place}.default", text)
        if properties[key].get("nullable"):
            text = f"this property is in {LIST_KEYS}, so it cannot be nullable"
            yield forbidden(f"{place}.nullable", text)


def _list_key_errors(items: Any, keys: Sequence[str], path: str) -> Iterator[FieldError]:
    """Yield errors of x-kubernetes-list-map-keys of a list of type `map`."""
    place = f"{path}.{LIST_KEYS}"
    if not keys:
        yield required(place, f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        yield required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        text = f"must be object if parent array's {LIST_TYPE} is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", text)
        return
    properties = items.get("properties") or {}
    for key in keys:
        if key not in properties:
            yield invalid(place, list(keys), "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            yield invalid(f"{path}.items.properties[{key}].type", "object", text)
    if len(set(keys)) != len(keys):
        yield invalid(place, list(keys), "must not contain duplicate entries")


# --- selectable fields ----------------------------------------------------------------------


def check_selectable_fields(
    fields: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    """Yield errors of the paths in `selectableFields` of a version, given its schema."""
    seen: set[str] = set()
    for index, field in enumerate(fields):
        place, text = f"{path}[{index}].jsonPath", field.get("jsonPath", "")
        if not text:
            yield required(place)
            continue
        found = _schema_at(text, schema)
        if isinstance(found, str):
            yield invalid(place, text, f"is an invalid path: {found}")
            continue
        if text.startswith(".metadata"):
            yield invalid(place, text, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            yield invalid(
                place,
                text,
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed.",
            )
        if text in seen:
            yield duplicate(place, text)
        seen.add(text)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        yield too_many(path, len(seen), MAX_SELECTABLE_FIELDS)


def _schema_at(text: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """Return the schema at a path of field names, or an error message."""
    if not text.startswith("."):
        return f"expected [ or . but got: {re.split('[.[]', text)[0]}"
    try:
        parse_path(text)
    except BadPath:
        return "must be a path of field names"
    for name in text[1:].split("."):
        if "[" in name:
            return "array notation is not allowed"
        properties = schema.get("properties") or {}
        if name in properties:
            schema = properties[name]
        elif isinstance(schema.get("additionalProperties"), Mapping):
            schema = schema["additionalProperties"]
        else:
            return "does not refer to a valid field"
    return schema
