"""Table rows of an ended run: no Pod is shown as running, and no duration grows. Pure.

The stored objects have the state of the moment at which the run was stopped or killed, and are
never updated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onejob.api.kinds.printing import human_duration, read_time
from onejob.cli.kept_runs import RunEnd
from onejob.diagnosis.ended import STOPPED_REASON, finish_of, has_ended

Document = Mapping[str, Any]


def ended_cells(
    document: Document, columns: Sequence[str], cells: Sequence[Any], end: RunEnd
) -> list[Any]:
    """Return the cells of an object's row, corrected for the end of the run."""
    row = dict(zip(columns, cells, strict=True))
    metadata = document["metadata"]
    match document.get("kind"):
        case "Job":
            finished = finish_of(document)
            if finished is None:
                own = end.of_job(metadata.get("namespace", ""), metadata["name"])
                row["Status"] = own.word
            started = read_time(document.get("status", {}).get("startTime"))
            if started is not None:
                seconds = ((finished or end.at) - started).total_seconds()
                row["Duration"] = human_duration(max(seconds, 0))
        case "Workflow":
            if finish_of(document) is None:
                row["Status"] = end.word
                started = read_time(document.get("status", {}).get("startTime"))
                if started is not None:
                    row["Duration"] = human_duration(max((end.at - started).total_seconds(), 0))
        case "Pod":
            if document.get("status", {}).get("reason") == STOPPED_REASON:
                row["Status"] = "Stopped"
            elif not has_ended(document):
                row["Status"] = end.word
                row["Ready"] = f"0/{len(document['spec']['containers'])}"
        case _:
            pass
    return list(row.values())
