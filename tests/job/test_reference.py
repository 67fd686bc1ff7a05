"""Completeness of the reference pages: they name everything that exists, and nothing else."""

import re
import runpy
from pathlib import Path

from onejob.gates import DEFAULTS
from onejob.metrics import Metrics
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


def test_table_of_metrics_matches_their_declarations() -> None:
    written = runpy.run_path(str(REFERENCE / "write_metrics.py"))["render"]()
    assert page("metrics-and-events.md") == written, "run python docs/reference/write_metrics.py"
    assert first_column(written.split("## Events")[0]) == [metric.name for metric in Metrics()]


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
