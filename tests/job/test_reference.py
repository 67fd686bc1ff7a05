"""Completeness of the reference pages: they name everything that exists, and nothing else."""

import re
from pathlib import Path

from onejob.gates import DEFAULTS
from onejob.metrics import METRICS
from onejob.planning import names

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def first_column(text: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


def test_every_gate_is_described_with_its_default() -> None:
    described = dict(re.findall(r"^\| `(\w+)` \| (on|off) \|", page("feature-gates.md"), re.M))
    assert described == {name: "on" if default else "off" for name, default in DEFAULTS.items()}


def test_every_gate_is_in_the_table_of_what_switching_does() -> None:
    table = page("feature-gates.md").split("## Switching")[1]
    assert {name for name in DEFAULTS if f"`{name}`" not in table} == set()


def test_every_metric_is_listed_with_its_labels_and_other_names() -> None:
    text = page("metrics-and-events.md").split("## Events")[0]
    assert first_column(text) == sorted(
        (metric.name for metric in METRICS), key=first_column(text).index
    )
    for metric in METRICS:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{metric.name}` |"))
        _, _, kind, labels, also, _ = (cell.strip() for cell in row.split("|"))
        assert kind.split(",")[0] == metric.type
        assert re.findall(r"`(\w+)`", labels) == list(metric.labels)
        assert all(f"`{alias}`" in also for alias in metric.aliases)


def test_every_annotation_that_is_set_like_a_field_is_in_the_table() -> None:
    text = page("fields.md")
    annotations = [
        value
        for name, value in vars(names).items()
        if name.endswith("_ANNOTATION") and value.startswith("onejob.dev/")
    ]
    assert len(annotations) >= 7
    columns = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    named = " ".join(row[2] for row in columns if len(row) > 3)
    for annotation in annotations:
        assert f"`{annotation}`" in named


def test_both_names_of_the_finalizer_are_explained() -> None:
    assert all(f"`{name}`" in page("fields.md") for name in names.TRACKING_NAMES[:1])
    assert names.TRACKING_AS_PROPOSED in page("fields.md")
