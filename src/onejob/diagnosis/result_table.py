"""Results of a Job as a table: columns of parameters and of results, and CSV. Pure."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onejob.diagnosis.results import Result


def as_csv(results: Sequence[Result]) -> str:
    """Return the results as CSV, with plain numbers in seconds and bytes."""
    names = parameters(results)
    columns = result_columns(results, names)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["index", *names, "state", "exit", "seconds", "cpu_seconds", "peak_memory_bytes", "tries"]
        + (columns or ["result"])
    )
    for result in results:
        writer.writerow(
            [
                *facts(result, names),
                number_text(result.seconds),
                number_text(result.cpu_seconds),
                "" if result.peak_bytes is None else result.peak_bytes,
                result.attempts,
                *result_values(result, columns),
            ]
        )
    return out.getvalue()


def parameters(results: Sequence[Result]) -> list[str]:
    """Return the names of all parameters."""
    return list(dict.fromkeys(name for result in results for name in result.params))


def result_columns(results: Sequence[Result], taken: Sequence[str]) -> list[str]:
    """Return the keys of results that are JSON objects; [] if one is none, or a name is taken."""
    values = [result.value for result in results if result.state == "Succeeded" and result.text]
    if not values or not all(isinstance(value, dict) for value in values):
        return []
    keys = list(dict.fromkeys(key for value in values for key in value))
    return [f"result.{key}" if key in taken else key for key in keys]


def facts(result: Result, names: Sequence[str]) -> list[str]:
    """Return index, parameters, state and exit code."""
    return [
        "" if result.index is None else str(result.index),
        *(str(result.params.get(name, "")) for name in names),
        result.state,
        "" if result.exit_code is None else str(result.exit_code),
    ]


def result_values(result: Result, columns: Sequence[str]) -> list[str]:
    """Return the cells of the result: one for each of its columns, or its text."""
    if not columns:
        return [result.text.rstrip("\n")]
    value = result.value if isinstance(result.value, Mapping) else {}
    return [_cell(value.get(name.removeprefix("result."), value.get(name))) for name in columns]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def number_text(seconds: float | None) -> str:
    """Return a number of seconds, without trailing zeros; "" for None."""
    if seconds is None:
        return ""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
