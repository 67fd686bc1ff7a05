"""Text drawing of a workflow's graph: a row per task, with lanes for edges. Pure.

A lane stays open until all dependants of its task are drawn. A graph with more lanes than fit is
drawn as a list instead.
"""

from collections.abc import Sequence
from typing import Final

from onejob.cli.display.terminal import visible
from onejob.objects.workflow import Task, Workflow
from onejob.planning.workflow.graph import Graph, build_graph
from onejob.planning.workflow.states import ON_COMPLETE

_SYMBOLS: Final = {
    "Complete": "✓", "Failed": "✗", "Skipped": "○", "Running": "▶", "Waiting": "·",
    "Stopped": "■",
}  # fmt: skip
_PLAIN: Final = str.maketrans("✓✗○▶·■●│├┤┼╭╮╰╯┬┴─…", "+xo>.=*||||,.`'--- ")
#: Share of the width that lanes may take.
_LANES: Final = 0.4
_MAX_LANES: Final = 40
_NO_TASK: Final = -1


def draw(workflow: Workflow, width: int, *, ascii_only: bool = False) -> list[str]:
    """Return the lines of the drawing, none of which is longer than `width`."""
    graph = build_graph(workflow.spec)
    ends = {task.name: task for task in workflow.status.tasks}
    texts, symbols = [], []
    for task in graph.tasks:
        end = ends.get(task.name)
        symbols.append("●" if end is None else _SYMBOLS.get(end.state, "?"))
        parts = [task.name]
        if end is not None:
            parts.append(end.state)
            detail = end.message if end.state != "Complete" else ""
            parts.append(f"({end.reason}: {detail})" if end.reason and detail else end.reason)
        else:
            parts.append(_conditions(task))
        texts.append("  ".join(part for part in parts if part))
    most = min(_MAX_LANES, int(min(width, 200) * _LANES) // 2)
    rows = _with_lanes(graph, symbols, most) or _without_lanes(graph, symbols, most)
    lines = [_cut(f"{head} {texts[place]}" if place != _NO_TASK else head, width)
             for head, place in rows]  # fmt: skip
    if graph.ordinary < len(graph.tasks):
        lines.append("finally:")
        lines += [
            _cut(f"{symbols[place]} {texts[place]}", width)
            for place in range(graph.ordinary, len(graph.tasks))
        ]
    return [line.translate(_PLAIN) for line in lines] if ascii_only else lines


def _conditions(task: Task) -> str:
    """Return what a task that has not run depends on, beyond the completion of its lanes."""
    verbs = {"Failed": "fails", "Finished": "ends"}
    parts = [
        f"if {edge.task} {verbs.get(edge.condition, edge.condition)}"
        for edge in task.depends_on
        if edge.condition != ON_COMPLETE
    ]
    if task.when:
        parts.append(f"when {' '.join(task.when.split())}")
    return f"({', '.join(parts)})" if parts else ""


def _with_lanes(graph: Graph, symbols: Sequence[str], most: int) -> list[tuple[str, int]]:
    """Return heads of rows and the positions of their tasks; [] with more than `most` lanes."""
    left = [0] * len(graph.tasks)
    for edges in graph.edges:
        for dependency, _ in edges:
            left[dependency] += 1
    lanes: list[int | None] = []
    rows: list[tuple[str, int]] = []
    for place in graph.order:
        own: set[int] = set()
        for dependency, _ in graph.edges[place]:
            left[dependency] -= 1
            own.add(lanes.index(dependency))
        closing = {lane for lane in own if not left[lanes[lane] or 0]}
        lane = min(closing) if closing else _free_lane(lanes)
        if lane >= most:
            return []
        if own - {lane}:
            rows.append((_connector(lanes, own, closing, lane), _NO_TASK))
        for closed in closing:
            lanes[closed] = None
        cells = [" " if task is None else "│" for task in lanes]
        cells += [" "] * (lane + 1 - len(cells))
        cells[lane] = symbols[place]
        rows.append((" ".join(cells).rstrip(), place))
        if left[place]:
            lanes += [None] * (lane + 1 - len(lanes))
            lanes[lane] = place
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


def _free_lane(lanes: Sequence[int | None]) -> int:
    return next((number for number, task in enumerate(lanes) if task is None), len(lanes))


def _connector(lanes: Sequence[int | None], own: set[int], closing: set[int], lane: int) -> str:
    """Return the row that joins the lanes `own` to the lane of the next task."""
    first, last = min(*own, lane), max(*own, lane)
    text = ""
    for number in range(max(len(lanes), lane + 1)):
        passes = number < len(lanes) and lanes[number] is not None
        if number in own or number == lane:
            above = number in own
            below = number == lane or number not in closing
            text += _corner(above=above, below=below, first=number == first, last=number == last)
        else:
            text += "│" if passes else "─" if first < number < last else " "
        text += "─" if first <= number < last else " "
    return text.rstrip()


def _corner(*, above: bool, below: bool, first: bool, last: bool) -> str:
    if above and below:
        return "├" if first else "┤" if last else "┼"
    if above:
        return "╰" if first else "╯" if last else "┴"
    return "╭" if first else "╮" if last else "┬"


def _without_lanes(graph: Graph, symbols: Sequence[str], most: int) -> list[tuple[str, int]]:
    """Return a row per task, indented by the longest path to it, and a row of its dependencies."""
    depth = [0] * len(graph.tasks)
    rows = []
    for place in graph.order:
        edges = graph.edges[place]
        depth[place] = 1 + max((depth[other] for other, _ in edges), default=-1)
        indent = "  " * min(depth[place], most)
        rows.append((f"{indent}{symbols[place]}", place))
        if edges:
            names = ", ".join(graph.tasks[other].name for other, _ in edges)
            rows.append((f"{indent}  after {names}", _NO_TASK))
    return rows


def _cut(line: str, width: int) -> str:
    line = visible(line)
    return line if len(line) <= width else f"{line[: max(width - 1, 0)]}…"
