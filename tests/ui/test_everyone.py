"""Accessibility of the dashboard: keyboard, screen readers, narrow and dark screens.

Also hostile texts.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from onejob.testing import OnejobNamespace, OnejobServer
from tests.ui.accessibility import findings, require_accessible
from tests.ui.demo import a_job

Open = Callable[[str], Page]

pytestmark = pytest.mark.timeout(300)

PAGES = {
    "overview": "/?namespace={ns}",
    "jobs": "/jobs?namespace={ns}",
    "job": "/jobs/{ns}/train",
    "pods": "/jobs/{ns}/train?tab=pods",
    "logs": "/jobs/{ns}/render?tab=logs",
    "pod": "/resources/v1/pods/{ns}/{pod}",
    "terminal": "/resources/v1/pods/{ns}/{pod}?tab=terminal",
    "results": "/jobs/{ns}/train?tab=results",
    "yaml": "/jobs/{ns}/train?tab=yaml",
    "workflows": "/workflows?namespace={flows}",
    "workflow": "/workflows/{flows}/training",
    "cronjobs": "/cronjobs?namespace={ns}",
    "cronjob": "/cronjobs/{ns}/nightly-backup",
    "queue": "/queue",
    "mirrors": "/mirrors?namespace={ns}",
    "kinds": "/resources?text=job",
    "table": "/resources/v1/pods?namespace={ns}&text=train",
    "create": "/create",
}


def _settled(page: Page) -> None:
    """Wait until nothing is loading any more."""
    expect(page.get_by_text("Loading…")).to_have_count(0)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_keeps_people_out(
    open_dashboard: Open, demo: OnejobNamespace, flows: OnejobNamespace, name: str
) -> None:
    """No accessibility problems, enough contrast, no page wider than a phone.

    Contrast is checked in light and dark.
    """
    pods = [pod["metadata"]["name"] for pod in demo.list("pods")]
    pod = next(pod for pod in pods if pod.startswith("render-"))
    page = open_dashboard(PAGES[name].format(ns=demo.name, flows=flows.name, pod=pod))
    _settled(page)
    require_accessible(page)


def test_menus_and_dialogs_keep_nobody_out(open_dashboard: Open, demo: OnejobNamespace) -> None:
    page = open_dashboard(f"/jobs?namespace={demo.name}")
    page.get_by_label("Select train").check()
    page.get_by_role("button", name="Actions for train").click()
    expect(page.get_by_role("menuitem", name="Delete")).to_be_visible()
    assert findings(page) == []
    page.get_by_role("menuitem", name="Rerun").click()
    expect(page.get_by_role("dialog").get_by_label("First index")).to_be_visible()
    require_accessible(page)


def test_a_job_is_found_suspended_read_and_rerun_with_keys_alone(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("first", "echo from the first; sleep 60"))
    namespace.create(a_job("other", "true", suspend=True))
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    press = page.keyboard.press
    expect(page.get_by_role("row", name=re.compile("first"))).to_contain_text("Running")
    press("/")
    search = page.get_by_label("Filter by name or owner")
    expect(search).to_be_focused()
    page.keyboard.type("first")
    expect(page.get_by_role("row")).to_have_count(2)
    press("Escape")
    expect(search).not_to_be_focused()
    press("j")
    press(" ")
    expect(page.get_by_label("Select first")).to_be_checked()
    press(" ")
    expect(page.get_by_label("Select first")).not_to_be_checked()
    press("s")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Suspend job/first?")
    press("Enter")
    expect(page.get_by_text("Job first suspended")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("first"))).to_contain_text("Suspended")
    press("s")
    expect(dialog).to_contain_text("Resume")
    press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("row", name=re.compile("first"))).to_contain_text("Running")
    press("l")
    expect(page.get_by_role("log")).to_contain_text("from the first")
    page.go_back()
    expect(page.get_by_role("row")).to_have_count(2)
    press("j")
    press("r")
    expect(dialog).to_contain_text("Run job/first again?")
    press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", name="first-rerun-1")).to_be_visible()
    expect(page.get_by_role("button", name="Suspend first-rerun-1")).to_be_visible()
    press("s")
    expect(dialog).to_contain_text("Suspend job/first-rerun-1?")
    press("Escape")
    expect(dialog).to_have_count(0)
    press("l")
    expect(page.get_by_role("log")).to_contain_text("from the first")
    page.get_by_role("link", name="YAML").press("Enter")
    editor = page.get_by_role("textbox", name="YAML of Job first-rerun-1")
    editor.press("x")
    expect(editor).to_be_focused()
    expect(dialog).to_have_count(0)


def test_dialog_is_closed_before_the_next_key(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    """While a dialog is open, keys do not reach the page."""
    namespace.create(a_job("held", "true", suspend=True))
    page = open_dashboard(f"/jobs/{namespace.name}/held")
    page.get_by_role("button", name="Resume held").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").wait_for()
    # A frame is drawn after all of this: nothing may depend on one.
    still_open = page.evaluate("""async () => {
      const buttons = [...document.querySelectorAll("dialog[open] button")];
      buttons.find((one) => one.textContent === "Cancel").click();
      for (let turn = 0; turn < 20; turn += 1) await null;
      return document.querySelector("dialog[open]") !== null;
    }""")
    assert still_open is False


def test_keys_are_explained(open_dashboard: Open) -> None:
    page = open_dashboard("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="CronJobs")).to_be_visible()


_PRESS_WHEN_SHOWN = """
const watcher = new MutationObserver(() => {
  const heading = document.querySelector("h1");
  if (!heading) return;
  watcher.disconnect();
  heading.dispatchEvent(new KeyboardEvent("keydown", {key: "?", bubbles: true}));
});
watcher.observe(document, {childList: true, subtree: true});
"""


def test_no_key_is_missed_once_a_page_is_shown(
    context: BrowserContext, server: OnejobServer
) -> None:
    page = context.new_page()
    # Pressed before the browser has even drawn the inserted element.
    page.add_init_script(_PRESS_WHEN_SHOWN)
    page.goto(f"{server.url}/ui/#/")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.close()


def test_indexes_are_chosen_with_arrow_keys(open_dashboard: Open, demo: OnejobNamespace) -> None:
    page = open_dashboard(f"/jobs/{demo.name}/train")
    cells = page.get_by_role("application")
    expect(page.get_by_text("job/train is Failed")).to_be_visible()
    cells.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Index 3: Failed")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Pods").locator("tbody tr")).to_have_count(1)


# --- hostile texts --------------------------------------------------------------------------

HTML = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
BIDI = "safe\u202egnp.exe"
LINK = "javascript:alert(3)"


def test_hostile_logs_are_text(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    script = (
        f"cat <<'END'\n{HTML}\n{LINK}\n{BIDI}\nEND\n"
        "printf '\\033[31mred\\033[0m \\033]0;title\\007 \\000 end\\n'; "
        "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo after"
    )
    namespace.create(a_job("hostile", script))
    namespace.wait_for_job("hostile")
    page = open_dashboard(f"/jobs/{namespace.name}/hostile?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("after")
    text = log.inner_text()
    assert HTML in text
    assert LINK in text
    assert "safe⟨U+202E⟩gnp.exe" in text
    assert "␛[31mred" in text
    assert re.search(r"99.\d\d\d.\d\d\d more characters|9.\d\d\d.\d\d\d more characters", text)
    assert page.locator("main img, main script, main a[href^=javascript]").count() == 0
    assert page.title() == "hostile · " + namespace.name + " · Jobs · onejob"


def test_hostile_names_events_and_messages_are_text(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    job = a_job("victim", f"echo '{HTML}' > /dev/termination-log; exit 1", backoffLimit=0)
    job["metadata"]["annotations"] = {"note": HTML + BIDI}
    made = namespace.create(job)
    namespace.wait_for_job("victim")
    namespace.create(_hostile_event(namespace.name, made["metadata"]["uid"]))
    page = open_dashboard(f"/jobs/{namespace.name}/victim")
    timeline = page.get_by_role("region", name="Timeline of victim")
    expect(timeline).to_contain_text(HTML)
    expect(timeline).to_contain_text("safe⟨U+202E⟩gnp.exe")
    expect(page.get_by_role("region", name="Failures by cause")).to_contain_text(HTML)
    page.get_by_role("link", name="YAML").click()
    editor = page.get_by_role("textbox", name="YAML of Job victim")
    expect(editor).to_contain_text("onerror")
    page.goto(page.url.partition("#")[0] + f"#/resources/v1/events?namespace={namespace.name}")
    expect(page.get_by_role("table", name="Event")).to_contain_text("<script>")
    assert page.locator("main img, main script, main a[href^=javascript]").count() == 0


def _hostile_event(namespace: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "hostile"},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "victim",
            "namespace": namespace,
            "uid": uid,
        },
        "type": "Warning",
        "reason": "Hostile",
        "message": f"{HTML} {LINK} {BIDI}",
        "lastTimestamp": "2030-01-01T00:00:00Z",
    }


def test_an_address_with_hostile_words_is_text(open_dashboard: Open) -> None:
    page = open_dashboard(f"/jobs/default/{HTML.replace('/', '%2F')}")
    expect(page.get_by_text("Job not found")).to_be_visible()
    assert page.locator("main img, main script").count() == 0
