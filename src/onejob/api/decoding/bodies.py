"""Request body decoding: JSON, YAML or protobuf to plain values, reporting duplicate fields.

Any input is safe: the result is a value or an `ApiError`.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from onejob.api.schema.shapes import MAX_PROBLEMS, Path, json_type, render_path
from onejob.api.yielding import INLINE_BYTES
from onejob.wire.errors import BadRequest, RequestTooLarge, UnsupportedMediaType
from onejob.wire.field_errors import shortened

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
#: Maximum number of values in a document, at any depth. Python decodes that many without yielding,
#: and no real document comes close.
MAX_VALUES: Final = 100_000
#: Maximum depth: far beyond any real document, and small enough for every recursive function.
MAX_DEPTH: Final = 128


class Decoded(NamedTuple):
    """Decoded body.

    `document` is any JSON value; `problems` are messages for strict validation and warnings.
    """

    document: Any
    problems: list[str]


def weight(body: bytes, content_type: str) -> int:
    """Return the processing cost of a body in bytes.

    It exceeds the length of the body where a few bytes can expand to many: YAML aliases and copy
    operations of a JSON patch.
    """
    small = len(body) <= INLINE_BYTES
    if small and "yaml" in content_type and b"*" in body:
        return INLINE_BYTES + 1
    if small and "json-patch" in content_type and b"copy" in body:
        return INLINE_BYTES + 1
    return len(body)


def decode_body(body: bytes, content_type: str) -> Decoded:
    """Decode an object to be created or replaced.

    An absent content type means JSON. Raises BadRequest, RequestTooLarge or UnsupportedMediaType.
    """
    _check_size(body)
    media_type = content_type.partition(";")[0].strip().lower() or JSON
    match media_type:
        case "application/json":
            return decode_json(body)
        case "application/yaml":
            return decode_yaml(body)
        case "application/vnd.kubernetes.protobuf":
            # Imported lazily: few requests need its tables.
            from onejob.api.decoding.protobuf import decode_protobuf

            return Decoded(decode_protobuf(body), [])
        case _:
            raise UnsupportedMediaType(
                f"the body of the request was in an unknown format - accepted media types "
                f"include: {JSON}, {YAML}, {PROTOBUF}"
            )


#: Run of digits for which msgspec takes microseconds per digit. Found without a regular expression,
#: which would take longer than decoding on megabytes of text.
_LONG_NUMBER: Final = b"0" * 40
_DIGITS: Final = bytes(ord("0") if chr(code).isdecimal() else 0 for code in range(128)) + bytes(128)

#: `patch_type` of `Service.patch` by media type.
_PATCHES: Final = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


def decode_patch(body: bytes, content_type: str) -> tuple[str, Decoded]:
    """Return the patch type (json, merge, strategic, apply) and the decoded patch.

    Raises as `decode_body`, and BadRequest if the patch is not the list or object that its type
    requires.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    patch_type = _PATCHES.get(media_type)
    if patch_type is None:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(_PATCHES)
        )
    _check_size(body)
    decoded = decode_yaml(body) if patch_type == "apply" else decode_json(body)
    wanted, go_name = (
        (list, "jsonpatch.Patch") if patch_type == "json" else (dict, "map[string]interface {}")
    )
    if not isinstance(decoded.document, wanted):
        found = json_type(decoded.document)
        raise BadRequest(f"json: cannot unmarshal {found} into Go value of type {go_name}")
    return patch_type, decoded


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


def _check_size(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise RequestTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


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


def decode_yaml(body: bytes) -> Decoded:
    """Decode YAML.

    Input that looks like JSON, a subset of YAML, is tried with the faster decoder first.
    """
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return decode_json(body)
        except BadRequest:
            pass  # Flow-style YAML need not be JSON: {a: b}.
    from onejob.api.decoding.yaml_reading import read_yaml

    document, problems = read_yaml(body, MAX_DEPTH)
    return Decoded(document, problems)
