"""The inventory of fields: each field of the schema has a verdict, each verdict its tests."""

import ast
import copy
from functools import lru_cache

import pytest

from onejob.api.schema.schema import load_definitions
from onejob.planning.pod.without_effect import RULES
from tests.field_effects.__main__ import acting, unknown_text
from tests.field_effects.inventory import ROOT, SCRIPT
from tests.field_effects.plants import can_disable
from tests.python_sources import syntax_tree

ROWS = SCRIPT.read_rows(SCRIPT.SOURCE.read_text())
TYPES = load_definitions()[0]


def test_every_field_has_a_verdict_and_every_verdict_a_field() -> None:
    found = SCRIPT.inventory()
    assert found.undecided == [], "decide these fields in docs/reference/fields.toml"
    assert found.superfluous == [], "no field needs these rows of docs/reference/fields.toml"


@pytest.mark.parametrize(
    ("type_", "field"),
    [
        ("io.k8s.api.batch.v1.JobSpec", "planted"),
        ("io.k8s.api.core.v1.PodSpec", "planted"),
        ("io.k8s.api.core.v1.VolumeMount", "planted"),
    ],
)
def test_a_new_field_of_the_schema_is_undecided(type_: str, field: str) -> None:
    types = copy.deepcopy(TYPES)
    types[type_]["properties"][field] = {"type": "string"}
    found = SCRIPT.decide(ROWS, list(SCRIPT.fields_of(types)))
    assert found.undecided == [f"{SCRIPT.short(type_)}.{field}"]


def test_a_row_without_a_field_is_superfluous() -> None:
    row = SCRIPT.Row("core.v1.PodSpec", ("planted",), "acts", "", ())
    found = SCRIPT.decide([*ROWS, row], list(SCRIPT.fields_of(TYPES)))
    assert found.superfluous == ["core.v1.PodSpec.planted"]


def test_verdicts_are_known_and_have_their_tests_or_reason() -> None:
    for row in ROWS:
        assert row.verdict in SCRIPT.VERDICTS, row
        proven = row.verdict.startswith("acts") or row.verdict == "refused"
        assert row.tests or not proven, f"{row} names no test"
        assert row.note or proven, f"{row} names no reason"


@pytest.mark.parametrize("test", sorted({test for row in ROWS for test in row.tests}))
def test_the_test_of_a_verdict_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert name in functions_of(path), f"docs/reference/fields.toml names {test}"


@lru_cache
def functions_of(path: str) -> set[str]:
    tree = syntax_tree(ROOT / path)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {each.name for each in tree.body if isinstance(each, kinds)}


def field_at(path: str) -> tuple[str, str]:
    """Return type and field of a path in the spec of a Pod."""
    type_ = "io.k8s.api.core.v1.PodSpec"
    *outer, field = path.replace("[]", "").split(".")
    for name in outer:
        (type_,) = SCRIPT._references(TYPES[type_]["properties"][name])
    assert field in TYPES[type_]["properties"], path
    return SCRIPT.short(type_), field


def test_fields_table_matches_warnings() -> None:
    decided = SCRIPT.inventory().decided
    ruled = {field_at(rule.path): rule for rule in RULES}
    for place, rule in ruled.items():
        verdict = decided[place].verdict
        partly = verdict.startswith("acts in") and len(rule.runtimes) == 1
        assert verdict == "warned" or partly, f"{place} is {verdict}, but causes a warning"
    warned = {place for place, row in decided.items() if row.verdict == "warned"}
    # Parts of a field that is itself warned about cause no warning of their own.
    parts = {
        SCRIPT.short(part)
        for type_, shape in TYPES.items()
        for name, inner in (shape.get("properties") or {}).items()
        if (SCRIPT.short(type_), name) in warned
        for part in SCRIPT._references(inner)
    }
    unruled = {f"{type_}.{name}" for type_, name in warned - ruled.keys() if type_ not in parts}
    # Fields of a Job have a test of their own.
    unscheduled = ("disruptionMode", "resourceClaims", "schedulingConstraints")
    assert unruled == {f"batch.v1.JobSchedulingConfiguration.{name}" for name in unscheduled}


def test_the_effect_of_every_acting_field_can_be_disabled() -> None:
    # `make field-effects` disables each and expects its tests to fail.
    acting = [
        place for place, row in SCRIPT.inventory().decided.items() if row.verdict.startswith("acts")
    ]
    assert [f"{type_}.{field}" for type_, field in acting if not can_disable(type_, field)] == []


def test_a_name_that_is_no_acting_field_gets_the_right_one() -> None:
    text = unknown_text(["backoffSeconds", "planted"], acting())
    assert "backoffSeconds (use batch.v1.JobSpec.backoffSeconds)" in text
    assert "planted (use TYPE.FIELD, such as batch.v1.JobSpec.suspend)" in text
    assert "batch.v1.JobSpec.suspend" in acting()


def test_the_page_is_written_from_the_inventory() -> None:
    assert SCRIPT.render() == SCRIPT.TARGET.read_text(), "run python docs/reference/write_fields.py"
