"""Request bodies to plain values: JSON, YAML or protobuf, with duplicate fields noted.

Whatever the bytes are, the outcome is a value or an `ApiError`.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from onejob.api.schema.shapes import MAX_PROBLEMS, Path, json_type, render_path
from onejob.api.turns import INLINE_BYTES
from onejob.wire.errors import BadRequest, RequestTooLarge, UnsupportedMediaType
from onejob.wire.field_errors import shortened

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
#: Values in a document, at any depth. Python reads that many without a break for others, and no
#: real document comes near.
MAX_VALUES: Final = 100_000
#: Far beyond any real document, and small enough for every recursive walk over one.
MAX_DEPTH: Final = 128


class Decoded(NamedTuple):
    """`document` is any JSON value; `problems` are texts for strict validation and warnings."""

    document: Any
    problems: list[str]


def weight(body: bytes, content_type: str) -> int:
    """How much work a body is, in bytes of it; more than all bytes are where a few can stand for
    many."""
    small = len(body) <= INLINE_BYTES
    if small and "yaml" in content_type and b"*" in body:
        return INLINE_BYTES + 1
    if small and "json-patch" in content_type and b"copy" in body:
        return INLINE_BYTES + 1
    return len(body)


def decode_body(body: bytes, content_type: str) -> Decoded:
    """An object sent to be created or to replace another. An absent content type means JSON.
    Raises BadRequest, RequestTooLarge or UnsupportedMediaType."""
    _check_size(body)
    media_type = content_type.partition(";")[0].strip().lower() or JSON
    match media_type:
        case "application/json":
            return decode_json(body)
        case "application/yaml":
            return decode_yaml(body)
        case "application/vnd.kubernetes.protobuf":
            # Few requests need the tables behind these.
            from onejob.api.input.protobuf import decode_protobuf

            return Decoded(decode_protobuf(body), [])
        case _:
            raise UnsupportedMediaType(
                f"the body of the request was in an unknown format - accepted media types "
                f"include: {JSON}, {YAML}, {PROTOBUF}"
            )


#: msgspec takes microseconds per digit of such a number. Not searched for with a regular
#: expression: over megabytes of text that takes longer than reading them.
_LONG_NUMBER: Final = b"0" * 40
_DIGITS: Final = bytes(ord("0") if chr(code).isdecimal() else 0 for code in range(128)) + bytes(128)

#: Media type -> `patch_type` of `Service.patch`.
_PATCHES: Final = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


def decode_patch(body: bytes, content_type: str) -> tuple[str, Decoded]:
    """The patch type (json, merge, strategic, apply) and the patch. Raises as `decode_body`,
    and BadRequest when the patch is not the list or the object that its type asks for."""
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
    """Most clients send compact JSON without duplicates, which is as long as what it holds: four
    times as fast to read, since then the pairs need no look. None when it is not that simple."""
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
    """Whether a JSON document holds more values than `most`. Counted before it is decoded: decoding
    too many takes long, and fifty times their memory."""
    if _openings(body) <= most:
        # Texts are counted in, so there are not more.
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value has two texts at most, its name and itself, each between two of these.
    most_quotes = 4 * most
    return plain.count(b'"') > most_quotes or _openings(b"".join(plain.split(b'"')[::2])) > most


def _openings(text: bytes) -> int:
    """Each value but the outermost stands behind one of these."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _load_json(body: bytes, collect: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    try:
        document = json.loads(
            # Go replaces what is not UTF-8; so do we, lone surrogates included.
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
    """What is too large for a float would become infinite, and null when it is written."""
    number = float(text)
    if math.isinf(number):
        what = f"number {shortened(text)}"
        raise ValueError(f"json: cannot unmarshal {what} into Go value of type float64")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"invalid character '{name[0]}' looking for beginning of value")


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, duplicates included."""


def _json_duplicates(body: bytes) -> list[str]:
    """One text per field that was given again, in document order; no more than `MAX_PROBLEMS`."""
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
    """Half of a surrogate pair is legal JSON but cannot be written as UTF-8."""
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
    """JSON is YAML, but not the other way round: try the faster reader first."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return decode_json(body)
        except BadRequest:
            pass  # Flow style may still be YAML that is no JSON: {a: b}.
    from onejob.api.input.yaml_reading import read_yaml

    document, problems = read_yaml(body, MAX_DEPTH)
    return Decoded(document, problems)
