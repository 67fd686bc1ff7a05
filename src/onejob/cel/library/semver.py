"""Semantic versions."""

import re
from typing import Any

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.values import Opaque

LIBRARY = Library()

_NUMBER = r"(?:0|[1-9]\d{0,19})"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?\Z",
    re.ASCII,
)
_MAX_VERSION_LENGTH = 1000


class Semver(Opaque):
    __slots__ = ("major", "minor", "order", "patch")
    type_name = "kubernetes.Semver"

    def __init__(self, major: int, minor: int, patch: int, pre: tuple[tuple[Any, ...], ...]):
        self.major = major
        self.minor = minor
        self.patch = patch
        # A release orders after all of its pre-releases. Build metadata is ignored.
        self.order = (major, minor, patch, not pre, pre)

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, Semver) and self.order == other.order


def parse_semver(text: str, normalize: bool = False) -> Semver:
    if len(text) > _MAX_VERSION_LENGTH:
        raise EvaluationError("version is too long")
    if normalize:
        text = _normalized(text)
    match = _VERSION.match(text)
    if match is None:
        raise EvaluationError(f'invalid semantic version "{text}"')
    pre = []
    for part in match[4].split(".") if match[4] else ():
        if part.isdigit():
            if len(part) > 1 and part[0] == "0":
                raise EvaluationError(
                    f'Numeric PreRelease version must not contain leading zeroes "{part}"'
                )
            pre.append((0, int(part), ""))
        else:
            pre.append((1, 0, part))
    return Semver(int(match[1]), int(match[2]), int(match[3]), tuple(pre))


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[index] = bare if bare[:1].isdigit() else f"0{bare}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][:3])


@LIBRARY.add("semver(string) -> Semver", "semver(string, bool) -> Semver", cost=Cost.TRAVERSE)
def semver(text: str, normalize: bool = False) -> Semver:
    return parse_semver(text, normalize)


@LIBRARY.add("isSemver(string) -> bool", "isSemver(string, bool) -> bool", cost=Cost.TRAVERSE)
def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        parse_semver(text, normalize)
    except EvaluationError:
        return False
    return True


@LIBRARY.add("Semver..isGreaterThan(Semver) -> bool")
def is_greater_than(left: Semver, right: Semver) -> bool:
    return left.order > right.order


@LIBRARY.add("Semver..isLessThan(Semver) -> bool")
def is_less_than(left: Semver, right: Semver) -> bool:
    return left.order < right.order


@LIBRARY.add("Semver..compareTo(Semver) -> int")
def compare_to(left: Semver, right: Semver) -> int:
    return (left.order > right.order) - (left.order < right.order)


@LIBRARY.add("Semver..major() -> int")
def major(value: Semver) -> int:
    return value.major


@LIBRARY.add("Semver..minor() -> int")
def minor(value: Semver) -> int:
    return value.minor


@LIBRARY.add("Semver..patch() -> int")
def patch(value: Semver) -> int:
    return value.patch
