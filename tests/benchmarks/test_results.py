import pytest

from onejob.benchmarks.results import (
    Cost,
    Goal,
    Measurement,
    Outcome,
    Peer,
    number,
    percentile,
)
from onejob.benchmarks.running import with_cost


@pytest.mark.parametrize(
    ("target", "figure", "peer", "met"),
    [
        (Goal("at least", 1_500), 1_500, None, True),
        (Goal("at least", 1_500), 1_499, None, False),
        (Goal("at most", 30), 30, None, True),
        (Goal("at most", 30), 31, None, False),
        (Goal("at most", 2, "xargs"), 2.9, 1.5, True),
        (Goal("at most", 2, "xargs"), 3.1, 1.5, False),
        (Goal("at most", 2, "xargs"), 3.1, None, None),
    ],
)
def test_a_target_is_met_or_not(
    target: Goal, figure: float, peer: float | None, met: bool | None
) -> None:
    assert target.met_by(figure, peer) is met


def _outcome(*, quick: bool = False, peers: tuple[Peer, ...] = ()) -> Outcome:
    return Outcome(
        scenario="processes",
        question="?",
        sizes={"processes": 10},
        measured=Measurement({"seconds": 3.0, "other": 1.0}),
        peers=peers,
        targets={"seconds": Goal("at most", 2, "xargs"), "missing": Goal("at most", 1)},
        quick=quick,
    )


def test_a_verdict_compares_with_the_peer_of_the_same_run() -> None:
    outcome = _outcome(peers=(Peer("xargs", Measurement({"seconds": 1.6})),))
    assert outcome.verdict("seconds") is True
    assert (
        _outcome(peers=(Peer("xargs", Measurement({"seconds": 1.4})),)).verdict("seconds") is False
    )


def test_there_is_no_verdict_without_a_target_a_peer_or_the_full_size() -> None:
    peers = (Peer("xargs", Measurement({"seconds": 1.0})),)
    assert _outcome(peers=peers).verdict("other") is None
    assert _outcome(peers=peers).verdict("missing") is None
    assert (
        _outcome(peers=(Peer("xargs", Measurement(skipped="not installed")),)).verdict("seconds")
        is None
    )
    assert _outcome(quick=True, peers=peers).verdict("seconds") is None


def test_the_cost_of_the_work_is_among_the_figures() -> None:
    cost = Cost(pods=100, cpu_seconds=0.05, peak_rss_mb=40.0, counts={"writes": 450})
    figures = with_cost(Measurement({"pods/s": 10.0}, cost)).figures
    assert figures == {
        "pods/s": 10.0,
        "CPU per pod, µs": pytest.approx(500),
        "peak RSS, MB": 40.0,
        "writes per pod": 4.5,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(12_345.6, "12,346"), (100.4, "100"), (99.96, "100.0"), (3.14159, "3.14"), (2.0, "2")],
)
def test_numbers_show_the_digits_that_can_be_trusted(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 1.0), (50, 5.0), (90, 9.0), (99, 10.0), (100, 10.0)]
)
def test_percentiles_are_values_that_were_seen(percent: float, value: float) -> None:
    assert percentile([float(n) for n in range(10, 0, -1)], percent) == value
