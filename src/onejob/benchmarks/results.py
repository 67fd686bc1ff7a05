"""Measurements, and outcomes of scenarios compared with targets."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """Resources used by the measured work, in its process and that process's children."""

    pods: int
    cpu_seconds: float
    peak_rss_mb: float
    #: Operation -> count; see `counting`.
    counts: Mapping[str, int] = {}

    @property
    def cpu_us_per_pod(self) -> float:
        return self.cpu_seconds / self.pods * 1e6

    def per_pod(self, operation: str) -> float:
        return self.counts[operation] / self.pods


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one probe: figures by name. A name ends with the unit."""

    figures: Mapping[str, float] = {}
    cost: Cost | None = None
    #: Reason for missing figures, for instance a program that is not installed.
    skipped: str = ""
    #: Cost against size, for the plot: (pods, CPU µs per pod).
    curve: tuple[tuple[int, float], ...] = ()
    #: Runtimes of the nodes used, recorded by `used_nodes`.
    nodes: tuple[str, ...] = ()


class Goal(msgspec.Struct, frozen=True):
    sense: Literal["at least", "at most"]
    value: float
    #: Name of a peer; the value is then a multiple of this peer's figure in the same run.
    times: str = ""

    def text(self) -> str:
        sign = "≥" if self.sense == "at least" else "≤"
        return f"{sign} {number(self.value)}" + (f"× {self.times}" if self.times else "")

    def met_by(self, figure: float, peer: float | None = None) -> bool | None:
        """Return whether `figure` meets the goal; None if its peer was not measured."""
        bound = self.value
        if self.times:
            if peer is None:
                return None
            bound *= peer
        return figure >= bound if self.sense == "at least" else figure <= bound


class Peer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of another program for the same question, or of a theoretical limit."""

    name: str
    measured: Measurement
    #: Not measured in this run, but on an idle machine of the kind the targets were set on, or
    #: published by its makers.
    elsewhere: bool = False


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one scenario."""

    scenario: str
    question: str
    sizes: Mapping[str, int]
    measured: Measurement
    peers: tuple[Peer, ...] = ()
    targets: Mapping[str, Goal] = {}
    #: Measured at smaller sizes than the targets apply to: no verdicts.
    quick: bool = False
    #: Error message, if nothing could be measured.
    problem: str = ""

    def verdict(self, figure: str) -> bool | None:
        """Return whether a figure meets its target; None if it has none, or none at this size."""
        target = self.targets.get(figure)
        if target is None or self.quick or figure not in self.measured.figures:
            return None
        peer = next((peer for peer in self.peers if peer.name == target.times), None)
        peers_figure = peer.measured.figures.get(figure) if peer else None
        return target.met_by(self.measured.figures[figure], peers_figure)


def number(value: float) -> str:
    """Format with as many digits as are reliable: three, more only left of the point."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def percentile(values: list[float], percent: float) -> float:
    """Return the nearest-rank percentile.

    That is the smallest value with at least `percent` of all values at or below it.
    """
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]
