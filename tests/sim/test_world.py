"""A few worlds on each commit; `make sim` simulates many more."""

import pytest

from sim.world import Node, simulate


@pytest.mark.parametrize("seed", range(100000, 100008))
def test_no_history_breaks_a_promise(seed: int) -> None:
    verdict = simulate(seed)
    assert not verdict.problems


@pytest.mark.parametrize("seed", range(100010, 100014))
def test_no_kill_of_the_supervisor_loses_or_doubles_a_process(seed: int) -> None:
    verdict = simulate(seed, often=("supervisor killed", "late request"), node="processes")
    assert not verdict.problems
    assert verdict.faults["supervisor killed"]


@pytest.mark.parametrize("node", ["machine", "processes"])
def test_same_seed_gives_same_history(node: Node) -> None:
    one, other = simulate(5, node=node), simulate(5, node=node)
    assert (one.trace, one.versions) == (other.trace, other.versions)


def test_a_server_that_finds_no_supervisor_is_started_again() -> None:
    verdict = simulate(8, often=("no supervisor", "crash after a commit"), node="processes")
    assert not verdict.problems
    assert any("cannot run" in text for _, text in verdict.trace)
