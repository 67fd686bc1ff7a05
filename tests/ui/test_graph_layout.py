"""Layout of the graph of tasks: the page's own functions, evaluated by Node.js."""

import itertools
import random
from typing import Any

import pytest

from tests.ui.page_modules import call_all

_SIZE = {"boxWidth": 100, "boxHeight": 40, "layerGap": 50, "boxGap": 10, "down": False}


def _evaluate(*calls: list[Any]) -> list[Any]:
    return call_all("graph-layout", *calls)


def _tasks(graph: dict[str, str], last: str = "") -> list[dict[str, Any]]:
    """Return tasks from names and the letters of their dependencies."""
    return [
        {
            "name": name,
            "dependsOn": [{"task": other, "condition": "Complete"} for other in after],
            "last": name in last,
        }
        for name, after in graph.items()
    ]


def test_layers_put_each_task_after_its_dependencies_and_finally_last() -> None:
    tasks = _tasks({"d": "bc", "a": "", "b": "a", "c": "", "z": ""}, last="z")
    assert _evaluate(["layersOf", tasks]) == [[2, 0, 1, 0, 3]]


def test_layout_without_tasks_or_with_a_cycle_is_finite() -> None:
    empty, cycle = _evaluate(
        ["layOut", [], _SIZE], ["layOut", _tasks({"a": "b", "b": "a", "c": "?"}), _SIZE]
    )
    assert (empty["boxes"], empty["width"], empty["height"]) == ([], 0, 0)
    assert len(cycle["boxes"]) == 3


@pytest.mark.parametrize("down", [False, True])
def test_layout_of_random_graphs_has_no_overlap_and_edges_forward(down: bool) -> None:
    rng = random.Random(31)
    names = "abcdefghijklmnop"

    def random_graph() -> dict[str, str]:
        return {
            name: "".join(other for other in names[:i] if rng.random() < 0.2)
            for i, name in enumerate(names)
        }

    graphs = [_tasks(random_graph()) for _ in range(20)]
    size = {**_SIZE, "down": down}
    for tasks, layout in zip(
        graphs, _evaluate(*(["layOut", tasks, size] for tasks in graphs)), strict=True
    ):
        for one, other in itertools.combinations(layout["boxes"], 2):
            assert abs(one["x"] - other["x"]) >= 100 or abs(one["y"] - other["y"]) >= 40
        for box in layout["boxes"]:
            assert 0 <= box["x"] <= layout["width"] - 100
            assert 0 <= box["y"] <= layout["height"] - 40
        assert len(layout["edges"]) == sum(len(task["dependsOn"]) for task in tasks)
        for edge in layout["edges"]:
            along = [point["y" if down else "x"] for point in edge["points"]]
            assert along == sorted(along)
            assert along[0] < along[-1]


def test_layout_untangles_crossing_edges() -> None:
    (layout,) = _evaluate(["layOut", _tasks({"a": "", "b": "", "c": "b", "d": "a"}), _SIZE])
    assert layout["layers"] in ([[0, 1], [3, 2]], [[1, 0], [2, 3]])


def test_critical_path_takes_longest_chain_then_most_tasks_then_finally() -> None:
    tasks = _tasks({"a": "", "b": "a", "c": "a", "d": "bc", "e": "", "z": ""}, last="z")
    timed, untimed, side = _evaluate(
        ["criticalPath", tasks, [1, 5, 9, 2, 3, 1]],
        ["criticalPath", tasks, [0, 0, 0, 0, 0, 0]],
        ["criticalPath", tasks, [1, 1, 1, 1, 30, 1]],
    )
    assert timed == [0, 2, 3, 5]
    assert untimed == [0, 1, 3, 5]
    assert side == [4, 5]
