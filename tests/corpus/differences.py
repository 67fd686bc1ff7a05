"""Differences between engines in the corpus that have a reason; all others fail."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Outcome = dict[str, Any]


class Difference(NamedTuple):
    engine: str
    case: str
    #: Fields of the outcome that differ.
    fields: frozenset[str]
    reason: str


KNOWN: Final[tuple[Difference, ...]] = (
    Difference(
        "podman",
        "program-is-missing",
        frozenset({"pods"}),
        "the message is the engine's; code and reason are the same",
    ),
)


def differing(reference: Outcome, other: Outcome) -> frozenset[str]:
    """Return the fields in which two outcomes differ."""
    names = {*reference, *other}
    return frozenset(name for name in names if reference.get(name) != other.get(name))


def unknown(
    engine: str, reference: Mapping[str, Outcome], outcomes: Mapping[str, Outcome]
) -> dict[str, frozenset[str]]:
    """Return the fields that differ without a known reason, by case."""
    found = {}
    for case, outcome in outcomes.items():
        fields = differing(reference[case], outcome)
        excused = {
            field
            for known in KNOWN
            if known.engine == engine and known.case == case
            for field in known.fields
        }
        if fields - excused:
            found[case] = fields - excused
    return found


def stale(
    engine: str, reference: Mapping[str, Outcome], outcomes: Mapping[str, Outcome]
) -> list[Difference]:
    """Return the known differences of an engine that no longer exist."""
    return [
        known
        for known in KNOWN
        if known.engine == engine
        and known.case in outcomes
        and not known.fields <= differing(reference[known.case], outcomes[known.case])
    ]
