"""When a finished custom resource may go.

Nothing about a custom resource says which of its fields mean that it has finished. An annotation
on its CustomResourceDefinition names them.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from onejob.planning.ttl import NEVER, Expires, NeverExpires, expires_after

#: On a CustomResourceDefinition: JSON, see `read_rule`.
CUSTOM_TTL_ANNOTATION = "onejob.dev/ttl-after-finished"

_FIELD = re.compile(r"[A-Za-z0-9_-]+")

Path: TypeAlias = tuple[str, ...]


class FinishRule(Struct, frozen=True):
    """Which fields of the objects of one kind the TTL controller reads."""

    #: A list of conditions, or one text such as a phase.
    finished: Path
    #: Types of conditions, or texts, that mean that the object has finished.
    values: tuple[str, ...]
    #: The time of the end; empty for the lastTransitionTime of the condition.
    finished_at: Path
    ttl: Path


class BadRule(ValueError):
    """The annotation cannot be used; the message says why."""


class Unusable(Struct, frozen=True):
    """The object has finished, but its TTL or the time of its end is missing or malformed."""

    error: str


class _Written(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    finished: str = "status.conditions"
    values: tuple[str, ...] = ("Complete", "Failed")
    finished_at: str = ""
    ttl: str = "spec.ttlSecondsAfterFinished"


def read_rule(text: str) -> FinishRule:
    """Reads the annotation. Raises BadRule."""
    try:
        written = msgspec.json.decode(text, type=_Written)
    except msgspec.DecodeError as error:
        raise BadRule(f"annotation {CUSTOM_TTL_ANNOTATION}: {error}") from None
    if not all(written.values) or not written.values:
        raise BadRule(f"annotation {CUSTOM_TTL_ANNOTATION}: values must name at least one value")
    return FinishRule(
        finished=_path("finished", written.finished),
        values=written.values,
        finished_at=_path("finishedAt", written.finished_at) if written.finished_at else (),
        ttl=_path("ttl", written.ttl),
    )


def _path(name: str, text: str) -> Path:
    fields = tuple(text.removeprefix(".").split("."))
    if not all(map(_FIELD.fullmatch, fields)):
        raise BadRule(
            f"annotation {CUSTOM_TTL_ANNOTATION}: {name} must be field names with dots between "
            f'them, such as "spec.ttlSecondsAfterFinished", not "{text[:100]}"'
        )
    return fields


def custom_expiry(
    rule: FinishRule, document: Mapping[str, Any]
) -> Expires | NeverExpires | Unusable:
    ttl_seconds = _value(document, rule.ttl)
    finished = _value(document, rule.finished)
    condition = _finished_condition(rule, finished)
    if ttl_seconds is None or "deletionTimestamp" in document.get("metadata", {}):
        return NEVER
    if condition is None and not (isinstance(finished, str) and finished in rule.values):
        return NEVER
    if not isinstance(ttl_seconds, int) or isinstance(ttl_seconds, bool) or ttl_seconds < 0:
        return Unusable(f"{'.'.join(rule.ttl)} must be a whole number of seconds, 0 or more")
    written = _value(document, rule.finished_at) if rule.finished_at else None
    if written is None and condition is not None:
        written = condition.get("lastTransitionTime")
    finished_at = _time(written)
    if finished_at is None:
        place = ".".join(rule.finished_at or (*rule.finished, "lastTransitionTime"))
        return Unusable(f"it has finished, but {place} is no RFC 3339 time that says when")
    return expires_after(finished_at, ttl_seconds)


def _finished_condition(rule: FinishRule, conditions: Any) -> Mapping[str, Any] | None:
    if not isinstance(conditions, list):
        return None
    for condition in conditions:
        if (
            isinstance(condition, dict)
            and condition.get("type") in rule.values
            and condition.get("status") == "True"
        ):
            return condition
    return None


def _value(document: Any, path: Path) -> Any:
    for field in path:
        if not isinstance(document, dict):
            return None
        document = document.get(field)
    return document


def _time(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        time = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return time if time.tzinfo is not None else None
