"""Measurements and their outcomes, compared with targets."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """What the measured work took, of the process that did it and of its children."""

    pods: int
    cpu_seconds: float
    peak_rss_mb: float
    #: Operation -> how many; see `counting`.
    counts: Mapping[str, int] = {}

    @property
    def cpu_us_per_pod(self) -> float:
        return self.cpu_seconds / self.pods * 1e6

    def per_pod(self, operation: str) -> float:
        return self.counts[operation] / self.pods


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one probe found: figures by name. The unit is the end of the name."""

    figures: Mapping[str, float] = {}
    cost: Cost | None = None
    #: Why there is nothing: a program that is not installed, for instance.
    skipped: str = ""
    #: Cost against size, for the plot: (pods, CPU µs per pod).
    curve: tuple[tuple[int, float], ...] = ()
    #: The runtimes of the nodes that were used, recorded by `used_nodes`.
    nodes: tuple[str, ...] = ()


class Goal(msgspec.Struct, frozen=True):
    sense: Literal["at least", "at most"]
    value: float
    #: The value is a multiple of this peer's figure in the same run.
    times: str = ""

    def text(self) -> str:
        sign = "≥" if self.sense == "at least" else "≤"
        return f"{sign} {number(self.value)}" + (f"× {self.times}" if self.times else "")

    def met_by(self, figure: float, peer: float | None = None) -> bool | None:
        """None if it is unknown, because the peer was not measured."""
        bound = self.value
        if self.times:
            if peer is None:
                return None
            bound *= peer
        return figure >= bound if self.sense == "at least" else figure <= bound


class Peer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody else's figures for the same question, or the limit of what is possible."""

    name: str
    measured: Measurement
    #: Not in this run: on a quiet machine of the kind the targets were set on, or by its makers.
    elsewhere: bool = False


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scenario, measured."""

    scenario: str
    question: str
    sizes: Mapping[str, int]
    measured: Measurement
    peers: tuple[Peer, ...] = ()
    targets: Mapping[str, Goal] = {}
    #: Smaller than the targets are meant for: no verdicts.
    quick: bool = False
    #: What went wrong, if nothing could be measured.
    problem: str = ""

    def verdict(self, figure: str) -> bool | None:
        """Whether the target of a figure is met; None if it has none, or none at this size."""
        target = self.targets.get(figure)
        if target is None or self.quick or figure not in self.measured.figures:
            return None
        peer = next((peer for peer in self.peers if peer.name == target.times), None)
        peers_figure = peer.measured.figures.get(figure) if peer else None
        return target.met_by(self.measured.figures[figure], peers_figure)


def number(value: float) -> str:
    """As many digits as one can trust: three, more only left of the point."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that at least so many percent of all are not above."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]
