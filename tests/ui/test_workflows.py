"""Pages of Workflows in a real browser: states, reasons, keyboard, reruns."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from onejob.testing import OnejobNamespace
from tests.ui.demo import a_task, a_workflow

Open = Callable[[str], Page]

pytestmark = pytest.mark.timeout(300)


def test_workflow_page_shows_states_reasons_and_critical_path(
    open_dashboard: Open, flows: OnejobNamespace
) -> None:
    page = open_dashboard(f"/workflows?namespace={flows.name}")
    page.get_by_role("link", name="training").click()
    graph = page.get_by_role("listbox", name="Tasks of training")
    expect(graph.get_by_role("option", name=re.compile("^alert Complete"))).to_be_visible()
    expect(graph.get_by_role("option", name=re.compile("^publish Skipped"))).to_be_visible()
    expect(graph.get_by_role("option", name=re.compile("^clean-up Complete"))).to_be_visible()
    train = graph.get_by_role("option", name=re.compile("^train Failed.*critical path"))
    expect(train).to_have_attribute("aria-selected", "true")
    # What the server says of its Job.
    details = page.get_by_role("region", name="Task train")
    expect(details).to_contain_text("exited with code 7")
    graph.get_by_role("option", name=re.compile("^publish")).click()
    expect(page.get_by_role("region", name="Task publish")).to_contain_text(
        'task "train" was to complete, but is Failed'
    )
    page.get_by_role("button", name="train", exact=True).first.click()
    details.get_by_role("link", name="Open the Job").click()
    expect(page.get_by_role("heading", name="training-train")).to_be_visible()
    page.get_by_role("link", name="workflow/training").click()
    expect(graph.get_by_role("option")).to_have_count(7)


def test_waiting_tasks_follow_the_workflow_live(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(
        a_workflow("held", a_task("one", "true"), a_task("two", "true", "one"), suspend=True)
    )
    page = open_dashboard(f"/workflows/{namespace.name}/held")
    option = page.get_by_role("option")
    expect(option.nth(0)).to_have_accessible_name(re.compile("^one Waiting"))
    expect(page.get_by_role("region", name="Task one")).to_contain_text("WorkflowSuspended")
    page.get_by_role("button", name="Resume held").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(option.nth(1)).to_have_accessible_name(re.compile("^two Complete"))
    expect(page.locator("h1 ~ .facts .state")).to_have_text("Complete")


def test_rerun_from_a_task_with_keys_alone(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_workflow("flow", a_task("first", "true"), a_task("second", "true", "first")))
    page = open_dashboard(f"/workflows/{namespace.name}/flow")
    page.set_viewport_size({"width": 390, "height": 844})
    option = page.get_by_role("option")
    expect(option.nth(1)).to_have_accessible_name(re.compile("^second Complete"))
    option.nth(0).focus()
    page.keyboard.press("ArrowDown")
    expect(option.nth(1)).to_be_focused()
    page.get_by_role("button", name="Rerun from here: second").press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Rerun workflow/flow from second?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="flow-rerun-1")).to_be_visible()
    expect(option.nth(1)).to_have_accessible_name(re.compile("^second Complete"))
    made = namespace.get("workflow", "flow-rerun-1")
    assert [given["task"] for given in made["spec"]["given"]] == ["first"]
