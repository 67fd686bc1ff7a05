"""Variables of the caller that a program of a Pod misses, read from its last lines. Pure."""

import re
from collections.abc import Container, Iterable
from typing import Final

#: How Python, Ruby and shells report a variable that is not set.
_MISSED: Final = re.compile(
    r"""KeyError:\s*['"](\w+)['"]|key\ not\ found:\s*"(\w+)"|"""
    r"""\b(\w+):\ (?:unbound\ variable|parameter\ (?:not\ set|null\ or\ not\ set))""",
    re.VERBOSE,
)


def missed_variable(lines: Iterable[str], unpassed: Container[str]) -> str:
    """The variable that a program which wrote these lines misses, if it is one of `unpassed`."""
    for line in lines:
        for found in _MISSED.finditer(line):
            name = next(filter(None, found.groups()), "")
            if name in unpassed:
                return name
    return ""
