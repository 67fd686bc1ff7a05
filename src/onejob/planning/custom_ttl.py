"""TTL after finish for custom resources, configured by an annotation on their definition.

A custom resource has no standard fields that mark it as finished. An annotation on its
CustomResourceDefinition names them.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from onejob.planning.ttl import NEVER, Expires, NeverExpires, expires_after

#: Annotation on a CustomResourceDefinition. Its value is JSON; see `read_rule`.
CUSTOM_TTL_ANNOTATION = "onejob.dev/ttl-after-finished"

_FIELD = re.compile(r"[A-Za-z0-9_-]+")
#: Keys of labels and annotations contain dots and slashes.
_KEYED = re.compile(r"\.?metadata\.(labels|annotations)\[([^\[\]]+)\]")
_DIGITS = re.compile(r"[0-9]{1,18}")
#: Wildcard, only allowed as the single value: the object has finished once the field is not empty.
_ANY = "*"
_STATUSES = ("True", "False", "Unknown")

Path: TypeAlias = tuple[str, ...]


class FinishRule(Struct, frozen=True):
    """Fields that the TTL controller reads in the objects of one custom kind."""

    #: Path of the list of conditions, or of a string such as a phase.
    finished: Path
    #: Strings that mark the object as finished; None for any non-empty string.
    texts: frozenset[str] | None
    #: Type and status of each condition that marks the object as finished.
    conditions: frozenset[tuple[str, str]]
    #: Path of the finish time; empty to use the lastTransitionTime of the condition.
    finished_at: Path
    #: Path of the field, label or annotation with the TTL in seconds, or one TTL for all objects.
    ttl: Path | int


class BadRule(ValueError):
    """Invalid annotation; the message contains the reason."""


class Unusable(Struct, frozen=True):
    """The object has finished, but its TTL is malformed or its finish time missing or malformed."""

    error: str


class _Written(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    finished: str = "status.conditions"
    values: tuple[str, ...] = ("Complete", "Failed")
    finished_at: str = ""
    ttl: str | int = "spec.ttlSecondsAfterFinished"


def read_rule(text: str) -> FinishRule:
    """Parse the value of the annotation. Raises BadRule."""
    try:
        written = msgspec.json.decode(text, type=_Written)
    except msgspec.DecodeError as error:
        raise BadRule(f"annotation {CUSTOM_TTL_ANNOTATION}: {error}") from None
    if not all(written.values) or not written.values:
        raise _bad_rule("values must name at least one value")
    any_text = _ANY in written.values
    if any_text and len(written.values) > 1:
        raise _bad_rule(f'"{_ANY}" in values means any text, so it must be the only one')
    if isinstance(written.ttl, int) and written.ttl < 0:
        raise _bad_rule("ttl must be 0 seconds or more")
    finished = _path("finished", written.finished)
    finished_at = _path("finishedAt", written.finished_at) if written.finished_at else ()
    return FinishRule(
        finished=finished,
        texts=None if any_text else frozenset(written.values),
        conditions=frozenset() if any_text else frozenset(map(_condition, written.values)),
        # A field that is set only when the object finishes usually contains the finish time.
        finished_at=finished if any_text and not finished_at else finished_at,
        ttl=written.ttl if isinstance(written.ttl, int) else _path("ttl", written.ttl),
    )


def _bad_rule(problem: str) -> BadRule:
    return BadRule(f"annotation {CUSTOM_TTL_ANNOTATION}: {problem}")


def _condition(value: str) -> tuple[str, str]:
    """Parse TYPE=STATUS, or TYPE for a condition that must be True, into type and status."""
    kind, equals, status = value.partition("=")
    if equals and (not kind or status not in _STATUSES):
        raise _bad_rule(
            f'values: "{value[:100]}" must be a condition and its status, such as "Succeeded=False"'
        )
    return kind, status or "True"


def _path(name: str, text: str) -> Path:
    """Return the path of a rule's field `name`. Raises BadRule."""
    if keyed := _KEYED.fullmatch(text):
        return ("metadata", keyed[1], keyed[2])
    fields = tuple(text.removeprefix(".").split("."))
    if not all(map(_FIELD.fullmatch, fields)):
        raise _bad_rule(
            f'{name} must be field names with dots between them, such as "spec.ttlSeconds", or '
            f'"metadata.labels[KEY]", not "{text[:100]}"'
        )
    return fields


def _path_text(path: Path) -> str:
    if path[0] == "metadata" and len(path) == 3:
        return f"{path[0]}.{path[1]}[{path[2]}]"
    return ".".join(path)


def custom_expiry(
    rule: FinishRule, document: Mapping[str, Any]
) -> Expires | NeverExpires | Unusable:
    """Return when an object expires by the rule."""
    written_ttl = rule.ttl if isinstance(rule.ttl, int) else _value(document, rule.ttl)
    finished = _value(document, rule.finished)
    condition = _finished_condition(rule, finished)
    if written_ttl is None or "deletionTimestamp" in document.get("metadata", {}):
        return NEVER
    if condition is None and not _is_finishing_text(rule, finished):
        return NEVER
    ttl_seconds = _seconds(rule.ttl, written_ttl)
    if ttl_seconds is None:
        assert not isinstance(rule.ttl, int), "the rule's own number was checked"
        return Unusable(f"{_path_text(rule.ttl)} must be a whole number of seconds, 0 or more")
    written = _value(document, rule.finished_at) if rule.finished_at else None
    if written is None and condition is not None:
        written = condition.get("lastTransitionTime")
    finished_at = _time(written)
    if finished_at is None:
        place = _path_text(rule.finished_at or (*rule.finished, "lastTransitionTime"))
        return Unusable(
            f"it has finished, but {place} does not contain its end as an RFC 3339 time"
        )
    return expires_after(finished_at, ttl_seconds)


def _finished_condition(rule: FinishRule, conditions: Any) -> Mapping[str, Any] | None:
    """Return the condition by which the object is finished; None if it is not."""
    if not isinstance(conditions, list):
        return None
    for condition in conditions:
        if (
            isinstance(condition, dict)
            and (condition.get("type"), condition.get("status")) in rule.conditions
        ):
            return condition
    return None


def _is_finishing_text(rule: FinishRule, finished: Any) -> bool:
    if not isinstance(finished, str):
        return False
    return bool(finished) if rule.texts is None else finished in rule.texts


def _seconds(source: Path | int, written: Any) -> int | None:
    """Return the TTL in seconds; None if it is not a number of 0 or more.

    Labels and annotations are always strings, so digits are accepted there.
    """
    keyed = not isinstance(source, int) and source[:1] == ("metadata",)
    if keyed and isinstance(written, str) and _DIGITS.fullmatch(written):
        return int(written)
    is_number = isinstance(written, int) and not isinstance(written, bool) and written >= 0
    return written if is_number else None


def _value(document: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for field in path:
        if not isinstance(document, dict):
            return None
        document = document.get(field)
    return document


def _time(text: Any) -> datetime | None:
    """Return a timestamp; None if it is malformed or has no zone."""
    if not isinstance(text, str):
        return None
    try:
        time = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return time if time.tzinfo is not None else None
