"""Differences between two transcripts, and the known ones among them."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    scenario: str
    #: /step/field/…, steps by their request or label.
    where: str
    upstream: Any
    onejob: Any

    def __str__(self) -> str:
        return (
            f"{self.scenario}: {self.where}\n"
            f"    Kubernetes: {_shown(self.upstream)}\n    onejob:     {_shown(self.onejob)}"
        )


@dataclass(frozen=True, slots=True)
class Known:
    """An intended difference, and its reason."""

    #: Patterns as of file names, and a regular expression that `Difference.where` begins with.
    scenarios: str
    where: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        return bool(
            fnmatchcase(difference.scenario, self.scenarios)
            and re.match(self.where, difference.where)
        )


class _Absent:
    def __repr__(self) -> str:
        return "(nothing)"


ABSENT = _Absent()


def differences(scenario: str, upstream: Sequence[Any], onejob: Sequence[Any]) -> list[Difference]:
    found = []
    for number in range(max(len(upstream), len(onejob))):
        theirs = upstream[number] if number < len(upstream) else {}
        ours = onejob[number] if number < len(onejob) else {}
        step = theirs or ours
        where = f"/{number}:{step.get('ask') or step.get('show')}"
        found += [
            Difference(scenario, place, there, here)
            for place, there, here in _compare(where, theirs, ours)
        ]
    return found


def _compare(where: str, there: Any, here: Any) -> Iterator[tuple[str, Any, Any]]:
    if where.endswith("/events"):
        # Each event by itself, even where one side has none at all.
        there, here = (side if isinstance(side, dict) else {} for side in (there, here))
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            yield from _compare(f"{where}/{key}", there.get(key, ABSENT), here.get(key, ABSENT))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for number, (theirs, ours) in enumerate(zip(there, here, strict=True)):
            yield from _compare(f"{where}/{number}", theirs, ours)
    elif there != here or type(there) is not type(here):
        yield where, there, here


def _shown(value: Any) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 1500 else text[:1500] + "…"
