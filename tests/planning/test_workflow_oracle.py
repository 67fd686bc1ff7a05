"""The planner against the oracle: a sample of all small graphs, and random ones.

`make workflow-oracle` runs all 7,115,283 cases, and 100,000 random ones.
"""

from random import Random

import pytest

from onejob.objects.workflow import TaskStatus
from onejob.planning.workflow import planner
from tests.planning.workflow_cases import (
    all_graphs,
    check_graph,
    disagreement,
    random_case,
    random_outcome,
    small_case,
)

_PARTS = 4


def test_there_are_29281_acyclic_graphs_of_five_tasks() -> None:
    assert sum(1 for _ in all_graphs()) == 29_281


@pytest.mark.parametrize("part", range(_PARTS))
def test_planner_agrees_with_the_oracle_on_20000_small_graphs(part: int) -> None:
    rng = Random(part)
    graphs = list(all_graphs())
    for _ in range(20_000 // _PARTS):
        problem = disagreement(small_case(rng.choice(graphs), random_outcome(rng)))
        assert not problem, problem


@pytest.mark.parametrize("part", range(_PARTS))
def test_planner_agrees_with_the_oracle_on_random_graphs(part: int) -> None:
    rng = Random(100 + part)
    for _ in range(500):
        problem = disagreement(random_case(rng), in_full=True)
        assert not problem, problem


def test_comparison_of_a_whole_graph_covers_all_outcomes() -> None:
    rng = Random(7)
    for graph in rng.sample(list(all_graphs()), 20):
        assert check_graph(graph) == 3**5


def test_comparison_of_a_whole_graph_finds_a_wrong_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_complete(_condition: str, end: TaskStatus) -> bool:
        return end.state == "Complete"

    monkeypatch.setattr(planner, "satisfies", is_complete)
    # A task skipped by its `when` satisfies the edge as well.
    with pytest.raises(AssertionError, match="oracle"):
        check_graph(((), (0,), (), (), ()))
