"""How a mistake is put into the production code, and taken out again."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeAlias

Plant: TypeAlias = Callable[[ExitStack], None]


def replace(undo: ExitStack, target: Any, name: str, replacement: Any) -> None:
    """Raises AttributeError if there is no such thing any more."""
    original = getattr(target, name)
    setattr(target, name, replacement)
    undo.callback(setattr, target, name, original)
