"""Definitions and schemas with their documentation, as OpenAPI documents show them."""

from collections.abc import Callable
from typing import Any, TypeAlias

#: How a document refers to a definition: the members that stand for the reference.
Referring: TypeAlias = Callable[[str], dict[str, Any]]


def described_definition(
    definition: dict[str, Any], texts: dict[str, str], refer: Referring
) -> dict[str, Any]:
    """A definition with its documentation, as a document of either version has it."""
    result = described(definition, refer, texts.get("", ""))
    if "properties" in definition:
        result["properties"] = {
            name: described(field, refer, texts.get(name, ""))
            for name, field in definition["properties"].items()
        }
    return result


def described(schema: dict[str, Any], refer: Referring, description: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {"description": description} if description else {}
    for key, value in schema.items():
        match key:
            case "$ref":
                result |= refer(value)
            case "items" | "additionalProperties":
                result[key] = described(value, refer)
            case "properties" | "x-onejob-alias-of":
                continue
            case _:
                result[key] = value
    return result
