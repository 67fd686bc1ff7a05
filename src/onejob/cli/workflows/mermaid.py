"""Mermaid flowchart of a workflow's graph, for Markdown pages. Pure."""

from typing import Final

from onejob.objects.workflow import Workflow
from onejob.planning.workflow.graph import build_graph
from onejob.planning.workflow.states import ON_COMPLETE

_COLOURS: Final = {
    "Complete": "#d6f5d6", "Failed": "#f8d0d0", "Skipped": "#eeeeee", "Running": "#d6e6fa",
}  # fmt: skip


def mermaid(workflow: Workflow) -> list[str]:
    """Return the lines of the flowchart; edges on failures have labels."""
    graph = build_graph(workflow.spec)
    ends = {task.name: task for task in workflow.status.tasks}
    lines = ["flowchart TD"]
    states: dict[str, list[str]] = {}
    for place, task in enumerate(graph.tasks):
        if place == graph.ordinary:
            lines.append("  subgraph finally")
        end = ends.get(task.name)
        state = "" if end is None else f"<br/>{end.state}"
        lines.append(f'  t{place}["{task.name}{state}"]')
        if end is not None:
            states.setdefault(end.state, []).append(f"t{place}")
    if graph.ordinary < len(graph.tasks):
        lines.append("  end")
    for place in graph.order:
        for dependency, condition in graph.edges[place]:
            arrow = "-->" if condition == ON_COMPLETE else f"-. {condition} .->"
            lines.append(f"  t{dependency} {arrow} t{place}")
    for state, colour in _COLOURS.items():
        if state in states:
            lines.append(f"  classDef {state.lower()} fill:{colour}")
            lines.append(f"  class {','.join(states[state])} {state.lower()}")
    return lines
