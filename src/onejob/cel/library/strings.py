"""CEL string functions; indexes count code points."""

import string
from typing import Any

from onejob.cel.errors import CostLimitExceeded, EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.library.formatting import format_string, quoted
from onejob.cel.values import no_overload

LIBRARY = Library()

#: Longer than any string that the cost limit allows to build.
MAX_STRING_LENGTH = 10_000_000
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
#: Unicode's white space; Python's strip removes some more control characters.
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


@LIBRARY.add("string..contains(string) -> bool", cost=Cost.PRODUCT)
def contains(text: str, part: str) -> bool:
    return part in text


@LIBRARY.add("string..startsWith(string) -> bool", cost=Cost.SECOND)
def starts_with(text: str, part: str) -> bool:
    return text.startswith(part)


@LIBRARY.add("string..endsWith(string) -> bool", cost=Cost.SECOND)
def ends_with(text: str, part: str) -> bool:
    return text.endswith(part)


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


@LIBRARY.add("string..charAt(int) -> string")
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


@LIBRARY.add(
    "string..indexOf(string) -> int", "string..indexOf(string, int) -> int", cost=Cost.TRAVERSE
)
def index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        if not start >= 0:
            raise _out_of_range(start)
        return start
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text.find(part, start)


@LIBRARY.add(
    "string..lastIndexOf(string) -> int",
    "string..lastIndexOf(string, int) -> int",
    cost=Cost.TRAVERSE,
)
def last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part) if part else len(text)
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text.rfind(part, 0, start + len(part)) if part else start


@LIBRARY.add("string..lowerAscii() -> string", cost=Cost.TRAVERSE)
def lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


@LIBRARY.add("string..upperAscii() -> string", cost=Cost.TRAVERSE)
def upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


@LIBRARY.add(
    "string..replace(string, string) -> string",
    "string..replace(string, string, int) -> string",
    cost=Cost.TRAVERSE_TWICE,
)
def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    times = text.count(old)
    if 0 <= limit < times:
        times = limit
    if len(text) + times * (len(new) - len(old)) > MAX_STRING_LENGTH:
        raise CostLimitExceeded
    return text.replace(old, new, times)


@LIBRARY.add(
    "string..split(string) -> list<string>",
    "string..split(string, int) -> list<string>",
    cost=Cost.TRAVERSE_TWICE,
)
def split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if 0 < limit < len(text):
        return [*text[: limit - 1], text[limit - 1 :]]
    return list(text)


@LIBRARY.add(
    "string..substring(int) -> string", "string..substring(int, int) -> string", cost=Cost.TRAVERSE
)
def substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = len(text)
    elif start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


@LIBRARY.add("string..trim() -> string", cost=Cost.TRAVERSE)
def trim(text: str) -> str:
    return text.strip(_SPACE)


@LIBRARY.add(
    "list<string>..join() -> string", "list<string>..join(string) -> string", cost=Cost.RESULT
)
def join(parts: list[Any], separator: str = "") -> str:
    if not all(type(part) is str for part in parts):
        raise no_overload()
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_STRING_LENGTH:
        raise CostLimitExceeded
    return separator.join(parts)


@LIBRARY.add("strings.quote(string) -> string", cost=Cost.TRAVERSE)
def quote(text: str) -> str:
    return quoted(text)


@LIBRARY.add("string..format(list<dyn>) -> string", cost=Cost.TRAVERSE)
def format_(text: str, arguments: list[Any]) -> str:
    return format_string(text, arguments, MAX_STRING_LENGTH)
