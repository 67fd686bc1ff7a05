"""Defaults of a structural schema."""

from typing import Any

from onejob.api.custom.structural import Node
from onejob.api.sections import copied


def apply_defaults(value: Any, node: Node) -> None:
    """Fill in what is left out, in place."""
    if not node.has_defaults:
        return
    if isinstance(value, dict):
        for name, default in node.defaults:
            if name not in value:
                value[name] = copied(default)
        for name, member in value.items():
            if isinstance(member, (dict, list)):
                below = node.property(name) or node.values
                if below is not None:
                    apply_defaults(member, below)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            if isinstance(item, (dict, list)):
                apply_defaults(item, node.items)
