"""Printer columns and simple JSON paths: `.spec.replicas`, `.status.conditions[0].type`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.api.kinds.printing import NAME, name_of, since
from onejob.api.strategy import Document

AGE_COLUMN: Final = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
}

_STEP: Final = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\'"{}\s?@()*])+)"""
    r"""|\[(?P<index>-?\d+)\]"""
    r"""|\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]"""
    r"""|\[\?\(@\.(?P<field>[^=\s]+)\s*==\s*(?P<mark>['"])(?P<wanted>.*?)(?P=mark)\)\]"""
    r"""|(?P<all>\[\*\])"""
)


class BadPath(ValueError):
    """The path is not a JSON path of this subset."""


def parse_path(text: str) -> "JsonPath":
    """Return the parsed path. Raises BadPath."""
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise BadPath(f"unrecognized path {text!r} at {position}")
        steps.append(_parse_step(match))
        position = match.end()
    if not steps:
        raise BadPath("the path is empty")
    return JsonPath(steps)


class Step(msgspec.Struct, frozen=True):
    """Step of a JSON path: a field name, a list index, or list items.

    `name` or `index` is set; if neither is, the step selects the items whose `field` has the text
    `wanted`, or all items if `field` is empty.
    """

    name: str | None = None
    index: int | None = None
    field: tuple[str, ...] = ()
    wanted: str = ""


def _parse_step(match: "re.Match[str]") -> Step:
    """Return the step of a match of `_STEP`."""
    if match["name"] is not None:
        return Step(re.sub(r"\\(.)", r"\1", match["name"]))
    if match["index"] is not None:
        return Step(index=int(match["index"]))
    if match["key"] is not None:
        return Step(match["key"])
    if match["field"] is not None:
        return Step(field=tuple(match["field"].split(".")), wanted=match["wanted"])
    return Step()


class JsonPath:
    """Parsed JSON path."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    def first(self, value: Any) -> Any:
        """Return the first value at the path; None if there is none."""
        return next(self._values_from(value, 0), None)

    def all(self, value: Any) -> list[Any]:
        """Return all values at the path, in document order."""
        return list(self._values_from(value, 0))

    def _values_from(self, value: Any, number: int) -> Iterator[Any]:
        """Yield the values that the steps from `number` on select in `value`."""
        if number == len(self._steps):
            yield value
            return
        for found in _select(value, self._steps[number]):
            yield from self._values_from(found, number + 1)


def _select(value: Any, step: Step) -> Iterator[Any]:
    """Yield the values that one step of a JSON path selects."""
    if step.name is not None:
        if isinstance(value, dict) and step.name in value:
            yield value[step.name]
    elif step.index is not None:
        if isinstance(value, list) and -len(value) <= step.index < len(value):
            yield value[step.index]
    elif isinstance(value, list):
        for item in value:
            if not step.field or _value_at(item, step.field) == step.wanted:
                yield item


def _value_at(value: Any, names: Sequence[str]) -> Any:
    """Return the value at nested field names; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class Columns:
    """Columns of a custom kind in Tables; by default its name and age.

    Columns with an invalid path have empty cells.
    """

    def __init__(self, raw: Sequence[Mapping[str, Any]]) -> None:
        raw = raw or [AGE_COLUMN]
        self.definitions: list[dict[str, Any]] = [NAME, *map(_definition, raw)]
        self._cells = [(column["type"], _path_or_none(column["jsonPath"])) for column in raw]

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        """Return the cells of an object, the name first; None for a column without a value."""
        found: list[Any] = [name_of(doc)]
        for kind, path in self._cells:
            value = None if path is None else path.first(doc)
            found.append(None if value is None else _cell(kind, value, now))
        return found


def _path_or_none(text: str) -> JsonPath | None:
    """Return the parsed path; None if it is invalid."""
    try:
        return parse_path(text)
    except BadPath:
        return None


def _definition(column: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a column in a Table."""
    described = f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
    return {
        "name": column["name"],
        "type": column["type"],
        "format": column.get("format", ""),
        "description": column.get("description") or described,
        "priority": column.get("priority", 0),
    }


def _cell(kind: str, value: Any, now: datetime) -> Any:
    """Return a value as a cell of the column's type; None if it has another type."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "integer":
            return int(value) if number else None
        case "number":
            return float(value) if number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return _age_or_invalid(value, now) if isinstance(value, str) else None
        case _:
            return printed(value)


def _age_or_invalid(time: str, now: datetime) -> str:
    """Return the age of a timestamp; `<invalid>` if it is malformed."""
    try:
        return since(time, now)
    except ValueError:
        return "<invalid>"


def printed(value: Any) -> str:
    """Return a JSON value as Go's templates print it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return msgspec.json.encode(value, order="sorted").decode()
