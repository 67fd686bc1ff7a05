"""Page about the served API: every row names a test, and every resource has a row."""

import re
from pathlib import Path

import pytest

from onejob.wire.registry import KindRegistry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/compatibility.md").read_text()

FOLDERS = (
    "tests/api/http",
    "tests/api",
    "tests/api/access",
    "tests/api/admission",
    "tests/api/crd",
    "tests/api/kinds",
    "tests/webhooks",
    "tests/admission_policies",
    "tests/claims",
    "tests/cli",
    "tests/e2e",
    "tests/controllers",
    "tests/differential",
    "tests/node",
)
NAMED = sorted(set(re.findall(r"`(\w+)::(\w+)`", PAGE)))
#: Rows below the heads of tables, except those that explain file names.
ROWS = [
    line
    for line in PAGE.partition("## Resources")[2].splitlines()
    if line.startswith("|") and not re.match(r"\|( group|---| path)|\| \| differs", line)
]


@pytest.mark.parametrize(("file", "test"), NAMED, ids=str)
def test_every_test_that_is_named_exists(file: str, test: str) -> None:
    sources = [path.read_text() for f in FOLDERS if (path := ROOT / f / f"test_{file}.py").exists()]
    assert any(f"def test_{test}(" in source for source in sources)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_a_test(row: str) -> None:
    assert re.search(r"`\w+::\w+` \|$", row)


@pytest.mark.parametrize("plural", sorted({kind.plural for kind in KindRegistry().served}))
def test_every_resource_has_a_row(plural: str) -> None:
    if plural.endswith(("accessreviews", "rulesreviews")):
        plural = "the four access and rules reviews"
    assert any(plural in row for row in ROWS)
