"""Warnings about CustomResourceDefinition schema fields that have no effect.

Pure functions with upstream's messages.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from onejob.api.crd.formats import is_known
from onejob.api.crd.structural import LIST_TYPE, children, junctors
from onejob.api.strategy import Document


def schema_warnings(new: Document, old: Document | None = None) -> list[str]:
    """Return the warnings that `old` does not have."""
    if old is not None and new.get("spec") == old.get("spec"):
        return []
    before = set(_warnings(old)) if old is not None else set()
    return [text for text in dict.fromkeys(_warnings(new)) if text not in before]


def _warnings(doc: Document) -> Iterator[str]:
    """Yield warnings about the schemas of a definition."""
    schemas = [
        (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for version in (doc.get("spec") or {}).get("versions") or ()
    ]
    nodes = [node for schema in schemas for node in _nodes(schema)]
    for node in nodes:
        if node.get("format") and not is_known(node["format"], node.get("type") or ""):
            yield f'unrecognized format "{node["format"]}"'
    for kind in sorted({_kind_of_set_items(node) for node in nodes} & {"array", "object"}):
        yield (
            f'{LIST_TYPE}: set for items of type "{kind}" is not supported by server-side apply or '
            "CEL validation rules"
        )


def _kind_of_set_items(node: Mapping[str, Any]) -> str:
    items = node.get("items")
    if node.get(LIST_TYPE) != "set" or not isinstance(items, Mapping):
        return ""
    return items.get("type") or ""


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas inside it."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [below for _, below in (*children(node, ""), *junctors(node, ""))]
