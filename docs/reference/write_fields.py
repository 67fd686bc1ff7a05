"""Writes the inventory of fields.md from fields.toml and the schema of the served API.

Usage: `python docs/reference/write_fields.py`
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from onejob.api.schema.schema import load_definitions

SOURCE = Path(__file__).with_name("fields.toml")
TARGET = Path(__file__).with_name("fields.md")
BEGIN = "<!-- Written by write_fields.py. -->\n"
END = "<!-- End of the inventory. -->\n"
VERDICTS = ("acts", "acts in process", "acts in podman", "refused", "warned", "informational")
ROOTS = ("batch.v1.JobSpec", "batch.v1.CronJobSpec", "core.v1.PodSpec")
_PREFIX = "io.k8s."


class Row(NamedTuple):
    type: str
    fields: tuple[str, ...]
    verdict: str
    note: str
    tests: tuple[str, ...]

    @property
    def is_pattern(self) -> bool:
        return "*" in self.type


class Inventory(NamedTuple):
    """The row of each field, and the defects that the build refuses."""

    decided: Mapping[tuple[str, str], Row]
    undecided: Sequence[str]
    superfluous: Sequence[str]


def read_rows(text: str) -> list[Row]:
    return [
        Row(
            row["type"],
            tuple(row["fields"]),
            row["verdict"],
            row.get("note", ""),
            tuple(row.get("tests", ())),
        )
        for row in tomllib.loads(text)["rows"]
    ]


def fields_of(types: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each type and field that the specs of Jobs, CronJobs and Pods are made of."""
    waiting, seen = [_full(root, types) for root in ROOTS], set[str]()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        for field, shape in (types.get(name, {}).get("properties") or {}).items():
            yield short(name), field
            waiting += _references(shape)


def short(name: str) -> str:
    return name.removeprefix(_PREFIX).removeprefix("api.")


def decide(rows: Sequence[Row], fields: Sequence[tuple[str, str]]) -> Inventory:
    decided: dict[tuple[str, str], Row] = {}
    undecided = []
    for type_, field in fields:
        found = [row for row in rows if fnmatchcase(type_, row.type) and _covers(row, field)]
        if found:
            decided[type_, field] = min(found, key=lambda row: _vagueness(row, field))
        else:
            undecided.append(f"{type_}.{field}")
    superfluous = [
        f"{row.type}.{name}"
        for row in rows
        for name in row.fields
        if not any(
            fnmatchcase(type_, row.type) and name in (field, "*") and decided[type_, field] is row
            for type_, field in decided
        )
    ]
    return Inventory(decided, undecided, superfluous)


def inventory() -> Inventory:
    return decide(read_rows(SOURCE.read_text()), list(fields_of(load_definitions()[0])))


def render() -> str:
    """Return the page with a new inventory."""
    head, _, rest = TARGET.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(inventory())}\n{END}{tail}"


def table(found: Inventory) -> str:
    counts = Counter(row.verdict for row in found.decided.values())
    lines = ["| verdict | fields |", "|---|---|"]
    lines += [f"| {verdict} | {counts[verdict]} |" for verdict in VERDICTS]
    lines += [f"| all | {len(found.decided)} |", ""]
    lines += ["| type | fields | verdict | remarks |", "|---|---|---|---|"]
    groups: dict[tuple[str, Row], list[str]] = {}
    for (type_, field), row in found.decided.items():
        groups.setdefault((type_, row), []).append(f"`{field}`")
    for (type_, row), names in sorted(groups.items(), key=lambda item: item[0][0]):
        cells = (type_.rpartition(".")[2], ", ".join(names), row.verdict, row.note)
        lines.append("| " + " | ".join(cells).rstrip() + " |")
    return "\n".join((*lines, ""))


def _full(name: str, types: Mapping[str, Any]) -> str:
    return next(each for each in types if short(each) == name)


def _references(shape: Any) -> Iterator[str]:
    if isinstance(shape, Mapping):
        if "$ref" in shape:
            yield shape["$ref"].rpartition("/")[2]
        for value in shape.values():
            yield from _references(value)
    elif isinstance(shape, list):
        for value in shape:
            yield from _references(value)


def _covers(row: Row, field: str) -> bool:
    return field in row.fields or "*" in row.fields


def _vagueness(row: Row, field: str) -> tuple[bool, bool, int]:
    return field not in row.fields, row.is_pattern, -len(row.type)


if __name__ == "__main__":
    TARGET.write_text(render())
