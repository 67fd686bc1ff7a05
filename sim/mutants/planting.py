"""How a mistake is put into the production code, and taken out again."""

import __future__

import inspect
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeAlias

Plant: TypeAlias = Callable[[ExitStack], None]


def replace(undo: ExitStack, target: Any, name: str, replacement: Any) -> None:
    """Raises AttributeError if there is no such thing any more."""
    original = getattr(target, name)
    setattr(target, name, replacement)
    undo.callback(setattr, target, name, original)


def edit(function: Callable[..., Any], *changes: tuple[str, str]) -> Plant:
    """Return a plant that replaces text in the source of a function or method, everywhere it is
    used: its code object is exchanged, so modules that imported it by name have the mistake, too.

    Planting raises AttributeError if the text is not there any more.
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
