"""Documentation in definitions and schemas of OpenAPI documents."""

from collections.abc import Callable
from typing import Any, TypeAlias

#: Function that returns the members with which a document refers to a definition.
Referring: TypeAlias = Callable[[str], dict[str, Any]]


def described_definition(
    definition: dict[str, Any], texts: dict[str, str], refer: Referring
) -> dict[str, Any]:
    """Return a definition with its documentation, for documents of either OpenAPI version."""
    result = described(definition, refer, texts.get("", ""))
    if "properties" in definition:
        result["properties"] = {
            name: described(field, refer, texts.get(name, ""))
            for name, field in definition["properties"].items()
        }
    return result


def described(schema: dict[str, Any], refer: Referring, description: str = "") -> dict[str, Any]:
    """Return the schema with references resolved by `refer`, without its properties."""
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
