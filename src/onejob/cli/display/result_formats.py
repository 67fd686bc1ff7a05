"""Formats of results: table, JSON and the log of GNU parallel. Pure."""

from collections.abc import Sequence

import msgspec

from onejob.cli.display.quantities import memory_text
from onejob.diagnosis.result_table import (
    facts,
    number_text,
    parameters,
    result_columns,
    result_values,
)
from onejob.diagnosis.results import Result


def as_table(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows for display; columns of measurements that exist."""
    names = parameters(results)
    columns = result_columns(results, names)
    measured = any(result.peak_bytes is not None for result in results)
    headers = ["INDEX", *names, "STATE", "EXIT", "SECONDS"]
    headers += ["CPU", "MEMORY"] if measured else []
    headers += ["TRIES", *(columns or ["RESULT"])]
    rows = []
    for result in results:
        row = [*facts(result, names), number_text(result.seconds)]
        if measured:
            row += [number_text(result.cpu_seconds), _memory(result)]
        rows.append([*row, str(result.attempts), *result_values(result, columns)])
    return headers, rows


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


def _memory(result: Result) -> str:
    return "" if result.peak_bytes is None else memory_text(result.peak_bytes)
