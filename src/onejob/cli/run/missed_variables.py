"""Detection of environment variables that a failed program lacked, from its output. Pure."""

import re
from collections.abc import Container, Iterable
from typing import Final

#: Messages of Python, Ruby and shells for a variable that is not set.
_MISSED: Final = re.compile(
    r"""KeyError:\s*['"](\w+)['"]|key\ not\ found:\s*"(\w+)"|"""
    r"""\b(\w+):\ (?:unbound\ variable|parameter\ (?:not\ set|null\ or\ not\ set))""",
    re.VERBOSE,
)


def missed_variable(lines: Iterable[str], unpassed: Container[str]) -> str:
    """Return the first variable of `unpassed` that the lines report as unset; "" if none."""
    for line in lines:
        for found in _MISSED.finditer(line):
            name = next(filter(None, found.groups()), "")
            if name in unpassed:
                return name
    return ""
