"""Write the figures of docs/comparison.md and bench/README.md from recorded benchmark runs.

    python bench/publish.py            # rewrite the tables between the `figures` comments
    python bench/publish.py --check    # exit 1 if a table differs from the records

Only the newest record of a scenario in `results/history.jsonl` is published, with its commit,
machine and ratio to the limit or peer of the same run. Run `make bench` first, on a quiet machine.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HISTORY = ROOT / "bench" / "results" / "history.jsonl"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


class Row(NamedTuple):
    question: str
    scenario: str
    figure: str
    unit: str
    #: Name of the limit or peer of the same run that the ratio is to.
    beside: str = ""


_POD_RATE = ("pods/s", "Pods/s", "limit: bare loop")
#: The rows of docs/comparison.md.
SUMMARY = (
    Row("a hello Job, the whole command", "cold-start", "seconds", "s"),
    Row("a one-Pod Job, created to Complete, simulated node", "latency", "p50, ms", "ms"),
    Row("one Job, parallelism 10, simulated node", "parallelism-10", *_POD_RATE),
    Row("one Job, parallelism 100, simulated node", "parallelism-100", *_POD_RATE),
    Row("10⁵ completions, simulated node", "giant", "seconds", "s", "limit: bare loop"),
    Row("… Indexed", "giant-indexed", "seconds", "s", "limit: bare loop"),
    Row("2,000 real `/bin/true` processes, 8 at once", "processes", "seconds", "s", "xargs"),
    Row("API creates, 1 client", "api", "creates/s, 1 client", "/s", "limit: bare server"),
    Row("API creates, 32 clients", "api", "creates/s, 32 clients", "/s", "limit: bare server"),
    Row("memory when idle", "idle", "RSS, MB", "MB", "limit: bare server"),
)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: publish.py [--check]", file=sys.stderr)
        return 2
    records = newest_records(HISTORY.read_text())
    pages = {
        ROOT / "docs" / "comparison.md": summary(records),
        ROOT / "bench" / "README.md": all_figures(records) + "\n" + missed_targets(records),
    }
    stale = False
    for page, figures in pages.items():
        text = page.read_text()
        before, rest = text.split(BEGIN)
        _, after = rest.split(END)
        wanted = before + BEGIN + figures + END + after
        if text != wanted and arguments:
            stale = True
            print(f"{page.relative_to(ROOT)}: run `python bench/publish.py`", file=sys.stderr)
        elif text != wanted:
            page.write_text(wanted)
    return int(stale)


def newest_records(history: str) -> dict[str, dict[str, Any]]:
    """Return the last record of each scenario; later lines are newer."""
    records = (json.loads(line) for line in history.splitlines())
    return {record["scenario"]: record for record in records}


def summary(records: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| | onejob | beside it, in the same run | Kubernetes, measured elsewhere | recorded |",
        "|---|---|---|---|---|",
    ]
    for row in SUMMARY:
        record = records[row.scenario]
        value = record["measured"]["figures"][row.figure]
        lines.append(
            f"| {row.question} | {number(value)} {row.unit} | {beside(record, row, value)} "
            f"| {elsewhere(record, row.figure, row.unit)} | {source(record)} |"
        )
    machines = {hardware(records[row.scenario]) for row in SUMMARY}
    return "\n".join([*lines, "", f"Recorded on {' and on '.join(sorted(machines))}.", ""])


def all_figures(records: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| scenario | figures | limits and peers of the same run | recorded |",
        "|---|---|---|---|",
    ]
    for name, record in records.items():
        own = listed(record["measured"]["figures"])
        peers = "; ".join(
            f"{peer['name'].removeprefix('limit: ')}: {listed(peer['measured']['figures'])}"
            for peer in record.get("peers", ())
            if not peer.get("elsewhere") and "figures" in peer["measured"]
        )
        lines.append(f"| `{name}` | {own} | {peers} | {source(record)}, {machine(record)} |")
    return "\n".join(["### Figures", "", *lines, ""])


def missed_targets(records: dict[str, dict[str, Any]]) -> str:
    missed = [
        f"- `{name}`: {figure}: {number(record['measured']['figures'][figure])}, "
        f"target {goal['sense']} {number(goal['value'])}"
        f"{' × ' + goal['times'] if goal['times'] else ''}"
        for name, record in records.items()
        for figure, goal in (record.get("targets") or {}).items()
        if not record["met"][figure]
    ]
    return "\n".join(["### Targets not met", "", *(missed or ["None."]), ""])


def beside(record: dict[str, Any], row: Row, value: float) -> str:
    for peer in record.get("peers", ()):
        if peer["name"] == row.beside:
            limit = peer["measured"]["figures"][row.figure]
            name = row.beside.removeprefix("limit: ")
            return f"{name} {number(limit)} {row.unit}: {value / limit:.2f} ×"
    return ""


def elsewhere(record: dict[str, Any], figure: str, unit: str) -> str:
    return ", ".join(
        f"{number(peer['measured']['figures'][figure])} {unit}"
        + (f" ({peer['name']})" if peer["name"] != "Kubernetes" else "")
        for peer in record.get("peers", ())
        if peer.get("elsewhere") and figure in peer["measured"]["figures"]
    )


def listed(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in figures.items())


def source(record: dict[str, Any]) -> str:
    return f"{record['at'][:10]}, `{record['commit']}`"


def hardware(record: dict[str, Any]) -> str:
    return f"{record['machine']['cpu']}, {record['machine']['cores']} cores"


def machine(record: dict[str, Any]) -> str:
    return f"{hardware(record)}, load {record['machine']['load']:.1f} at the start"


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
