"""Scenario runner: measures one scenario with its peers and reports progress."""

from collections.abc import Callable

import msgspec

from onejob.benchmarks.catalogue import Probe, Scenario
from onejob.benchmarks.results import Measurement, Outcome, Peer
from onejob.benchmarks.subprocesses import ProbeFailed, run_probe

#: Called with the name of the current measurement and the elapsed seconds.
Progress = Callable[[str, float], None]


def measure(scenario: Scenario, *, quick: bool, progress: Progress) -> Outcome:
    """Measure a scenario. A failed probe is recorded in the outcome; other scenarios continue."""

    def run(probe: Probe, what: str) -> Measurement:
        progress(what, 0.0)
        sizes = probe.quick if quick else probe.full
        return run_probe(probe.function, sizes, lambda seconds: progress(what, seconds))

    measured, problem = Measurement(), ""
    try:
        measured = with_cost(run(scenario.probe, scenario.name))
    except ProbeFailed as failure:
        problem = str(failure)
    peers = [Peer(other.name, Measurement(other.figures), True) for other in scenario.elsewhere]
    for beside in scenario.beside:
        try:
            found = with_cost(run(beside.probe, f"{scenario.name}: {beside.name}"))
        except ProbeFailed as failure:
            found = Measurement(skipped=str(failure))
        peers.append(Peer(beside.name, found))
    return Outcome(
        scenario=scenario.name,
        question=scenario.title,
        sizes=scenario.probe.quick if quick else scenario.probe.full,
        measured=measured,
        peers=tuple(peers),
        targets=scenario.targets,
        quick=quick,
        problem=problem,
    )


def with_cost(measured: Measurement) -> Measurement:
    """Return the measurement with its cost added to the figures.

    Targets and peers can then refer to it.
    """
    cost = measured.cost
    if cost is None:
        return measured
    figures = {
        **measured.figures,
        "CPU per pod, µs": cost.cpu_us_per_pod,
        "peak RSS, MB": cost.peak_rss_mb,
        **{f"{name} per pod": cost.per_pod(name) for name in cost.counts},
    }
    return msgspec.structs.replace(measured, figures=figures)
