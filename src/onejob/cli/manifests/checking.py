"""Manifest validation before anything is started.

Schema errors first (unknown fields, wrong types), reported in the terms of a YAML file; then the
validation errors that the API server itself would return.
"""

from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime
from random import Random
from typing import Any

from onejob.api.kinds import strategy_for
from onejob.api.schema.schema import load_schema, normalise
from onejob.api.schema.shapes import (
    BooleanShape,
    IntegerShape,
    ListShape,
    MapShape,
    Mismatch,
    ObjectShape,
    Shape,
    StringShape,
    json_type,
)
from onejob.api.writing.metadata import prepare_created
from onejob.cli.manifests.loading import Manifest, Problem, placed
from onejob.gates import FeatureGates


def manifest_problems(
    manifest: Manifest, namespace: str, gates: FeatureGates, now: datetime
) -> list[Problem]:
    """Return all validation errors; `namespace` is where the object would be created."""
    kind = manifest.kind
    misshapen = shape_problems(manifest)
    if misshapen:
        return misshapen
    shape = load_schema().kind(kind.api_version, kind.kind)
    document = deepcopy(manifest.document)
    normalise(document, shape)
    document.setdefault("metadata", {})
    prepare_created(kind, namespace, document, now, Random(0), dry_run=True)
    metadata = document["metadata"]
    if not metadata.get("name"):
        if not metadata.get("generateName"):
            return [manifest.problem("metadata.name", "required: specify a name")]
        metadata["name"] = metadata["generateName"] + "xxxxx"
    strategy = strategy_for(kind, gates)
    strategy.default(document)
    strategy.prepare_create(document)
    errors = strategy.validate_create(document)
    # Two labels generated from the same name yield the same error: report it once.
    return list(dict.fromkeys(manifest.problem(error.field, error.message) for error in errors))


def shape_problems(manifest: Manifest) -> list[Problem]:
    """Return unknown fields and wrongly typed values of a manifest of a built-in kind."""
    shape = load_schema().kind(manifest.kind.api_version, manifest.kind.kind)
    return [manifest.problem(*problem) for problem in _schema_errors(manifest.document, shape, "")]


def manifest_warnings(manifest: Manifest, gates: FeatureGates) -> list[str]:
    """Return the API server's warnings on creation. The manifest must be valid."""
    strategy = strategy_for(manifest.kind, gates)
    document = deepcopy(manifest.document)
    strategy.default(document)
    return [
        placed(text, manifest.source, manifest.number)
        for text in strategy.warnings_on_create(document)
    ]


def _schema_errors(value: Any, shape: Shape, field: str) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each schema error of a value and of everything nested in it."""
    if value is None:
        return
    match shape:
        case ObjectShape():
            if not isinstance(value, dict):
                yield field, f"expected an object, found {_describe_value(value)}"
                return
            for name, item in value.items():
                place = f"{field}.{name}" if field else name
                if name in shape.fields:
                    yield from _schema_errors(item, shape.fields[name], place)
                else:
                    yield place, f"unknown field{_suggestion(name, shape)}"
        case ListShape():
            if not isinstance(value, list):
                yield field, f"expected a list, found {_describe_value(value)}"
                return
            for index, item in enumerate(value):
                yield from _schema_errors(item, shape.items, f"{field}[{index}]")
        case MapShape():
            if not isinstance(value, dict):
                yield field, f"expected a mapping, found {_describe_value(value)}"
                return
            for name, item in value.items():
                yield from _schema_errors(item, shape.values, f"{field}[{name}]")
        case _:
            yield from _type_errors(value, shape, field)


def _type_errors(value: Any, shape: Shape, field: str) -> Iterator[tuple[str, str]]:
    """Yield the field and message of a value with the wrong type."""
    try:
        shape.check(value, None, [])
    except Mismatch as mismatch:
        match shape:
            case StringShape():
                wanted = "text (put it in quotes)"
            case IntegerShape():
                wanted = "a whole number"
            case BooleanShape():
                wanted = "true or false"
            case _:
                yield field, mismatch.text
                return
        yield field, f"expected {wanted}, found {_describe_value(value)}"


def _suggestion(name: str, shape: ObjectShape) -> str:
    lowered = {field.lower(): field for field in shape.fields}
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), lowered, 1)
    return f", did you mean {lowered[close[0]]}?" if close else ""


def _describe_value(value: Any) -> str:
    """Return a value, or its type, for an error message."""
    match json_type(value):
        case "bool":
            return "true" if value else "false"
        case "string":
            return f'"{value}"' if len(value) <= 40 else "a long text"
        case "number":
            return f"the number {value}"
        case "array":
            return "a list"
        case _:
            return "an object"
