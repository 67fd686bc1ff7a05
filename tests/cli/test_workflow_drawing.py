"""Drawings of graphs: rows of tasks with lanes, Mermaid, and the rows of the live display."""

import io
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from onejob.cli.run.live import draw_jobs
from onejob.cli.run.progress import RunProgress
from onejob.cli.workflows.drawing import draw
from onejob.cli.workflows.mermaid import mermaid
from onejob.cli.workflows.progress import WorkflowProgress
from onejob.objects.workflow import TaskStatus, Workflow, WorkflowStatus, read_workflow
from tests.build import Document, a_task, a_workflow
from tests.cli.build import NOON, a_job, after


def workflow(*tasks: Document, **spec: Any) -> Workflow:
    return read_workflow(msgspec.json.encode(a_workflow("w", *tasks, **spec)))


def test_draw_joins_lanes_of_a_diamond() -> None:
    diamond = workflow(a_task("a"), a_task("b", "a"), a_task("c", "a"), a_task("d", "b", "c"))
    assert draw(diamond, 80) == ["● a", "├─╮", "│ ● b", "● │ c", "├─╯", "● d"]


def test_draw_crosses_lanes_that_do_not_end() -> None:
    tasks = [a_task("a"), a_task("b"), a_task("c"), a_task("d", "a", "c"), a_task("e", "b", "d")]
    assert draw(workflow(*tasks), 80) == [
        "● a",
        "│ ● b",
        "│ │ ● c",
        "├─│─╯",
        "● │ d",
        "├─╯",
        "● e",
    ]


def test_draw_states_conditions_of_edges_and_when() -> None:
    tasks = [a_task("a"), a_task("b", "a:Failed", when='tasks.a.state ==\n  "Failed"')]
    drawn = draw(workflow(*tasks, **{"finally": [a_task("z")]}), 80)
    assert drawn == [
        "● a",
        '● b  (if a fails, when tasks.a.state == "Failed")',
        "finally:",
        "● z",
    ]


@pytest.mark.parametrize("width", [20, 80])
def test_draw_fits_the_width_with_every_task_once_after_its_dependencies(width: int) -> None:
    random = Random(31)
    for _ in range(200):
        names = [f"t{number}" for number in range(random.randint(1, 30))]
        tasks = [
            a_task(name, *random.sample(names[:place], random.randint(0, min(place, 4))))
            for place, name in enumerate(names)
        ]
        lines = draw(workflow(*tasks), width)
        assert max(map(len, lines)) <= width
        drawn = [line.split()[-1] for line in lines if "●" in line]
        assert sorted(drawn) == sorted(names)
        rows = {name: number for number, name in enumerate(drawn)}
        for task in tasks:
            for edge in task.get("dependsOn", ()):
                assert rows[edge["task"]] < rows[task["name"]]


def test_draw_lists_dependencies_without_room_for_lanes() -> None:
    wide = [a_task(f"t{number}") for number in range(60)]
    names = [task["name"] for task in wide]
    lines = draw(workflow(*wide, a_task("end", *names)), 80)
    assert lines[:2] == ["● t0", "● t1"]
    assert lines[60] == "  ● end"
    assert lines[61].startswith("    after t0, t1, ")


def test_draw_uses_ascii_for_other_encodings() -> None:
    lines = draw(workflow(a_task("a"), a_task("b", "a")), 80, ascii_only=True)
    assert all(line.isascii() for line in lines)


def test_mermaid_labels_edges_and_groups_finally() -> None:
    tasks = workflow(a_task("a"), a_task("b", "a:Failed"), **{"finally": [a_task("z")]})
    assert mermaid(tasks) == [
        "flowchart TD",
        '  t0["a"]',
        '  t1["b"]',
        "  subgraph finally",
        '  t2["z"]',
        "  end",
        "  t0 -. Failed .-> t1",
    ]


@pytest.mark.parametrize("width", [60, 100])
def test_live_display_shows_running_and_waiting_tasks_of_a_workflow(width: int) -> None:
    etl = workflow(a_task("a"), a_task("b", "a"), a_task("c", "b"))
    waits = TaskStatus(name="b", state="Waiting", message="waits for a")
    tasks = (TaskStatus(name="a", state="Running", job_uid="u"), waits)
    status = WorkflowStatus(running=1, waiting=1, tasks=tasks)
    run = RunProgress(workflows={"w": WorkflowProgress(replace(etl, status=status), NOON)})
    run.expect(a_job("w-a"), NOON).workflow = "w"
    console = Console(file=io.StringIO(), width=width, height=24)
    with console.capture() as capture:
        console.print(draw_jobs(run, after(3), 24))
    lines = capture.get().splitlines()
    assert [line.split()[0] for line in lines] == ["workflow/w", "b", "job/w-a"]
    assert "1 running, 1 waiting 3.0s" in lines[0]
    assert "waits for a" in lines[1]
    assert max(map(len, lines)) <= width
