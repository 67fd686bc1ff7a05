"""Mirror annotations of a Job: the user's settings and the mirror's own record."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from onejob.objects.job import Job
from onejob.planning.go_duration import DurationError, parse_duration
from onejob.planning.mirror import names

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
#: Maximum length of a target's name, since the virtual node's name must fit into a label.
_MAX_TARGET_LENGTH: Final = 63 - len(names.NODE_SUFFIX)
_CONFIG_KINDS: Final = ("configmaps", "secrets")
_SECOND: Final = 10**9


class MirrorSpec(msgspec.Struct, frozen=True):
    target: str = ""
    #: Namespace on the remote cluster.
    namespace: str = ""
    #: Resources to copy: `configmaps`, `secrets` or both.
    copied: frozenset[str] = frozenset()
    #: Seconds without contact after which the copy is considered gone; None means never.
    lost_after: float | None = None
    #: True to create a new copy, instead of failing the Job, when the copy is deleted.
    restart: bool = False


class InvalidAnnotation(ValueError):
    """Invalid annotation; the message names it and the valid values."""


def read_mirror_spec(job: Job) -> MirrorSpec:
    """Parse the user's annotations. Raises `InvalidAnnotation`."""
    given = job.metadata.annotations
    return MirrorSpec(
        target=_target(given),
        namespace=_namespace(given, job.metadata.namespace),
        copied=_parse_copied_kinds(given),
        lost_after=_lost_after(given),
        restart=_restart(given),
    )


def _target(given: Mapping[str, str]) -> str:
    """Return the name of the target. Raises InvalidAnnotation."""
    target = given.get(names.TARGET, "")
    if not target:
        raise InvalidAnnotation(
            f"the annotation {names.TARGET} must name a target; onejob mirror add creates one, "
            "onejob mirror list lists them"
        )
    if not _NAME.fullmatch(target) or len(target) > _MAX_TARGET_LENGTH:
        raise InvalidAnnotation(
            f"the annotation {names.TARGET} must be the name of a Secret of at most "
            f"{_MAX_TARGET_LENGTH} characters, not {target[:80]!r}"
        )
    return target


def _namespace(given: Mapping[str, str], default: str) -> str:
    """Return the namespace on the target. Raises InvalidAnnotation."""
    namespace = given.get(names.NAMESPACE) or default
    if not _NAME.fullmatch(namespace) or len(namespace) > 63 or "." in namespace:
        raise InvalidAnnotation(
            f"the annotation {names.NAMESPACE} is not a valid namespace: {namespace[:80]!r}"
        )
    return namespace


def _parse_copied_kinds(given: Mapping[str, str]) -> frozenset[str]:
    """Return the kinds to copy. Raises InvalidAnnotation."""
    kinds = frozenset(kind.strip() for kind in given.get(names.COPY_CONFIG, "").split(",")) - {""}
    if unknown := kinds.difference(_CONFIG_KINDS):
        raise InvalidAnnotation(
            f"the annotation {names.COPY_CONFIG} lists configmaps, secrets or both, "
            f"not {min(unknown)[:80]!r}"
        )
    return kinds


def _lost_after(given: Mapping[str, str]) -> float | None:
    """Return the seconds without contact after which the copy is lost; None for never. Raises
    InvalidAnnotation."""
    text = given.get(names.LOST_AFTER, "")
    if not text:
        return None
    try:
        seconds = parse_duration(text) / _SECOND
    except DurationError:
        seconds = 0.0
    if seconds <= 0:
        raise InvalidAnnotation(
            f"the annotation {names.LOST_AFTER} is a time such as 15m, not {text[:80]!r}"
        )
    return seconds


def _restart(given: Mapping[str, str]) -> bool:
    """Return whether a copy that was deleted is created again. Raises InvalidAnnotation."""
    text = given.get(names.WHEN_COPY_DELETED, "Fail")
    if text not in ("Fail", "Restart"):
        raise InvalidAnnotation(
            f"the annotation {names.WHEN_COPY_DELETED} is Fail or Restart, not {text[:80]!r}"
        )
    return text == "Restart"


class CopyLocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Location of the copy.

    Written before the copy is created, so that the copy is found again after a crash. A copy runs
    only once its UID is recorded here, so no other copy ever runs.
    """

    target: str
    namespace: str
    name: str
    #: URL of the remote server at the time the copy was linked.
    server: str = ""
    #: Empty until the copy is linked.
    uid: str = ""
    #: Number of this copy; more than 1 if earlier ones are gone.
    attempt: int = 1
    #: True if the Job is deleted and its Pods must stay.
    orphaned: bool = False


_read_record = msgspec.json.Decoder(CopyLocation).decode


def record_of(job: Job) -> CopyLocation | None:
    """Return the record; None also if a user made the annotation unreadable.

    The copy is then found by its name.
    """
    text = job.metadata.annotations.get(names.RECORD, "")
    try:
        return _read_record(text) if text else None
    except msgspec.DecodeError:
        return None


def record_text(record: CopyLocation) -> str:
    return msgspec.json.encode(record).decode()
