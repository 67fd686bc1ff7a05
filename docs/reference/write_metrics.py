"""Writes the table of metrics-and-events.md from the declarations of the metrics.

Usage: `python docs/reference/write_metrics.py`
"""

from pathlib import Path
from typing import Any, get_args, get_type_hints

from onejob.metrics import Metrics
from onejob.prometheus import Histogram, Metric

TARGET = Path(__file__).with_name("metrics-and-events.md")
BEGIN = "<!-- Written by write_metrics.py. -->\n"
END = "<!-- End of the table. -->\n"

_FAIRNESS = "[fairness](../how-to/shared-machine.md#fairness-between-users)"
#: Remarks beyond the help texts, by attribute of `Metrics`.
REMARKS = {
    "pods_finished": "there, success is `completed`",
    "pods_with_finalizer": "the name is the proposal's",
    "controller_leading": "only in `onejob controller`",
    "controller_requests": "only in `onejob controller`",
    "process_cpu": "without its Pods",
    "process_memory": "without its Pods",
    "process_open_fds": "without its Pods",
    "notifications": "only with [targets](../how-to/notifications.md)",
    "notifications_waiting": "only with [targets](../how-to/notifications.md)",
    "requests": "under `onejob serve` including requests of controllers, node, shared caches and"
    " the server itself",
    "request_duration": "requests over HTTP, and single reads and writes in the server's process;"
    " batched writes of controllers and node are only counted",
    "audit_events": "see the [audit log](../how-to/shared-machine.md#audit-log)",
    "audit_errors": "because the disk was full or slow",
    "requests_waited": f"see {_FAIRNESS}",
    "requests_refused": f"refused with 429, see {_FAIRNESS}",
    "damaged_documents": "omitted from lists, see the log",
}


def render() -> str:
    """Return the page with a new table."""
    head, _, rest = TARGET.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def table() -> str:
    metrics = vars(Metrics())
    unknown = REMARKS.keys() - metrics.keys()
    assert not unknown, f"remarks on metrics that do not exist: {unknown}"
    rows = [row(metric, REMARKS.get(attribute, "")) for attribute, metric in metrics.items()]
    return "\n".join(("| metric | type | labels | meaning |", "|---|---|---|---|", *rows, ""))


def row(metric: Metric[..., Any], remark: str) -> str:
    kind = metric.type
    if isinstance(metric, Histogram):
        kind += f", {metric.buckets[0]:g} to {metric.buckets[-1]:.10g}"
    hints = get_type_hints(metric.label_set)
    labels = ", ".join(label(name, get_args(hints[name])) for name in metric.label_names)
    also = ", ".join(f"`{alias}`" for alias in metric.aliases)
    meaning = [metric.help_text, also and f"also exported as {also}", remark]
    cells = (f"`{metric.name}`", kind, labels, "; ".join(part for part in meaning if part))
    return "| " + " | ".join(cells).replace("|  |", "| |") + " |"


def label(name: str, values: tuple[str, ...]) -> str:
    return f"`{name}` ({', '.join(values)})" if values else f"`{name}`"


if __name__ == "__main__":
    TARGET.write_text(render())
