"""Defaulting by structural schema, and the size that defaults add."""

from typing import Any

import msgspec

from onejob.api.crd.structural import Node
from onejob.api.documents import deep_copy

#: Punctuation around a member: two quotes, a colon and a comma.
_MEMBER_BYTES = 4


def apply_defaults(value: Any, node: Node) -> None:
    """Fill in missing members with their defaults, in place.

    Check `added_bytes` first: a few bytes of a list may expand to megabytes of defaults.
    """
    if not node.has_defaults:
        return
    if isinstance(value, dict):
        for name, default in node.defaults:
            if name not in value:
                value[name] = deep_copy(default)
        for name, member in value.items():
            if isinstance(member, (dict, list)):
                below = node.property(name) or node.values
                if below is not None:
                    apply_defaults(member, below)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            if isinstance(item, (dict, list)):
                apply_defaults(item, node.items)


def added_bytes(value: Any, node: Node) -> int:
    """Return the number of JSON bytes that `apply_defaults` would add, without adding them."""
    if not node.has_defaults:
        return 0
    added = 0
    if isinstance(value, dict):
        for name, _ in node.defaults:
            if name not in value:
                added += default_bytes(node, name)
        for name, member in value.items():
            if isinstance(member, (dict, list)):
                below = node.property(name) or node.values
                if below is not None:
                    added += added_bytes(member, below)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            if isinstance(item, (dict, list)):
                added += added_bytes(item, node.items)
    return added


def default_bytes(node: Node, name: str) -> int:
    """Return the size of the member `name` with its default in bytes, including nested defaults."""
    known = node.default_bytes.get(name)
    if known is None:
        below = node.property(name)
        assert below is not None, "only properties have defaults"
        default = below.raw["default"]
        known = len(name.encode()) + _MEMBER_BYTES + len(msgspec.json.encode(default))
        known = node.default_bytes[name] = known + added_bytes(default, below)
    return known


def most_added_to_an_object(node: Node) -> int:
    """Return the maximum number of bytes that defaults add to any one object of a document."""
    if not node.has_defaults:
        return 0
    here = sum(default_bytes(node, name) for name, _ in node.defaults)
    return max(here, max((most_added_to_an_object(below) for below in node.below()), default=0))
