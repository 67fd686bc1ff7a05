"""String formatting: `'%d of %s'.format([...])`."""

import math
import re
from collections.abc import Callable
from typing import Any

from onejob.cel.errors import CostLimitExceeded, EvaluationError
from onejob.cel.library.conversions import format_double
from onejob.cel.library.times import format_duration, format_timestamp
from onejob.cel.values import Duration, Timestamp, TypeValue, UInt, type_name

_CLAUSE = re.compile(r"%(?:(%)|(?:\.(\d{1,3}))?([a-zA-Z]))")
_MAX_DIGITS = 100
#: Superscript digits, which upstream uses for powers of ten.
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_string(text: str, arguments: list[Any], longest: int) -> str:
    parts: list[str] = []
    length = at = used = 0
    while True:
        start = text.find("%", at)
        parts.append(text[at : start if start >= 0 else len(text)])
        if start < 0:
            break
        match = _CLAUSE.match(text, start)
        if match is None:
            raise EvaluationError("could not parse formatting clause: unexpected end of string")
        at = match.end()
        if match[1]:
            parts.append("%")
            continue
        if used >= len(arguments):
            raise EvaluationError(f"index {used} out of range")
        parts.append(_clause(match[3], match[2], arguments[used]))
        used += 1
        length += len(parts[-1])
        if length > longest:
            raise CostLimitExceeded
    return "".join(parts)


def _clause(verb: str, precision: str | None, value: Any) -> str:
    if precision is not None and int(precision) > _MAX_DIGITS:
        raise EvaluationError(f"could not parse formatting clause: precision {precision}")
    if verb in ("f", "e"):
        return _float(verb, 6 if precision is None else int(precision), value)
    formatter = _VERBS.get(verb)
    if formatter is None:
        raise EvaluationError(
            f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        )
    return formatter(value)


def _float(verb: str, precision: int, value: Any) -> str:
    if value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if type(value) not in (float, int, UInt):
        what = "fixed-point" if verb == "f" else "scientific"
        raise EvaluationError(
            f"error during formatting: {what} clause can only be used on doubles, "
            f"was given {type_name(value)}"
        )
    if not math.isfinite(value):
        return _plain(float(value))
    text = f"{value:.{precision}{verb}}"
    if verb == "f":
        return text
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}×10{exponent.removeprefix('+').translate(_RAISED)}"


def _decimal(value: Any) -> str:
    if type(value) in (int, UInt):
        return str(value)
    if type(value) is float and not math.isfinite(value):
        return _plain(value)
    raise EvaluationError(
        "error during formatting: decimal clause can only be used on integers, "
        f"was given {type_name(value)}"
    )


def _binary(value: Any) -> str:
    if type(value) in (int, UInt, bool):
        return f"{value:b}"
    raise EvaluationError(
        "error during formatting: only integers and bools can be formatted as binary, "
        f"was given {type_name(value)}"
    )


def _octal(value: Any) -> str:
    if type(value) in (int, UInt):
        return f"{value:o}"
    raise EvaluationError(
        "error during formatting: octal clause can only be used on integers, "
        f"was given {type_name(value)}"
    )


def _hexadecimal(value: Any) -> str:
    if type(value) in (int, UInt):
        return f"{value:x}"
    if type(value) is str:
        return value.encode(errors="surrogatepass").hex()
    if type(value) is bytes:
        return value.hex()
    raise EvaluationError(
        "error during formatting: only integers, byte buffers, and strings can be formatted as "
        f"hex, was given {type_name(value)}"
    )


def _plain(value: Any) -> str:
    """Format a value for %s."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case bytes():
            return value.decode(errors="replace")
        case float():
            if math.isfinite(value):
                return format_double(value)
            return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        case int():
            return str(int(value))
        case list():
            return f"[{', '.join(_inside(each) for each in value)}]"
        case dict():
            pairs = sorted((_inside(key), _inside(each)) for key, each in value.items())
            return f"{{{', '.join(f'{key}:{each}' for key, each in pairs)}}}"
        case Timestamp():
            return format_timestamp(value)
        case Duration():
            return format_duration(value)
        case TypeValue():
            return value.name
        case _:
            pass
    raise EvaluationError(
        "error during formatting: string clause can only be used on strings, bools, bytes, ints, "
        "doubles, maps, lists, types, durations, and timestamps, "
        f"was given {type_name(value)}"
    )


def _inside(value: Any) -> str:
    """Format an element of a list or map: strings and bytes in quotes."""
    text = _plain(value)
    if type(value) is str:
        return quoted(text)
    return f"b{quoted(text)}" if type(value) is bytes else text


_ESCAPED = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
    "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def quoted(text: str) -> str:
    return f'"{"".join(_ESCAPED.get(char, char) for char in text)}"'


_VERBS: dict[str, Callable[[Any], str]] = {
    "s": _plain,
    "d": _decimal,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda value: _hexadecimal(value).upper(),
}
