"""Text of `onejob describe` about a Workflow: its tasks and their results. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.printing import human_duration, read_time
from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import UNLIMITED
from onejob.cli.kept_runs import RunEnd
from onejob.diagnosis.ended import finish_of

Document = Mapping[str, Any]

_NONE: Final = "<none>"


def workflow_fields(workflow: Document, now: datetime, run: RunEnd | None) -> dict[str, str]:
    """Return the fields between the heading and the tasks."""
    spec, status = workflow["spec"], workflow.get("status", {})
    fields: dict[str, str] = {}
    finished = finish_of(workflow)
    if run is not None and finished is None:
        fields["Status"] = f"{run.word}: {run.cause}"
    for condition in status.get("conditions", ()):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            fields["Status"] = f"{condition['type']}: {condition.get('message', '')}"
    fields["Suspend"] = str(spec.get("suspend", False)).lower()
    for title, field in (
        ("Parallelism", "parallelism"),
        ("Active Deadline Seconds", "activeDeadlineSeconds"),
        ("TTL Seconds After Finished", "ttlSecondsAfterFinished"),
        ("Managed By", "managedBy"),
    ):
        if spec.get(field) is not None:
            fields[title] = str(spec[field])
    started = read_time(status.get("startTime"))
    if started is not None:
        fields["Start Time"] = started.strftime("%a, %d %b %Y %H:%M:%S %z")
        end = finished or (run.at if run is not None else now)
        fields["Duration"] = human_duration(max((end - started).total_seconds(), 0))
    names = ("waiting", "running", "complete", "failed", "skipped")
    fields["Tasks Statuses"] = " / ".join(
        f"{status.get(name, 0)} {name.capitalize()}" for name in names
    )
    return fields


def task_lines(workflow: Document, run: RunEnd | None) -> list[str]:
    """Return a table of the tasks, and their results. `run` is the end of an ended run."""
    spec, status = workflow["spec"], workflow.get("status", {})
    ends = {task["name"]: task for task in status.get("tasks", ())}
    rows, results = [], []
    for task in (*spec["tasks"], *spec.get("finally", ())):
        end = ends.get(task["name"], {})
        after = ",".join(
            edge["task"]
            if edge.get("condition", "Complete") == "Complete"
            else f"{edge['task']}:{edge['condition']}"
            for edge in task.get("dependsOn", ())
        )
        why = ": ".join(filter(None, (end.get("reason", ""), end.get("message", ""))))
        state = end.get("state", "Waiting")
        if run is not None and state == "Running":
            state = run.word
        rows.append([task["name"], state, after or _NONE, why])
        results += [
            f"  {task['name']}.{name}: {text}" for name, text in end.get("results", {}).items()
        ]
    table = render_table(["Name", "State", "After", "Why"], rows, UNLIMITED)
    lines = ["Tasks:", *(f"  {line}".rstrip() for line in table)]
    return [*lines, "Results:", *results] if results else lines
