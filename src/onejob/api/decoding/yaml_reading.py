"""YAML parser with Kubernetes' rules: YAML 1.1 booleans, no base-60 numbers, no timestamps.

Events come from PyYAML's C parser. Scalars are resolved here because PyYAML's rules differ (`y` is
text there, `1:30` a number, `2026-01-01` a date). Values are built here because its C composer
overflows the stack on deeply nested input. Aliases are expanded within a budget, so that a small
body cannot become a huge document.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from onejob.api.schema.shapes import MAX_PROBLEMS
from onejob.wire.errors import BadRequest
from onejob.wire.field_errors import shortened

#: Limits of values and text characters in a document; an alias counts each time it is used.
MAX_VALUES: Final = 100_000
MAX_CHARACTERS: Final = 3 * 1024 * 1024
#: Limited because the parser compares each directive with all previous ones.
_MAX_DIRECTIVES: Final = 100

_TRUE: Final = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE: Final = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_NULL: Final = ("", "~", "null", "Null", "NULL")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(_NULL),
}
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>\d+))"
)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES: Final = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}

_NUMBER_TAGS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_WORD_TAGS: Final = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")
_RESOLVED_TAGS: Final = (None, *_NUMBER_TAGS, *_WORD_TAGS)


def read_yaml(body: bytes, max_depth: int) -> tuple[Any, list[str]]:
    """Return the single document of `body` as JSON values, and one message per duplicate key.

    Raises BadRequest.
    """
    if body.count(b"\n%TAG") > _MAX_DIRECTIVES:
        raise _yaml_error("too many directives")
    try:
        events = iter(yaml.parse(body.decode("utf-8", "replace"), Loader=yaml.CSafeLoader))
        reader = _Reader(events, max_depth)
        return reader.document(), reader.problems
    except yaml.YAMLError as error:
        raise _yaml_error(error) from None


class _Reader:
    """Reader of one YAML document from parser events."""

    def __init__(self, events: Iterator[Any], max_depth: int) -> None:
        self.problems: list[str] = []
        self._events = events
        self._max_depth = max_depth
        self._values_left = MAX_VALUES
        self._characters_left = MAX_CHARACTERS
        self._anchors: dict[str, Any] = {}

    def document(self) -> Any:
        """Return the only document; None for an empty stream. Raises BadRequest."""
        next(self._events)  # start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        document = self._value(next(self._events), 1)
        next(self._events)  # end of the document
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise _yaml_error("expected a single document in the stream")
        return document

    def _value(self, event: Any, depth: int) -> Any:
        """Return the value that begins with `event`, consuming its events."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _yaml_error(f"unknown anchor '{shortened(str(event.anchor))}' referenced")
            return self._copy(self._anchors[event.anchor], depth)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            self._charge(len(event.value))
            value = _scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value
            return value
        self._charge(0)
        if depth > self._max_depth:
            raise _too_deep()
        if isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                value.append(self._value(item, depth + 1))
        else:
            value = self._mapping(depth)
        # Registered when complete, so that an anchor inside itself is unknown.
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        """Return the mapping whose start was consumed; duplicate keys are added to `problems`."""
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(key_event := next(self._events), yaml.MappingEndEvent):
            if _is_merge(key_event):
                merged.update(_merge(self._value(next(self._events), depth + 1)))
                continue
            key = _key(self._value(key_event, depth + 1))
            if key in mapping and len(self.problems) < MAX_PROBLEMS:
                line = key_event.start_mark.line + 1
                self.problems.append(f'line {line}: key "{shortened(key)}" already set in map')
            mapping[key] = self._value(next(self._events), depth + 1)
        return {**merged, **mapping} if merged else mapping

    def _copy(self, value: Any, depth: int) -> Any:
        """Return a copy of an anchored value, charged to the budget."""
        self._charge(len(value) if isinstance(value, str) else 0)
        if not isinstance(value, list | dict):
            return value
        if depth > self._max_depth:
            raise _too_deep()
        if isinstance(value, list):
            return [self._copy(item, depth + 1) for item in value]
        self._charge(sum(map(len, value)))
        return {key: self._copy(item, depth + 1) for key, item in value.items()}

    def _charge(self, characters: int) -> None:
        """Charge one value and its characters to the document's limits."""
        self._values_left -= 1
        self._characters_left -= characters
        if self._characters_left < 0:
            raise _yaml_error(
                f"document holds more than {MAX_CHARACTERS} characters, aliases included"
            )
        if self._values_left < 0:
            raise _yaml_error(f"document holds more than {MAX_VALUES} values, aliases included")


def _is_merge(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and bool(event.implicit[0])


def _merge(value: Any) -> dict[str, Any]:
    """Return the fields that a merge key `<<` adds."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        # The first mapping that contains a key wins.
        return {key: item for mapping in reversed(value) for key, item in mapping.items()}
    raise _yaml_error("map merge requires map or sequence of maps as the value")


def _key(key: Any) -> str:
    """Return a mapping key as text, as Go does."""
    if key is None or isinstance(key, list | dict):
        raise _yaml_error("unsupported map key")
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _scalar(event: Any) -> Any:
    """Return a scalar in its resolved type."""
    text: str = event.value
    quoted = event.tag is None and not event.implicit[0]
    if quoted or event.tag not in _RESOLVED_TAGS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    plain = text.replace("_", "")
    if match := _INTEGER.fullmatch(plain):
        return _integer(match)
    if _FLOAT.fullmatch(plain):
        return _float(plain)
    if _INFINITE.fullmatch(text):
        raise _yaml_error(f"unsupported value: {shortened(text)}")
    return text


def _float(text: str) -> int | float:
    """Return a number; whole ones as int. Raises for infinity."""
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _yaml_error(f"unsupported value: {shortened(text)}")
    # When converting to JSON, Go writes 1.0 as 1.
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _integer(match: re.Match[str]) -> int:
    """Return a matched integer in any base."""
    kind = match.lastgroup or "dec"
    digits = match[kind]
    if len(digits) > 100:
        raise _yaml_error("number too large")
    number = int(digits, _BASES[kind])
    return -number if match["sign"] == "-" else number


def _too_deep() -> BadRequest:
    return _yaml_error("exceeded max depth")


def _yaml_error(problem: object) -> BadRequest:
    return BadRequest(f"error converting YAML to JSON: yaml: {problem}")
