"""LRU cache for functions of short strings.

Clients choose the strings, so long ones are not cached: a thousand of a megabyte each must not stay
in memory.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_MAX_KEY_LENGTH = 512


def short_cache(
    entries: int, longest: int = _MAX_KEY_LENGTH
) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """Like `lru_cache`, for functions whose first argument is a string; longer strings are not
    cached."""

    def decorate(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
        cached = cast("Callable[Concatenate[str, P], T]", lru_cache(maxsize=entries)(function))

        @wraps(function)
        def look_up(text: str, /, *rest: P.args, **named: P.kwargs) -> T:
            if len(text) > longest:
                return function(text, *rest, **named)
            return cached(text, *rest, **named)

        return look_up

    return decorate
