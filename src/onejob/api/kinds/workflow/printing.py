"""Table columns of Workflows and CronWorkflows."""

from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.printing import (
    AGE,
    CRONJOB_COLUMNS,
    NAME,
    NONE,
    age,
    column,
    human_duration,
    name_of,
    read_time,
    since,
)
from onejob.api.strategy import Document

WORKFLOW_COLUMNS: Final = [
    NAME,
    column("Status", "Status of the workflow."),
    column("Tasks", "How many tasks have ended, of how many."),
    column("Failed", "How many tasks failed.", type="integer"),
    column("Duration", "Time between the start of the workflow and its end, or until now."),
    AGE,
    column("Running", "Tasks that run now.", wide=True),
]
#: Names in the column of running tasks.
_MAX_NAMES: Final = 5

#: Those of a CronJob without those of its template.
CRONWORKFLOW_COLUMNS: Final = CRONJOB_COLUMNS[:7]

#: Conditions in order of precedence for the status column. None is the rank of a deletion.
_STATUS_ORDER: Final = ("Complete", "Failed", None, "Suspended", "FailureTarget")


def workflow_cells(doc: Document, now: datetime) -> list[Any]:
    spec, status = doc.get("spec", {}), doc.get("status", {})
    count = len(spec.get("tasks", ())) + len(spec.get("finally", ()))
    ended = sum(status.get(state, 0) for state in ("complete", "failed", "skipped"))
    running = [
        task.get("name", "") for task in status.get("tasks", ()) if task.get("state") == "Running"
    ]
    more = ",..." if len(running) > _MAX_NAMES else ""
    return [
        name_of(doc),
        _status(doc),
        f"{ended}/{count}",
        status.get("failed", 0),
        _duration(doc, now),
        age(doc, now),
        ",".join(running[:_MAX_NAMES]) + more or NONE,
    ]


def cronworkflow_cells(doc: Document, now: datetime) -> list[Any]:
    spec, status = doc.get("spec", {}), doc.get("status", {})
    last = status.get("lastScheduleTime")
    return [
        name_of(doc),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(spec.get("suspend", False)),
        len(status.get("active", ())),
        since(last, now) if last else NONE,
        age(doc, now),
    ]


def _status(doc: Document) -> str:
    true = _true_conditions(doc)
    for condition in _STATUS_ORDER:
        if condition is None:
            if "deletionTimestamp" in doc["metadata"]:
                return "Terminating"
        elif condition in true:
            return condition
    return "Running"


def _duration(doc: Document, now: datetime) -> str:
    started = read_time(doc.get("status", {}).get("startTime"))
    if started is None:
        return ""
    true = _true_conditions(doc)
    end = read_time(true.get("Complete") or true.get("Failed")) or now
    return human_duration((end - started).total_seconds())


def _true_conditions(doc: Document) -> dict[str, str | None]:
    """Return the time since when each condition is true."""
    return {
        condition.get("type", ""): condition.get("lastTransitionTime")
        for condition in doc.get("status", {}).get("conditions", ())
        if condition.get("status") == "True"
    }
