"""Pruning of unknown fields and of nulls that the schema forbids, before validation."""

from typing import Any, Final

from onejob.api.crd.structural import Node
from onejob.api.schema.shapes import MAX_PROBLEMS, Path, render_path

_META: Final = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, node: Node, path: Path, problems: list[str], *, root: bool = False) -> None:
    """Drop fields that the schema does not specify, in place, and report them in `problems`.

    Fields below x-kubernetes-preserve-unknown-fields are kept, unless a nested schema specifies
    them again.
    """
    if isinstance(value, list):
        if node.items is not None:
            for index, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    prune(item, node.items, (path, index), problems)
        return
    if not isinstance(value, dict) or node.int_or_string:
        return
    known = node.names
    meta = root or node.embedded
    dropped = []
    for name, member in value.items():
        if meta and name in _META:
            continue
        if name in known:
            if isinstance(member, (dict, list)):
                below = node.property(name)
                assert below is not None
                prune(member, below, (path, name), problems)
        elif node.values is not None:
            if isinstance(member, (dict, list)):
                prune(member, node.values, (path, name), problems)
        elif not node.preserves and not node.allows_all:
            dropped.append(name)
    for name in dropped:
        del value[name]
        if len(problems) < MAX_PROBLEMS:
            problems.append(f'unknown field "{render_path((path, name))}"')


def drop_nulls(value: Any, node: Node) -> None:
    """Drop null fields that are not nullable, in place; a default may replace them.

    Nulls in lists remain and are rejected by validation.
    """
    if isinstance(value, list):
        if node.items is not None:
            for item in value:
                drop_nulls(item, node.items)
    elif isinstance(value, dict):
        for name in list(value):
            below = node.property(name) or node.values
            if below is None:
                continue
            if value[name] is None:
                if not below.nullable:
                    del value[name]
            elif isinstance(value[name], (dict, list)):
                drop_nulls(value[name], below)
