"""YAML editor in a real browser: edits, refusals at a line, diff with the applied version."""

from collections.abc import Callable

import msgspec
import pytest
from playwright.sync_api import Page, expect

from onejob.testing import OnejobNamespace
from tests.ui.browsers import replace_text
from tests.ui.demo import a_job, change

Open = Callable[[str], Page]

pytestmark = pytest.mark.timeout(300)

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_yaml_is_edited_with_errors_at_their_line(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("edited", "sleep 60", suspend=True, parallelism=1))
    page = open_dashboard(f"/jobs/{namespace.name}/edited?tab=yaml")
    editor = page.get_by_role("textbox", name="YAML of Job edited")
    expect(editor).to_contain_text("parallelism: 1")
    replace_text(page, "parallelism: 1", "parallelism: -5")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("spec.parallelism")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    replace_text(page, "parallelism: -5", "parallelism: 3")
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_text("The server would accept this")).to_be_visible()
    assert namespace.get("job", "edited")["spec"]["parallelism"] == 1
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Job edited changed")).to_be_visible()
    assert namespace.get("job", "edited")["spec"]["parallelism"] == 3


def test_yaml_page_shows_changes_since_apply_with_manager(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    job = a_job("applied", "sleep 60", suspend=True, parallelism=1, backoffLimit=2)
    job["metadata"]["annotations"] = {APPLIED: msgspec.json.encode(job).decode()}
    made = namespace.create(job)
    page = open_dashboard(f"/jobs/{namespace.name}/applied?tab=yaml")
    page.get_by_role("button", name="Compare with last applied").click()
    table = page.get_by_role("table", name="Changes since the last apply")
    expect(table).to_contain_text("No changes since")
    patch = {"spec": {"parallelism": 3, "activeDeadlineSeconds": 90}}
    change(namespace, made, {**patch, "metadata": {"labels": {"team": "x"}}}, manager="somebody")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="spec.parallelism")).to_have_text("spec.parallelism13somebody")
    added = rows.filter(has_text="spec.activeDeadlineSeconds")
    expect(added).to_contain_text("(not set)90somebody")
    expect(rows.filter(has_text="metadata.labels.team")).to_contain_text('"x"somebody')
