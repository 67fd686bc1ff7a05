"""Logs of a Job's Pods in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from onejob.testing import OnejobNamespace, OnejobServer
from tests.ui.demo import a_job, sign_in_address

Open = Callable[[str], Page]

pytestmark = pytest.mark.timeout(300)


def test_logs_of_all_pods_are_merged_searched_and_saved(
    open_dashboard: Open, namespace: OnejobNamespace, downloads: Path
) -> None:
    script = 'for i in 1 2 3; do echo "line $i of $JOB_COMPLETION_INDEX"; done'
    namespace.create(a_job("talk", script, completions=2, completionMode="Indexed"))
    namespace.wait_for_job("talk")
    page = open_dashboard(f"/jobs/{namespace.name}/talk?tab=logs")
    log = page.get_by_role("log")
    expect(log.locator(".l")).to_have_count(6)
    page.get_by_label("Search in the logs").fill("3 of 1")
    expect(log.locator("mark")).to_have_text("3 of 1")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    saved.value.save_as(downloads / "talk.log")
    text = (downloads / "talk.log").read_text()
    assert text.count("line ") == 6
    page.get_by_role("button", name="2 of 2 Pods").click()
    page.get_by_role("button", name="None").click()
    expect(page.get_by_text("No Pod is chosen")).to_be_visible()
    page.get_by_role("checkbox").first.check()
    expect(log.locator(".l")).to_have_count(3)


def test_logs_are_followed(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    script = "echo first; sleep 1; echo second; sleep 60"
    namespace.create(a_job("goes-on", script))
    page = open_dashboard(f"/jobs/{namespace.name}/goes-on?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("first")
    expect(log).to_contain_text("second")
    page.get_by_role("button", name="Times").click()
    expect(log.locator(".ts").first).to_have_text(re.compile(r"^\d\d:\d\d:\d\d"))


def test_earlier_attempts_of_a_container_are_shown(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    job = a_job("retries", "echo attempt; exit 1", backoffLimit=6)
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    namespace.create(job)
    page = open_dashboard(f"/jobs/{namespace.name}/retries?tab=logs")
    page.get_by_role("button", name="Previous attempt").click()
    expect(page.get_by_role("log")).to_contain_text("attempt")


def test_pods_that_start_later_join_and_nothing_is_read_twice(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    script = 'echo "from $JOB_COMPLETION_INDEX"; [ "$JOB_COMPLETION_INDEX" != 2 ] || sleep 60'
    job = a_job("rows", f"sleep 1; {script}", completions=3, completionMode="Indexed")
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    asked: list[str] = []
    page.on("request", lambda request: asked.extend(_logs_asked_for(request.url)))
    namespace.create({**job, "spec": {**job["spec"], "parallelism": 1}})
    page.get_by_role("link", name="rows").click()
    page.get_by_role("link", name="Logs", exact=True).click()
    lines = page.get_by_role("log").locator(".l")
    expect(lines).to_have_count(3)
    expect(lines).to_have_text([re.compile(f"from {number}$") for number in range(3)])
    assert len(asked) == len(set(asked)) == 3


def _logs_asked_for(url: str) -> list[str]:
    parts = urlsplit(url)
    return parse_qs(parts.query).get("log", []) if "/ui/api/logs/" in parts.path else []


def test_a_failed_init_container_leads_to_its_own_log(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    job = a_job("fetches", "echo never", backoffLimit=0)
    fetch = {"name": "fetch", "image": "busybox", "command": ["sh", "-c", "echo no route; exit 4"]}
    job["spec"]["template"]["spec"]["initContainers"] = [fetch]
    namespace.create(job)
    namespace.wait_for_job("fetches")
    page = open_dashboard(f"/jobs/{namespace.name}/fetches")
    causes = page.get_by_role("region", name="Failures by cause")
    expect(causes).to_contain_text("exit code 4 (Error) in fetch")
    causes.get_by_role("link", name="Logs of the latest").click()
    expect(page.get_by_role("log")).to_contain_text("no route")
    expect(page.get_by_label("Container")).to_have_value("fetch")


def test_logs_that_could_not_be_read_are_tried_again(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("talks", "echo here"))
    namespace.wait_for_job("talks")
    page = open_dashboard(f"/jobs/{namespace.name}/talks")
    page.route("**/ui/api/logs/**", lambda route: route.abort())
    page.get_by_role("link", name="Logs", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The logs cannot be read")
    page.unroute("**/ui/api/logs/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("log")).to_contain_text("here")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_log_times_use_zone_of_browser(
    browser: Browser, server: OnejobServer, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("clock", "date -u +%M"))
    namespace.wait_for_job("clock")
    # Half an hour off most other zones.
    context = browser.new_context(ignore_https_errors=True, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(sign_in_address(server.kubeconfig, server))
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{server.url}/ui/#/jobs/{namespace.name}/clock?tab=logs")
    log = page.get_by_role("log")
    expect(log.locator(".l")).to_have_count(1)
    minute = int(log.inner_text().strip())
    page.get_by_role("button", name="Times").click()
    shown = log.locator(".ts").inner_text().split(":")[1]
    assert int(shown) == (minute + 30) % 60
    context.close()
