"""Monkeypatching of production code with a mutant, and its removal."""

import __future__

import inspect
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeAlias

Plant: TypeAlias = Callable[[ExitStack], None]


def replace(undo: ExitStack, target: Any, name: str, replacement: Any) -> None:
    """Replace an attribute until `undo` is closed. Raises AttributeError if it does not exist."""
    original = getattr(target, name)
    setattr(target, name, replacement)
    undo.callback(setattr, target, name, original)


def edit(function: Callable[..., Any], *changes: tuple[str, str]) -> Plant:
    """Return a plant that replaces text in the source of a function or method.

    Its code object is exchanged, so that modules that imported the function by name have the bug,
    too. Planting raises AttributeError if the source does not contain the text.
    """

    def plant(undo: ExitStack) -> None:
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in changes:
            if old not in source:
                raise AttributeError(f"{function.__qualname__} has no {old!r} any more")
            source = source.replace(old, new)
        made: dict[str, Any] = {}
        flags = __future__.annotations.compiler_flag
        exec(compile(source, "<planted>", "exec", flags), function.__globals__, made)
        original = function.__code__
        function.__code__ = made[function.__name__].__code__
        undo.callback(setattr, function, "__code__", original)

    return plant
