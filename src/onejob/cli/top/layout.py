"""Text layout of a snapshot, fitted to a terminal. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from onejob.cli.display.quantities import memory_text
from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import visible
from onejob.cli.sources.usage import Usage
from onejob.cli.top.snapshot import JobRow, NodeRow, ObjectRow, PodUsageRow, TopSnapshot, in_order
from onejob.diagnosis.durations import short_seconds
from onejob.planning.progress import progress_bar

_NODE_HEADERS: Final = ("NODE", "CPU", "MEMORY", "PODS")
_JOB_HEADERS: Final = ("JOB", "STATE", "PODS", "DONE", "FAILED", "CPU", "MEMORY", "AGE")
_POD_HEADERS: Final = ("POD", "STATE", "RESTARTS", "CPU", "MEMORY", "AGE")
_KEYS: Final = "sorted by {key}; keys: c cpu, m memory, a age, n name, q quit"
#: Divisor of the remaining height: on a low terminal, Jobs get at most this part of it.
_JOBS_PART: Final = 2
#: Rows shown per section, however low the terminal is.
_MIN_ROWS: Final = 1


def as_lines(
    snapshot: TopSnapshot, key: str, width: int, height: int | None = None, title: str = ""
) -> list[str]:
    """Return the lines of a snapshot, sorted by `key`.

    Without a `height` all rows are returned; with one, rows that do not fit are counted instead of
    shown. A `title` adds two header lines.
    """
    lines: list[str] = []
    if title:
        lines += [
            _truncate(f"{title}  {_summary(snapshot)}", width),
            _truncate(_KEYS.format(key=key), width),
        ]
    lines += [_truncate(f"note: {note}", width) for note in snapshot.notes]
    if snapshot.nodes:
        rows = [_node_row(node) for node in snapshot.nodes]
        lines += [*_separator(lines), *render_table(_NODE_HEADERS, rows, width, whole=0)]
    reports = any(line.progress is not None for line in snapshot.jobs)
    jobs = [_job_row(line, reports=reports) for line in in_order(snapshot.jobs, key)]
    job_headers = (*_JOB_HEADERS, "PROGRESS") if reports else _JOB_HEADERS
    pods = [_pod_row(line) for line in in_order(snapshot.pods, key)]
    left = None if height is None else height - len(lines)
    for number, (headers, rows) in enumerate(((job_headers, jobs), (_POD_HEADERS, pods))):
        room = None if left is None else (left // _JOBS_PART if not number and pods else left)
        part = _section(headers, rows, width, room, spaced=bool(lines))
        lines += part
        left = None if left is None else left - len(part)
    if not jobs and not pods:
        lines += [*_separator(lines), "No active Jobs."]
    return lines if height is None else lines[:height]


def _section(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    room: int | None,
    *,
    spaced: bool,
) -> list[str]:
    if not rows:
        return []
    # A screen that is redrawn must not wrap: here even names are truncated.
    space = [""] if spaced else []
    if room is None or len(rows) <= room - len(space) - 1:
        return [*space, *render_table(headers, rows, width, whole=0)]
    # One line for the headers, one for the number of omitted rows.
    shown = max(_MIN_ROWS, room - len(space) - 2)
    more = _truncate(f"... and {len(rows) - shown} more", width)
    return [*space, *render_table(headers, rows[:shown], width, whole=0), more]


def _separator(lines: list[str]) -> list[str]:
    return [""] if lines else []


def _summary(snapshot: TopSnapshot) -> str:
    texts = [snapshot.at.strftime("%H:%M:%SZ")]
    for name, lines in (("Jobs", snapshot.jobs), ("Pods", snapshot.pods)):
        states = Counter(line.state for line in lines)
        texts.append(f"{name}: {_counts(states)}")
    return "  ".join(texts)


def _counts(states: Counter[str]) -> str:
    return ", ".join(f"{n} {state.lower()}" for state, n in states.most_common()) or "none"


def _node_row(node: NodeRow) -> list[str]:
    cpu = memory = "-"
    if node.usage is not None:
        cpu = _share_text(
            f"{node.usage.cpu_millicores / 1000:.1f}",
            f"{node.cpu_capacity_millicores / 1000:g}",
            node.usage.cpu_millicores,
            node.cpu_capacity_millicores,
        )
        memory = _share_text(
            memory_text(node.usage.memory_bytes),
            memory_text(node.memory_capacity_bytes),
            node.usage.memory_bytes,
            node.memory_capacity_bytes,
        )
    return [node.name, cpu, memory, f"{node.pods}/{node.pods_capacity}"]


def _share_text(used: str, capacity: str, amount: int, whole: int) -> str:
    share = f" ({amount * 100 // whole}%)" if whole else ""
    return f"{used}/{capacity}{share}"


def _job_row(line: JobRow, *, reports: bool) -> list[str]:
    done = str(line.succeeded)
    if line.completions is not None:
        done += f"/{line.completions}"
    return [
        f"{line.namespace}/{line.name}",
        line.state,
        str(line.active),
        done,
        str(line.failed),
        *_usage_cells(line.usage),
        _age(line),
        *([_progress_bar(line)] if reports else ()),
    ]


def _progress_bar(line: JobRow) -> str:
    """Return the bar of the progress that the Job reports; "-" if it reports none."""
    return "-" if line.progress is None else progress_bar(line.progress, width=10)


def _pod_row(line: PodUsageRow) -> list[str]:
    name = f"{line.namespace}/{line.name}"
    return [name, line.state, str(line.restarts), *_usage_cells(line.usage), _age(line)]


def _usage_cells(usage: Usage | None) -> tuple[str, str]:
    if usage is None:
        return "-", "-"
    return f"{usage.cpu_millicores}m", memory_text(usage.memory_bytes)


def _age(line: ObjectRow) -> str:
    return short_seconds(line.age_seconds)


def _truncate(text: str, width: int) -> str:
    text = visible(text).replace("\n", " ")
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
