"""Patches that expressions of mutating policies return, applied to objects. Pure."""

from typing import Any

from onejob.api.documents import deep_copy
from onejob.api.schema.schema import Type
from onejob.api.schema.shapes import ListShape, MapShape, Mismatch, ObjectShape, Shape, field_shape
from onejob.api.strategy import Document
from onejob.api.writing.apply import merge_configuration
from onejob.api.writing.patching import FailedTest, json_patch
from onejob.cel.admission import misplaced_types, plain_json
from onejob.cel.errors import EvaluationError
from onejob.cel.values import ObjectValue
from onejob.wire.errors import ApiError, InternalError


class MutationFailed(Exception):
    """The patch cannot be applied; the policy's failurePolicy decides."""


def apply_configuration(document: Document, value: ObjectValue, type_: Type) -> Document:
    """Return the object merged with an apply configuration. Raises MutationFailed."""
    _require_places(value)
    given = plain_json(value)
    patch: Document = {"apiVersion": document["apiVersion"], "kind": document["kind"], **given}
    _require_schema(patch, type_)
    if atomic := _atomic_paths(patch, type_, ""):
        raise MutationFailed(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps "
            f"or structs: {', '.join(atomic)}"
        )
    try:
        return merge_configuration(document, patch, type_)
    except ApiError as error:
        raise MutationFailed(
            f"error applying patch: failed to convert patch object to typed object: {error.message}"
        ) from error


def apply_operations(
    document: Document, values: list[ObjectValue], type_: Type, *, strict: bool
) -> Document:
    """Return the object after a JSON patch.

    `strict` refuses unknown fields. Raises MutationFailed, or InternalError if the result is not
    of the type.
    """
    operations = [_operation(value) for value in values]
    try:
        patched = json_patch(document, operations)
    except FailedTest:
        # As upstream: a failed test skips the patch.
        return document
    except ApiError as error:
        raise MutationFailed(f"JSON Patch: {error.message}") from error
    problems: list[str] = []
    try:
        type_.check(deep_copy(patched), None, problems)
    except Mismatch as mismatch:
        raise _internal(mismatch.text) from mismatch
    if problems and strict:
        raise _internal(f"strict decoding error: {', '.join(problems)}")
    return patched


def _internal(text: str) -> InternalError:
    details = {"causes": [{"message": text}]}
    return InternalError(f"Internal error occurred: {text}", details=details)


def _operation(patch: ObjectValue) -> Document:
    fields = patch.fields
    operation = {"op": fields.get("op", ""), "path": fields.get("path", "")}
    if origin := fields.get("from"):
        operation["from"] = origin
    if "value" in fields:
        value = fields["value"]
        if isinstance(value, ObjectValue):
            _require_places(value)
        try:
            operation["value"] = plain_json(value)
        except EvaluationError as error:
            raise MutationFailed(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: "
                f"{error}"
            ) from error
    return operation


def _require_places(value: ObjectValue) -> None:
    if errors := misplaced_types(value):
        raise MutationFailed("type mismatch: " + "\n".join(errors))


def _require_schema(patch: Document, type_: Type) -> None:
    problems: list[str] = []
    try:
        type_.check(deep_copy(patch), None, problems)
    except Mismatch as mismatch:
        problems = [mismatch.text]
    else:
        problems = [
            f".{text.removeprefix('unknown field ').strip(chr(34))}: field not declared in schema"
            for text in problems
        ]
    if problems:
        errors = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        raise MutationFailed(
            f"error applying patch: failed to convert patch object to typed object: {errors}"
        )


def _atomic_paths(value: Any, shape: Shape, path: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, dict):
        if isinstance(shape, (ObjectShape, MapShape)) and shape.atomic:
            found.append(path)
        for name, inner in value.items():
            found += _atomic_paths(inner, field_shape(shape, name), f"{path}.{name}")
    elif isinstance(value, list) and isinstance(shape, ListShape):
        if shape.list_type == "atomic":
            found.append(path)
        for index, inner in enumerate(value):
            found += _atomic_paths(inner, shape.items, f"{path}[{index}]")
    return found
