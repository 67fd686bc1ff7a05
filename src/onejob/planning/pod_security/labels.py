"""`pod-security.kubernetes.io/` labels of a Namespace, parsed into a policy."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from onejob.wire.field_errors import FieldError, invalid

PREFIX: Final = "pod-security.kubernetes.io/"

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
#: From the least to the most strict.
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)

_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)")


class LevelVersion(Struct, frozen=True):
    level: str = PRIVILEGED
    #: Minor Kubernetes version whose checks apply; None for the newest.
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor is None else f'v1.{self.minor}'}"


class Policy(Struct, frozen=True):
    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()


def stricter(level: str, other: str) -> bool:
    """Return whether a level permits less than the other."""
    return LEVELS.index(level) > LEVELS.index(other)


def read_policy(labels: Mapping[str, str]) -> tuple[Policy, list[FieldError]]:
    """Return the policy and the errors in the labels.

    A policy is always returned: an unreadable label enforces the strictest level, and neither warns
    nor audits.
    """
    errors: list[FieldError] = []
    enforce = _read_mode(labels, "enforce", RESTRICTED, errors)
    audit = _read_mode(labels, "audit", PRIVILEGED, errors)
    warn = _read_mode(labels, "warn", PRIVILEGED, errors)
    enforced = labels.get(PREFIX + "enforce")
    if PREFIX + "warn" not in labels and enforced in LEVELS and stricter(enforced, warn.level):
        # Enforcing a level implies warnings for it: they also cover Jobs, which are not rejected.
        minor = warn.minor if PREFIX + "warn-version" in labels else enforce.minor
        warn = LevelVersion(enforce.level, minor)
    return Policy(enforce, audit, warn), errors


def _read_mode(
    labels: Mapping[str, str], mode: str, unreadable: str, errors: list[FieldError]
) -> LevelVersion:
    """Return the level and version of a mode; add errors to `errors`.

    `unreadable` is the level in place of an unknown one.
    """
    level = labels.get(PREFIX + mode, PRIVILEGED)
    if level not in LEVELS:
        errors.append(_error(mode, level, f"must be one of {', '.join(LEVELS)}"))
        level = unreadable
    version = labels.get(f"{PREFIX}{mode}-version", "latest")
    match = _VERSION.fullmatch(version)
    if match is None and version != "latest":
        errors.append(_error(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
    return LevelVersion(level, None if match is None else int(match[1]))


def _error(label: str, value: str, text: str) -> FieldError:
    """Return the error of a label."""
    return invalid(f"metadata.labels[{PREFIX}{label}]", value, text)
