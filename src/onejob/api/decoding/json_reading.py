"""JSON decoder with Kubernetes' rules: limits on values and depth, reports of duplicate fields."""

import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from onejob.api.schema.shapes import MAX_PROBLEMS, Path, render_path
from onejob.api.yielding import INLINE_BYTES
from onejob.wire.errors import BadRequest, RequestTooLarge
from onejob.wire.field_errors import shortened

#: Maximum number of values in a document, at any depth. Python decodes that many without yielding,
#: and no real document comes close.
MAX_VALUES: Final = 100_000
#: Maximum depth: far beyond any real document, and small enough for every recursive function.
MAX_DEPTH: Final = 128


#: Run of digits for which msgspec takes microseconds per digit. Found without a regular expression,
#: which would take longer than decoding on megabytes of text.
_LONG_NUMBER: Final = b"0" * 40
_DIGITS: Final = bytes(ord("0") if chr(code).isdecimal() else 0 for code in range(128)) + bytes(128)


class Decoded(NamedTuple):
    """Decoded body.

    `document` is any JSON value; `problems` are messages for strict validation and warnings.
    """

    document: Any
    problems: list[str]


def decode_json(body: bytes) -> Decoded:
    _check_values(body)
    document = _decode_compact(body)
    if document is not None:
        return Decoded(document, [])
    seen_twice = False

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen_twice
        collected = dict(pairs)
        if len(collected) != len(pairs):
            seen_twice = True
        return collected

    document = _load_json(body, collect)
    problems = _json_duplicates(body) if seen_twice else []
    return Decoded(document, problems)


def _decode_compact(body: bytes) -> Any:
    """Decode compact JSON without duplicate fields, or return None if the body is anything else.

    The fast path, as most clients send such bodies: if the encoded document is as long as the body,
    the body has no duplicates. Four times as fast as inspecting every pair.
    """
    if len(body) > INLINE_BYTES and _LONG_NUMBER in body.translate(_DIGITS):
        return None
    try:
        document = msgspec.json.decode(body)
        if len(msgspec.json.encode(document)) != len(body.rstrip()):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    _check_depth(document, body)
    return document


def _check_values(body: bytes) -> None:
    if has_more_values(body, MAX_VALUES):
        raise RequestTooLarge(
            f"Request entity too large: the document holds more than {MAX_VALUES} values"
        )


def has_more_values(body: bytes, most: int) -> bool:
    """Return whether a JSON document contains more than `most` values.

    Counted before decoding, because decoding too many takes long and fifty times their memory.
    """
    if _openings(body) <= most:
        # The count includes characters in strings, so the real number is not higher.
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value has at most two strings, its name and itself, each with two quotes.
    most_quotes = 4 * most
    return plain.count(b'"') > most_quotes or _openings(b"".join(plain.split(b'"')[::2])) > most


def _openings(text: bytes) -> int:
    """Return an upper bound of the number of values: each except the outermost follows one of these
    characters."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _load_json(body: bytes, collect: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    """Return the decoded body; `collect` makes each object from its fields. Raises BadRequest."""
    try:
        document = json.loads(
            # As in Go, invalid UTF-8 is replaced, including lone surrogates.
            body.decode("utf-8", "replace"),
            object_pairs_hook=collect,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise BadRequest(f"error decoding JSON: {error}") from None
    if b"\\u" in body:
        document = _without_surrogates(document)
    _check_depth(document, body)
    return document


def _finite(text: str) -> float:
    """Return the number.

    Raises ValueError if it exceeds a float, since infinity would be encoded as null.
    """
    number = float(text)
    if math.isinf(number):
        what = f"number {shortened(text)}"
        raise ValueError(f"json: cannot unmarshal {what} into Go value of type float64")
    return number


def _refuse_constant(name: str) -> Any:
    """Raise ValueError: NaN and Infinity are no JSON."""
    raise ValueError(f"invalid character '{name[0]}' looking for beginning of value")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as written, including duplicate fields."""


def _json_duplicates(body: bytes) -> list[str]:
    """Return one message per repeated field, in document order; at most `MAX_PROBLEMS`."""
    problems: dict[str, None] = {}

    def walk(value: Any, path: Path) -> None:
        if len(problems) >= MAX_PROBLEMS:
            return
        if isinstance(value, _Pairs):
            seen = set()
            for name, item in value:
                place = (path, name)
                if name in seen and len(problems) < MAX_PROBLEMS:
                    problems[f'duplicate field "{render_path(place)}"'] = None
                seen.add(name)
                walk(item, place)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, (path, index))

    walk(json.loads(body.decode("utf-8", "replace"), object_pairs_hook=_Pairs), None)
    return list(problems)


def _without_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which are legal in JSON but cannot be encoded as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(i) for key, i in value.items()}
    return value


def _check_depth(document: Any, body: bytes) -> None:
    # Only a body with that many brackets can be that deep.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and is_too_deep(document):
        raise _too_deep()


def is_too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _too_deep() -> BadRequest:
    return BadRequest("error decoding JSON: exceeded max depth")
