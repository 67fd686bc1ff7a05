"""Registry of worlds by name; each has its own seeds and checks."""

import argparse
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sim.clients import world as clients
from sim.cluster import world as cluster
from sim.mirroring import world as mirroring
from sim.racing import world as racing
from sim.resuming import world as resuming
from sim.workflows import world as workflows
from sim.world import Verdict, simulate

Simulate: TypeAlias = Callable[[int, argparse.Namespace], Verdict]


def _plane(seed: int, options: argparse.Namespace) -> Verdict:
    return simulate(
        seed,
        options.often,
        node=options.node,
        job_limit=options.job_limit,
        rare=options.rare,
        gates=options.gates,
    )


#: The first is the default.
WORLDS: Mapping[str, Simulate] = {
    "plane": _plane,
    "clients": lambda seed, options: clients.simulate(seed, options.often),
    "cluster": lambda seed, options: cluster.simulate(seed, options.often),
    "mirroring": lambda seed, options: mirroring.simulate(seed, options.often),
    "racing": lambda seed, options: racing.simulate(seed, options.often),
    "workflows": lambda seed, options: workflows.simulate(seed, options.often),
    "resuming": lambda seed, options: resuming.simulate(seed, options.often),
}
