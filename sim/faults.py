"""Fault injection: kinds of faults, their rates in a world, and counters of occurrences."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

#: Probability of each kind of fault, each time that it could happen.
RATES = {
    # Disk.
    "slow commit": 0.3,
    "failed commit": 0.02,
    "full disk": 0.004,
    "crash before a commit": 0.004,
    "crash after a commit": 0.004,
    # Under SQLite.
    "short store write": 0.0005,
    "failed store write": 0.0002,
    "failed store sync": 0.001,
    "crash in a store write": 0.0005,
    # Between the API and its clients.
    "lost answer": 0.02,
    "refused write": 0.01,
    "late watch": 0.15,
    "split watch": 0.1,
    "broken watch": 0.02,
    "expired watch": 0.02,
    "right taken away": 0.002,
    # Machine that runs containers.
    "slow start": 0.2,
    "failed start": 0.03,
    "hindered start": 0.03,
    "lost end": 0.02,
    "out of memory": 0.05,
    "late report": 0.2,
    "ignored SIGTERM": 0.2,
    "lost request": 0.5,
    "reboot": 0.3,
    # Simulated kernel with the production supervisor.
    "supervisor killed": 0.003,
    "no supervisor": 0.1,
    "old supervisor": 0.3,
    "failed fork": 0.02,
    "left a stray": 0.05,
    "late request": 0.1,
    "repeated request": 0.05,
    "short send": 0.1,
    "short write": 0.05,
    "failed write": 0.005,
    "failed sync": 0.02,
    "no allocation": 0.01,
    "quick end": 0.3,
    # Users who send requests before the control plane has started.
    "asked early": 0.4,
    # Network (`sim/network`).
    "request lost": 0.02,
    "request late": 0.05,
    "answer lost": 0.03,
    "answer late": 0.08,
    "answer repeated": 0.02,
    "gateway error": 0.03,
    "server error": 0.03,
    "too busy": 0.02,
    "data split": 0.1,
    "stream cut": 0.03,
    "stream late": 0.1,
    "stream stalled": 0.01,
    "stream error": 0.02,
    "connection refused": 0.03,
    "kept connection closed": 0.03,
    "partition": 0.004,
    # Slow in-process requests (`sim/racing`).
    "slow read": 0.2,
    "slow write": 0.2,
}

#: Kinds of faults of the simulated network.
NETWORK = tuple(
    kind
    for kind in RATES
    if kind.startswith(
        (
            "request ",
            "answer ",
            "gateway ",
            "server ",
            "too ",
            "data ",
            "stream ",
            "connection ",
            "kept ",
            "partition",
        )
    )
)

#: Probability that a world has a given kind. Worlds with few kinds reach states that many
#: simultaneous kinds of faults would prevent.
_PRESENT = 0.6
#: Factor on the rate of kinds that `often` names.
_OFTEN = 5


@dataclass
class Trace:
    """Chronological log of one world, printed when a seed is replayed."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    now: Callable[[], float] = lambda: asyncio.get_running_loop().time()

    def note(self, text: str) -> None:
        self.lines.append((self.now(), text))


class Chance(Protocol):
    """Source of random decisions about faults."""

    #: True once no more faults may happen.
    calm: bool

    def count(self, kind: str) -> None:
        """Count one more occurrence that another event caused."""

    def happens(self, kind: str) -> bool: ...

    def up_to(self, kind: str, most: float) -> float:
        """Draw a duration or an amount, at least 0 and below `most`."""


class Dice:
    """Seeded `Chance`.

    Setting `calm` ends all faults, to see whether the system converges afterwards.
    """

    def __init__(
        self,
        seed: int,
        trace: Trace,
        often: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> None:
        """Draw the kinds of faults that this world has.

        Kinds named in `often` happen in every world, and often. `only` names the kinds that may
        happen at all; by default any may.
        """
        self._seed = seed
        self._trace = trace
        chosen = Random(f"{seed} kinds")
        self._rates = {
            kind: rate * chosen.choice((0.3, 1.0, 2.0))
            for kind, rate in RATES.items()
            if chosen.random() < _PRESENT and (only is None or kind in only)
        }
        self._rates |= {kind: min(0.5, _OFTEN * RATES[kind]) for kind in often}
        # Each kind has its own random sequence, so that a change in one place shifts the others
        # less.
        self._sequences = {kind: Random(f"{seed} {kind}") for kind in RATES}
        self.happened: Counter[str] = Counter()
        self.calm = False

    def happens(self, kind: str) -> bool:
        rate = self._rates.get(kind, 0.0)
        if self.calm or not rate or self._sequences[kind].random() >= rate:
            return False
        self.count(kind)
        return True

    def count(self, kind: str) -> None:
        self.happened[kind] += 1
        if kind not in _TOO_MANY_TO_NOTE:
            self._trace.note(f"fault: {kind}")

    def up_to(self, kind: str, most: float) -> float:
        """Draw a duration or an amount, at least 0 and below `most`."""
        return self._sequences[kind].random() * most


_TOO_MANY_TO_NOTE = ("slow commit", "late watch", "split watch", "request denied")
