"""Interleaved rounds of two revisions and of the limits, and the ratios within each round."""

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from onejob.benchmarks.catalogue import Probe, Scenario
from onejob.benchmarks.comparing.trees import Tree
from onejob.benchmarks.running import Progress, with_cost
from onejob.benchmarks.subprocesses import ProbeFailed, run_probe

_LIMIT = "limit"


class Round(msgspec.Struct, frozen=True):
    """Figures by name, all measured within the same minutes."""

    other: Mapping[str, float]
    this: Mapping[str, float]
    limits: Mapping[str, Mapping[str, float]] = {}


class Ratio(msgspec.Struct, frozen=True):
    """Ratio of two figures: the median over all rounds, and the extremes."""

    middle: float
    lowest: float
    highest: float


class Compared(msgspec.Struct, frozen=True):
    figure: str
    other: float
    this: float
    #: This revision's figure divided by the other's.
    ratio: Ratio
    #: Limit -> both figures divided by the limit's, as medians: (other, this).
    by_limit: Mapping[str, tuple[float, float]] = {}


def run_rounds(
    scenario: Scenario,
    other: Tree,
    this: Tree,
    *,
    rounds: int,
    quick: bool,
    progress: Progress,
) -> list[Round]:
    """Measure `rounds` rounds, alternating which revision comes first. Raises ProbeFailed.

    Each round begins with the revision that the previous one ended with.
    """
    limits = [beside for beside in scenario.beside if beside.name.startswith(_LIMIT)]

    def figures(probe: Probe, tree: Tree, what: str) -> Mapping[str, float]:
        progress(what, 0.0)
        sizes = probe.quick if quick else probe.full
        measured = run_probe(
            probe.function,
            sizes,
            lambda seconds: progress(what, seconds),
            environment=tree.environment(),
        )
        return with_cost(measured).figures

    found: list[Round] = []
    for number in range(rounds):
        title = f"{scenario.name}, round {number + 1} of {rounds}"
        order = (other, this) if number % 2 == 0 else (this, other)
        measured = {
            tree.name: figures(scenario.probe, tree, f"{title}: {tree.name}") for tree in order
        }
        beside = {}
        for limit in limits:
            try:
                beside[limit.name] = figures(limit.probe, this, f"{title}: {limit.name}")
            except ProbeFailed:
                # A program that is not installed.
                continue
        found.append(Round(measured[other.name], measured[this.name], beside))
    return found


def compare(rounds: Sequence[Round]) -> list[Compared]:
    """Return the figures that both revisions have, in the order of this revision."""
    names = [name for name in rounds[0].this if all(name in round_.other for round_ in rounds)]
    return [_compare_figure(name, rounds) for name in names]


def _compare_figure(figure: str, rounds: Sequence[Round]) -> Compared:
    ratios = [_ratio(round_.this[figure], round_.other[figure]) for round_ in rounds]
    by_limit = {
        limit: (
            median(_ratio(r.other[figure], r.limits[limit][figure]) for r in rounds),
            median(_ratio(r.this[figure], r.limits[limit][figure]) for r in rounds),
        )
        for limit, figures in rounds[0].limits.items()
        if figure in figures and all(limit in round_.limits for round_ in rounds)
    }
    return Compared(
        figure,
        median(round_.other[figure] for round_ in rounds),
        median(round_.this[figure] for round_ in rounds),
        Ratio(median(ratios), min(ratios), max(ratios)),
        by_limit,
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else float(a == b) or float("inf")
