"""All scenarios at quick size: each reports the figures that its targets and peers name."""

import pytest

from onejob.benchmarks.catalogue import SCENARIOS, Probe, Scenario, find
from onejob.benchmarks.results import Measurement, Outcome
from onejob.benchmarks.running import measure
from onejob.benchmarks.subprocesses import run_probe


def _measured(scenario: Scenario) -> Outcome:
    outcome = measure(scenario, quick=True, progress=lambda what, seconds: None)
    assert outcome.problem == ""
    return outcome


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_reports_all_declared_figures(scenario: Scenario) -> None:
    outcome = _measured(scenario)
    figures = outcome.measured.figures
    assert set(scenario.targets) <= set(figures)
    assert all(value >= 0 for value in figures.values())
    assert [peer.name for peer in outcome.peers] == [
        *(peer.name for peer in scenario.elsewhere),
        *(peer.name for peer in scenario.beside),
    ]
    # Figures of a simulated node must not be taken for those of real Pods.
    assert ("simulated" in outcome.measured.nodes) == (scenario.node == "simulated")
    assert ("(simulated node)" in outcome.question) == (scenario.node == "simulated")
    for peer in outcome.peers:
        shared = set(peer.measured.figures) & set(figures)
        assert shared or peer.measured.skipped.startswith(("not installed", "not possible"))


def test_sizes_are_given_for_the_same_things() -> None:
    probes = [scenario.probe for scenario in SCENARIOS]
    probes += [beside.probe for scenario in SCENARIOS for beside in scenario.beside]
    for probe in probes:
        assert probe.full.keys() == probe.quick.keys(), probe.function


def test_names_are_unique() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(names) == len(set(names))
    assert find(names[0]) is SCENARIOS[0]
    assert find("nonsense") is None


@pytest.mark.parametrize(
    ("probe", "sizes", "pods"),
    [
        ("control_plane:one_job", {"completions": 60, "parallelism": 10}, 60),
        ("control_plane:many_jobs", {"jobs": 4, "completions": 5, "parallelism": 2}, 20),
        (
            "control_plane:kep_2214_mix",
            {"large": 1, "medium": 2, "small": 3, "scale": 20, "indexed": 1},
            20 + 2 * 1 + 3 * 1,
        ),
        ("processes:by_onejob", {"processes": 10, "at_once": 4}, 10),
    ],
)
def test_every_pod_is_counted(probe: str, sizes: dict[str, int], pods: int) -> None:
    cost = run_probe(probe, sizes).cost
    assert cost is not None
    assert cost.pods == pods
    # Created with its node, ended, freed: nothing was left out.
    assert cost.counts["writes"] >= 3 * pods
    assert 1 <= cost.counts["commits"] <= cost.counts["writes"]
    assert cost.counts["syncs"] >= 1
    assert cost.cpu_seconds > 0


def test_processes_of_a_server_are_measured_with_its_supervisor() -> None:
    measured = run_probe("served_processes:by_server", {"processes": 10, "at_once": 4})
    assert measured.cost is not None
    assert measured.cost.pods == 10
    assert measured.cost.cpu_seconds > 0
    assert measured.figures["processes/s"] > 0


def test_the_curve_has_a_point_per_size() -> None:
    sizes = {"smallest": 10, "largest": 100, "parallelism": 10, "rounds": 2}
    measured = run_probe("scaling:cost_against_size", sizes)
    assert [size for size, _ in measured.curve] == [10, 100]


def test_failed_probe_is_reported_and_peers_are_measured() -> None:
    first = SCENARIOS[0]
    broken = Scenario(
        "broken", "?", Probe("control_plane:one_job", quick={"nonsense": 1}), beside=first.beside
    )
    outcome = measure(broken, quick=True, progress=lambda what, seconds: None)
    assert "nonsense" in outcome.problem
    assert outcome.measured == Measurement()
    assert outcome.peers[0].measured.figures
