"""Formats of results: table, CSV, JSON and the log of GNU parallel. Pure."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onejob.cli.display.quantities import memory_text
from onejob.cli.display.results import Result


def as_table(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows for display; columns of measurements that exist."""
    names = _parameters(results)
    columns = _result_columns(results, names)
    measured = any(result.peak_bytes is not None for result in results)
    headers = ["INDEX", *names, "STATE", "EXIT", "SECONDS"]
    headers += ["CPU", "MEMORY"] if measured else []
    headers += ["TRIES", *(columns or ["RESULT"])]
    rows = []
    for result in results:
        row = [*_facts(result, names), _number(result.seconds)]
        if measured:
            row += [_number(result.cpu_seconds), _memory(result)]
        rows.append([*row, str(result.attempts), *_values(result, columns)])
    return headers, rows


def as_csv(results: Sequence[Result]) -> str:
    """Return the results as CSV, with plain numbers in seconds and bytes."""
    names = _parameters(results)
    columns = _result_columns(results, names)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["index", *names, "state", "exit", "seconds", "cpu_seconds", "peak_memory_bytes", "tries"]
        + (columns or ["result"])
    )
    for result in results:
        writer.writerow(
            [
                *_facts(result, names),
                _number(result.seconds),
                _number(result.cpu_seconds),
                "" if result.peak_bytes is None else result.peak_bytes,
                result.attempts,
                *_values(result, columns),
            ]
        )
    return out.getvalue()


def as_json(results: Sequence[Result]) -> str:
    documents = [
        {
            "index": result.index,
            "params": result.params,
            "state": result.state,
            "exitCode": result.exit_code,
            "startedAt": result.started,
            "finishedAt": result.finished,
            "seconds": result.seconds,
            "cpuSeconds": result.cpu_seconds,
            "peakMemoryBytes": result.peak_bytes,
            "attempts": result.attempts,
            "pod": result.pod,
            "result": result.value,
        }
        for result in results
    ]
    return msgspec.json.format(msgspec.json.encode(documents), indent=2).decode() + "\n"


def as_joblog(results: Sequence[Result]) -> str:
    """Return the results as `parallel --joblog` writes them, in the order of their ends.

    Bytes sent and received are unknown, and written as 0. As there, the exit value of a process
    that a signal killed is 0.
    """
    lines = ["Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand"]
    ended = [
        (result.finished, number, result)
        for number, result in enumerate(results, 1)
        if result.started is not None and result.finished is not None
    ]
    for _, number, result in sorted(ended):
        assert result.started is not None
        cells: tuple[object, ...] = (
            number if result.index is None else result.index + 1,
            ":",
            f"{result.started.timestamp():.3f}",
            f"{result.seconds:10.3f}",
            0,
            0,
            0 if result.signal else result.exit_code,
            result.signal or 0,
            # The log has one line per process.
            result.command.replace("\n", " "),
        )
        lines.append("\t".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def _parameters(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.params))


def _result_columns(results: Sequence[Result], taken: Sequence[str]) -> list[str]:
    """Return the keys of results that are JSON objects; [] if one is none, or a name is taken."""
    values = [result.value for result in results if result.state == "Succeeded" and result.text]
    if not values or not all(isinstance(value, dict) for value in values):
        return []
    keys = list(dict.fromkeys(key for value in values for key in value))
    return [f"result.{key}" if key in taken else key for key in keys]


def _facts(result: Result, names: Sequence[str]) -> list[str]:
    return [
        "" if result.index is None else str(result.index),
        *(str(result.params.get(name, "")) for name in names),
        result.state,
        "" if result.exit_code is None else str(result.exit_code),
    ]


def _values(result: Result, columns: Sequence[str]) -> list[str]:
    if not columns:
        return [result.text.rstrip("\n")]
    value = result.value if isinstance(result.value, Mapping) else {}
    return [_cell(value.get(name.removeprefix("result."), value.get(name))) for name in columns]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _number(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def _memory(result: Result) -> str:
    return "" if result.peak_bytes is None else memory_text(result.peak_bytes)
