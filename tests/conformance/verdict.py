"""Result of a runner for one case."""

from dataclasses import dataclass
from typing import Any, TypeAlias

Case: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passed:
    pass


@dataclass(frozen=True, slots=True)
class Failed:
    #: Names the part that differs, with both values.
    why: str


@dataclass(frozen=True, slots=True)
class Skipped:
    #: Why this case does not apply to onejob at all; "not yet" is a failure, not a skip.
    reason: str


Verdict: TypeAlias = Passed | Failed | Skipped


def compare(what: str, expected: Any, actual: Any) -> Verdict:
    if expected == actual:
        return Passed()
    return Failed(f"{what}: expected {expected!r}, got {actual!r}")
