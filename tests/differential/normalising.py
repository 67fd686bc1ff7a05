"""Normalization of values that differ between servers: times, UIDs, revisions, random names."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_UID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
#: Names that CronJobs give to Jobs: minutes since 1970.
_SLOT: Final = re.compile(r"-\d{8}\b")
#: Pods that are named only in an event.
_POD_IN_EVENT: Final = re.compile(r"^((?:Created|Deleted) pod: .*)-[a-z0-9]{5}$")
_JOB_IN_EVENT: Final = re.compile(r"^((?:Created|Deleted) job .*-)[a-z0-9]{5}$")

_DROPPED_METADATA: Final = frozenset(
    ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "namespace")
)
#: Cells whose text depends on a duration.
_AGES: Final = frozenset(("Age", "Duration", "Last Schedule", "Last Seen", "First Seen"))
_AGE: Final = re.compile(r"^(\d+[dhms])+$")

#: Values that errors quote: Kubernetes shows its internal form of them, in Go's names.
_QUOTED: Final = re.compile(r"Invalid value: [{\[].*[}\]]: ")

Names = Mapping[str, str]


def normalised(value: Any, names: Names) -> Any:
    """Return the value with placeholders. `names`: random name -> placeholder."""
    match value:
        case {"kind": "Status", "details": {"causes": list()}}:
            return _status(value, names)
        case dict():
            return {
                _text(key, names): _metadata(entry, names)
                if key == "metadata"
                else normalised(entry, names)
                for key, entry in value.items()
            }
        case list():
            return [normalised(entry, names) for entry in value]
        case str():
            return _text(value, names)
        case _:
            return value


def _status(status: dict[str, Any], names: Names) -> dict[str, Any]:
    """Normalize an error with causes, which Kubernetes returns in the random order of a Go map."""
    details = normalised(dict(status["details"]), names)
    details["causes"] = in_order(details["causes"])
    plain = {key: value for key, value in status.items() if key != "details"}
    if len(details["causes"]) > 1:
        plain["message"] = status["message"].partition(": ")[0] + ": …"
    return {**normalised(plain, names), "details": details}


def _metadata(value: Any, names: Names) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {key: entry for key, entry in value.items() if key not in _DROPPED_METADATA}
    return normalised(kept, names)


def _text(text: str, names: Names) -> str:
    for name, stands_for in names.items():
        if name in text:
            text = text.replace(name, stands_for)
    text = _QUOTED.sub("Invalid value: …: ", text)
    text = _POD_IN_EVENT.sub(r"\1-*", text)
    text = _JOB_IN_EVENT.sub(r"\1*", text)
    text = _TIME.sub("<time>", _UID.sub("<uid>", text))
    return _SLOT.sub("-<slot>", text)


def table(document: dict[str, Any]) -> dict[str, Any]:
    """Return a Table without time-dependent cells, and without the objects."""
    columns = document["columnDefinitions"]
    rows = [
        [
            "<age>" if column["name"] in _AGES and _AGE.match(str(cell)) else cell
            for column, cell in zip(columns, row["cells"], strict=True)
        ]
        for row in document["rows"]
    ]
    return {
        "columns": [[column["name"], column["type"], column["priority"]] for column in columns],
        "rows": sorted(rows, key=json.dumps),
    }


def in_order(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
