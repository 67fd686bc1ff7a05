"""Files of environment variables, in the kubelet's subset of shell syntax. Pure."""

from typing import Final

_BLANK: Final = " \t"


class InvalidEnvFile(ValueError):
    """The file does not follow the syntax."""


def find_variable(text: str, key: str) -> str:
    """Return the value of the first assignment to `key`; "" if there is none.

    Values are enclosed in single quotes and may have several lines; everything in them is literal.
    Only the lines up to that assignment are checked, as in the kubelet. Raises InvalidEnvFile.
    """
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        line = line.removesuffix("\r").lstrip(_BLANK)
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name or name != name.rstrip(_BLANK):
            raise InvalidEnvFile(f"line {number} is not of the form NAME='value'")
        if not value.startswith(("'", " ", "\t")):
            raise InvalidEnvFile(f"the value in line {number} is not in single quotes")
        if not value.startswith("'"):
            # As in a shell, a blank ends the assignment.
            if name == key:
                return ""
            continue
        content, closed, rest = value[1:].partition("'")
        while not closed:
            _, more = next(lines, (0, None))
            if more is None:
                raise InvalidEnvFile(f"the quote in line {number} is not closed")
            piece, closed, rest = more.removesuffix("\r").partition("'")
            content += f"\n{piece}"
        if rest.lstrip(_BLANK) and not rest.lstrip(_BLANK).startswith("#"):
            raise InvalidEnvFile(f"text follows the value that begins in line {number}")
        if name == key:
            return content
    return ""
