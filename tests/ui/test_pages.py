"""Each page of the dashboard in a real browser: its contents and its actions."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from onejob.planning.mirror.names import TARGET_LABEL
from onejob.testing import OnejobNamespace, OnejobServer
from tests.cli.command_line import CommandLine
from tests.ui.accessibility import findings, require_accessible
from tests.ui.browsers import replace_text
from tests.ui.demo import (
    a_cronjob,
    a_definition,
    a_job,
    a_train,
    change,
    delete_pod,
    limits,
    sign_in_address,
    sweep,
)

Open = Callable[[str], Page]

pytestmark = pytest.mark.timeout(300)


# --- signing in -----------------------------------------------------------------------------


def test_a_link_signs_in_once_and_leaves_no_trace(browser: Browser, server: OnejobServer) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    address = sign_in_address(server.kubeconfig, server)
    page.goto(address + "?open=jobs%2Fdefault%2Fnothing")
    expect(page.get_by_text("Job not found")).to_be_visible()
    assert "sign-in" not in page.url
    page.reload()
    expect(page.get_by_text("onejob-admin")).to_be_visible()
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to onejob")).to_be_visible()
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text("has been used or has expired")
    context.close()


def test_sign_in_link_of_other_user_asks_for_confirmation(
    browser: Browser, server: OnejobServer, namespace: OnejobNamespace, tmp_path: Path
) -> None:
    """Otherwise a user who follows a link could work in another name without noticing."""
    _add_viewer(server.kubeconfig.parent, namespace, tmp_path / "viewer.kubeconfig")
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(sign_in_address(server.kubeconfig, server))
    signed_in = page.locator(".who")
    expect(signed_in).to_contain_text("onejob-admin")
    question = page.get_by_role("heading", name="Sign in as another user?")

    page.goto(sign_in_address(tmp_path / "viewer.kubeconfig", server))
    expect(question).to_be_visible()
    viewer = f"viewer-{namespace.name}"
    expect(page.get_by_role("alert")).to_contain_text(f"for {viewer}, not for onejob-admin")
    page.get_by_role("button", name="Stay onejob-admin").click()
    expect(signed_in).to_contain_text("onejob-admin")

    # Also in a new tab, and if that session has ended.
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to onejob")).to_be_visible()
    page.close()
    page = context.new_page()
    page.goto(sign_in_address(tmp_path / "viewer.kubeconfig", server) + "?open=queue")
    page.get_by_role("button", name="Sign in with this link").click()
    expect(page.locator(".who")).to_contain_text(viewer)
    page.set_viewport_size({"width": 360, "height": 640})
    expect(page.locator(".who").get_by_text(viewer)).to_be_in_viewport()
    assert page.url.endswith("#/queue")

    # From now on this user works here.
    page.goto("about:blank")
    page.goto(sign_in_address(tmp_path / "viewer.kubeconfig", server))
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    context.close()


def test_failed_sign_out_shows_remaining_session(browser: Browser, server: OnejobServer) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(sign_in_address(server.kubeconfig, server))
    page.get_by_role("heading", name="Overview").wait_for()
    page.route("**/ui/api/session", lambda route: route.abort())
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("alert")).to_contain_text("the server could not be told")
    context.close()


def test_page_without_session_explains_sign_in(browser: Browser, server: OnejobServer) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(f"{server.url}/ui/")
    expect(page.get_by_text("onejob ui", exact=True)).to_be_visible()
    context.close()


# --- overview -------------------------------------------------------------------------------


def test_overview_describes_problems_without_handled_failures_of_tasks(
    open_dashboard: Open, demo: OnejobNamespace, flows: OnejobNamespace
) -> None:
    page = open_dashboard(f"/?namespace={demo.name}")
    wrong = page.get_by_role("region", name="What is wrong right now")
    expect(wrong).to_contain_text("waits after")
    expect(wrong).to_contain_text("exit code 2: line 17: no such customer")
    expect(wrong).to_contain_text("exit code 7: loss is NaN")
    expect(wrong).not_to_contain_text("BackoffLimitExceeded")
    open_dashboard(f"/?namespace={flows.name}")
    expect(wrong).to_contain_text("No problems")
    open_dashboard(f"/?namespace={demo.name}")
    expect(page.get_by_role("region", name="Running now")).to_contain_text("render")
    expect(page.get_by_role("meter", name="Memory")).to_be_visible()
    expect(page.get_by_role("table", name="Pods that use most")).to_contain_text("render-")
    expect(page.get_by_role("img", name="Jobs per hour: 2 complete and 2 failed")).to_be_visible()
    page.get_by_label("Time shown").select_option("hour")
    expect(page.get_by_role("img", name="Jobs per minute: 2 complete")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("Failed in a day"))).to_contain_text("2")


def test_overview_counts_further_problems(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    for number in range(8):
        namespace.create(a_job(f"bad-{number}", "exit 1", backoffLimit=0))
    for number in range(8):
        namespace.wait_for_job(f"bad-{number}")
    page = open_dashboard(f"/?namespace={namespace.name}")
    wrong = page.get_by_role("region", name="What is wrong right now")
    expect(wrong.locator("li")).to_have_count(6)
    expect(wrong.get_by_role("link", name="2 more that failed")).to_be_visible()


def test_overview_shows_cronjob_warnings(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    """A quota keeps its Jobs from being created."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    namespace.create({**quota, "spec": {"hard": {"count/jobs.batch": "0"}}})
    namespace.create(a_cronjob("blocked", "@every 1s", "true"))
    page = open_dashboard(f"/?namespace={namespace.name}")
    wrong = page.get_by_role("region", name="What is wrong right now")
    # The page polls four times a minute.
    expect(wrong).to_contain_text("exceeded quota", timeout=40_000)
    wrong.get_by_role("link", name=f"{namespace.name}/blocked").click()
    expect(page.get_by_role("heading", name="blocked")).to_be_visible()


# --- jobs -----------------------------------------------------------------------------------


def test_jobs_are_filtered_by_state_text_and_labels(
    open_dashboard: Open, demo: OnejobNamespace
) -> None:
    page = open_dashboard(f"/jobs?namespace={demo.name}")
    rows = page.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(7)
    page.get_by_label("Filter by state").select_option("Failed")
    expect(rows).to_have_count(2)
    page.get_by_label("Filter by labels").fill("app=train")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter by labels").fill("app!=train")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter by labels").fill("app in (train, import), !other, app notin (x)")
    expect(rows).to_have_count(2)
    page.get_by_label("Filter by name or owner").fill("nothing like it")
    expect(page.get_by_text("No Job matches the filters")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    expect(rows).to_have_count(7)


def _choose(page: Page, job: str, action: str) -> None:
    """Choose an action in the menu of a Job's row."""
    page.get_by_role("button", name=f"Actions for {job}", exact=True).click()
    page.get_by_role("menuitem", name=action).click()


def test_a_job_is_suspended_resumed_and_deleted_after_a_question(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("long", "sleep 60", completions=2))
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    _choose(page, "long", "Suspend")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Suspend job/long?")
    dialog.get_by_role("button", name="Cancel").click()
    assert not namespace.get("job", "long")["spec"].get("suspend")
    _choose(page, "long", "Suspend")
    dialog.get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("Job long suspended")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("long"))).to_contain_text("Suspended")
    _choose(page, "long", "Resume")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("row", name=re.compile("long"))).to_contain_text("Running")
    menu = page.get_by_role("button", name="Actions for long")
    menu.press("Enter")
    expect(page.get_by_role("menuitem").first).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    _choose(page, "long", "Delete")
    expect(dialog).to_contain_text("cannot be undone")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"No Jobs in {namespace.name}")).to_be_visible()


def test_selected_jobs_are_suspended_and_deleted_together(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    for name in ("one", "two", "three"):
        namespace.create(a_job(name, "sleep 60"))
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    page.get_by_label("Select one").check()
    page.get_by_label("Select two").check()
    bar = page.get_by_role("toolbar", name="Actions for the selected Jobs")
    expect(bar).to_contain_text("2 Jobs selected")
    bar.get_by_role("button", name="Suspend").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Suspend 2 Jobs?")
    dialog.get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("2 Jobs suspended")).to_be_visible()
    assert namespace.get("job", "one")["spec"]["suspend"]
    assert not namespace.get("job", "three")["spec"].get("suspend")
    page.get_by_label("Select all 3").check()
    bar.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"No Jobs in {namespace.name}")).to_be_visible()


def test_list_of_jobs_names_the_cause_of_failures_and_blocks(
    open_dashboard: Open, demo: OnejobNamespace, namespace: OnejobNamespace
) -> None:
    page = open_dashboard(f"/jobs?namespace={demo.name}")
    orders = page.get_by_role("row", name=re.compile("import-orders"))
    expect(orders).to_contain_text("exit code 2: line 17: no such customer")
    blocked = a_job("blocked", "true")
    source = {"configMapRef": {"name": "absent"}}
    blocked["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [source]
    namespace.create(blocked)
    page.goto(page.url.partition("#")[0] + f"#/jobs?namespace={namespace.name}")
    row = page.get_by_role("row", name=re.compile("blocked"))
    expect(row).to_contain_text("absent")
    expect(row).to_contain_text("Blocked")


def test_long_list_of_jobs_draws_the_rows_in_view_of_the_page(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    for number in range(150):
        namespace.create(a_job(f"job-{number:03}", "true", suspend=True))
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    expect(page.get_by_text("150 Jobs")).to_be_visible()
    table = page.get_by_role("table", name="Jobs")
    expect(table).to_have_attribute("aria-rowcount", "151")
    assert table.locator("tbody tr").count() < 100
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    # Created in the same second, so sorted by name.
    last = sorted(job["metadata"]["name"] for job in namespace.list("jobs"))[-1]
    shown = table.locator("tbody tr").last
    expect(shown.get_by_role("link")).to_have_text(re.compile("job-"))
    expect(shown).to_have_attribute("aria-rowindex", "151")
    assert last == "job-149"


def test_a_job_is_run_once_more(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    script = 'echo "index $JOB_COMPLETION_INDEX"; [ "$JOB_COMPLETION_INDEX" != 1 ]'
    again = a_job("again", script, completions=3, completionMode="Indexed", backoffLimitPerIndex=0)
    namespace.create(again)
    namespace.wait_for_job("again")
    dialog = open_dashboard(f"/jobs/{namespace.name}/again").get_by_role("dialog")
    page = dialog.page
    page.get_by_role("button", name="Rerun again").click()
    expect(dialog.get_by_label("What did not succeed: 1 index")).to_be_checked()
    dialog.get_by_role("button", name="Rerun").click()
    expect(page.get_by_role("heading", name="again-rerun-1")).to_be_visible()
    assert namespace.wait_for_job("again-rerun-1") == "Failed"
    page.goto(page.url.partition("#")[0] + f"#/jobs/{namespace.name}/again")
    page.get_by_role("button", name="Rerun again").click()
    dialog.get_by_label("First index").fill("2")
    dialog.get_by_role("button", name="Rerun").click()
    expect(page.get_by_role("heading", name="again-rerun-2")).to_be_visible()
    assert namespace.wait_for_job("again-rerun-2") == "Complete"
    assert namespace.logs("again-rerun-2") == "index 2\n"


def test_results_of_a_sweep_are_sorted_filtered_and_saved_as_csv(
    open_dashboard: Open, namespace: OnejobNamespace, downloads: Path
) -> None:
    sweep(namespace)
    page = open_dashboard(f"/jobs/{namespace.name}/sweep")
    page.get_by_role("link", name="Results").click()
    table = page.get_by_role("table", name="Results")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(page.get_by_text("4 rows, 1 failed, 3 succeeded")).to_be_visible()
    table.get_by_role("button", name="loss").click()
    # By value, not as text; a row without a result comes first.
    expect(rows.nth(0)).to_contain_text("Failed")
    expect(rows.nth(1)).to_contain_text(re.compile(r"Succeeded.*1$"))
    expect(rows.nth(3)).to_contain_text(re.compile(r"Succeeded.*9$"))
    page.get_by_label("Filter by state").select_option("Failed")
    expect(rows).to_have_count(1)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV").click()
    saved.value.save_as(downloads / "sweep.csv")
    lines = (downloads / "sweep.csv").read_text().splitlines()
    assert lines[0].startswith("index,seed,lr,state,exit,seconds,cpu_seconds,peak_memory_bytes")
    assert lines[4].startswith("3,3,2,Failed,3,")
    page.get_by_role("link", name="Pod of index 3").click()
    expect(page.get_by_role("heading", name=re.compile("sweep-3"))).to_be_visible()


def test_an_empty_list_has_a_next_step(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    page.get_by_role("link", name="Create the first Job").click()
    expect(page.get_by_role("heading", name="Create")).to_be_visible()


# --- one Job --------------------------------------------------------------------------------


def test_a_job_is_explained_with_failures_indexes_and_pods(
    open_dashboard: Open, demo: OnejobNamespace
) -> None:
    page = open_dashboard(f"/jobs/{demo.name}/train")
    expect(page.get_by_text("job/train is Failed")).to_be_visible()
    causes = page.get_by_role("region", name="Failures by cause")
    expect(causes).to_contain_text("exit code 7 (Error)")
    expect(causes).to_contain_text("loss is NaN")
    expect(page.get_by_role("application")).to_have_attribute(
        "aria-label", re.compile("11 of 12 succeeded, 1 failed")
    )
    bars = page.get_by_role("region", name="Pods over time").last.locator("li")
    expect(bars).to_have_count(12)
    timeline = page.get_by_role("region", name="Timeline of train")
    expect(timeline).to_contain_text("FailedIndexes")


def test_an_index_leads_to_its_pods(open_dashboard: Open, demo: OnejobNamespace) -> None:
    page = open_dashboard(f"/jobs/{demo.name}/train")
    expect(page.get_by_text("job/train is Failed")).to_be_visible()
    cells = page.get_by_role("application")
    # The fourth square of the first row.
    cells.click(position={"x": 14 + 3 * 18 + 6, "y": 12})
    rows = page.get_by_role("table", name="Pods").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Failed")


def test_a_back_off_is_counted_down(open_dashboard: Open, demo: OnejobNamespace) -> None:
    page = open_dashboard(f"/jobs/{demo.name}/crawl-news")
    timer = page.get_by_role("timer")
    expect(timer).to_contain_text("Next Pod")
    before = timer.inner_text()
    expect(timer).not_to_have_text(before)


def test_a_job_that_runs_changes_before_ones_eyes(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    page = open_dashboard(f"/jobs?namespace={namespace.name}")
    expect(page.get_by_text(f"No Jobs in {namespace.name}")).to_be_visible()
    namespace.create(a_job("quick", "true", completions=3))
    row = page.get_by_role("row", name=re.compile("quick"))
    expect(row).to_contain_text("Complete")
    expect(row).to_contain_text("3/3")


def test_job_page_shows_usage_progress_and_deleted_pods(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    script = 'echo "3/12 epochs" > $ONEJOB_PROGRESS; [ "$JOB_COMPLETION_INDEX" = 1 ] && sleep 600'
    job = a_job("epochs", script, completions=2, parallelism=2, completionMode="Indexed")
    namespace.create(job)
    page = open_dashboard(f"/jobs/{namespace.name}/epochs")
    progress = page.get_by_role("progressbar", name="Progress")
    expect(progress).to_have_attribute("aria-valuenow", "25")
    page.get_by_role("link", name="Pods", exact=True).click()
    failed = page.get_by_role("row", name=re.compile("Failed")).first
    expect(failed).to_contain_text("iB")
    pod = next(p for p in namespace.list("pods") if p["status"]["phase"] == "Failed")
    delete_pod(namespace, pod["metadata"]["name"])
    gone = page.get_by_role("table", name="Deleted Pods")
    expect(gone).to_contain_text(pod["metadata"]["name"])


def test_overview_has_no_alarm_for_a_manual_job(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_cronjob("nightly", "30 2 * * *", "sleep 600"))
    page = open_dashboard(f"/cronjobs/{namespace.name}/nightly")
    page.get_by_role("button", name="Run now: nightly").click()
    expect(page.get_by_role("heading", name=re.compile("^nightly-manual-"))).to_be_visible()
    page.goto(page.url.partition("#")[0] + f"#/resources/v1/events?namespace={namespace.name}")
    expect(page.get_by_role("table")).to_contain_text("UnexpectedJob")
    page.goto(page.url.partition("#")[0] + f"#/?namespace={namespace.name}")
    wrong = page.get_by_role("region", name="What is wrong right now")
    expect(wrong).to_contain_text("there are no warnings about CronJobs")


# --- one Pod --------------------------------------------------------------------------------


def test_pod_page_shows_containers_events_usage_and_logs(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("steps", "echo begun; sleep 600"))
    page = open_dashboard(f"/jobs/{namespace.name}/steps")
    usage = page.get_by_role("region", name="Usage over time")
    expect(usage.get_by_role("img", name=re.compile("Memory.*iB, at most"))).to_be_visible()
    page.get_by_role("link", name="Pods", exact=True).click()
    page.get_by_role("table", name="Pods").get_by_role("link", name=re.compile("^steps-")).click()
    expect(page.get_by_role("heading", name=re.compile("^steps-"))).to_be_visible()
    containers = page.get_by_role("table", name="Containers")
    expect(containers.get_by_role("row", name=re.compile("main"))).to_contain_text("Running")
    expect(page.get_by_role("region", name="Events")).to_be_visible()
    expect(usage.get_by_role("img", name=re.compile("CPU in cores"))).to_be_visible()
    page.get_by_role("link", name="Logs of main").click()
    expect(page.get_by_role("log")).to_contain_text("begun")
    page.get_by_role("link", name="YAML").click()
    expect(page.get_by_role("textbox", name="YAML of Pod")).to_contain_text("restartPolicy")


def test_terminal_runs_a_shell_and_leaves_keys_to_it(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("open", "sleep 600"))
    page = open_dashboard(f"/jobs/{namespace.name}/open?tab=pods")
    page.get_by_role("table", name="Pods").get_by_role("link", name=re.compile("^open-")).click()
    page.get_by_role("link", name="Terminal").click()
    field = page.get_by_role("textbox", name="Terminal in container main")
    expect(field).to_be_focused()
    screen = page.locator(".terminal")
    page.keyboard.type("echo $((6 * 7)) jx; tty\n")
    expect(screen).to_contain_text("42 jx")
    expect(screen).to_contain_text("/dev/pts/")
    expect(page.get_by_role("log", name="Output of the terminal")).to_contain_text("42 jx")
    page.keyboard.type("echo $((3 * 5)) go; sleep 600\n")
    expect(screen).to_contain_text("15 go")
    page.keyboard.press("Control+c")
    expect(screen).to_contain_text("^C")
    page.keyboard.type("exit 3\n")
    expect(page.get_by_role("alert")).to_contain_text("exit code 3")
    # Keys were for the shell: no dialog of the page has opened.
    expect(page.get_by_role("dialog")).to_have_count(0)
    field.press("Shift+Tab")
    expect(page.get_by_role("button", name="Start again")).to_be_focused()
    page.keyboard.press("Enter")
    expect(field).to_be_focused()
    page.keyboard.type("stty size\n")
    expect(screen).to_contain_text(re.compile(r"\d\d 1\d\d"))


def test_terminal_needs_a_running_container_and_permission(
    open_dashboard: Open, demo: OnejobNamespace
) -> None:
    pod = next(
        one["metadata"]["name"]
        for one in demo.list("pods")
        if one["metadata"]["name"].startswith("import-orders")
    )
    page = open_dashboard(f"/resources/v1/pods/{demo.name}/{pod}?tab=terminal")
    expect(page.get_by_text("No container is running")).to_be_visible()


# --- cronjobs -------------------------------------------------------------------------------


def test_a_cronjob_shows_its_times_and_runs_now(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_cronjob("nightly", "30 2 * * *", "true", timeZone="Asia/Tokyo"))
    page = open_dashboard(f"/cronjobs?namespace={namespace.name}")
    row = page.get_by_role("row", name=re.compile("nightly"))
    expect(row).to_contain_text(re.compile("in [0-9]+[smh]"))
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("region", name="Next times").locator("li")).to_have_count(30)
    expect(page.get_by_role("region", name="Next times").locator("li").first).to_contain_text(
        "02:30"
    )
    calendar = page.get_by_role("table", name="Calendar of fires")
    expect(calendar.locator("tbody td")).to_have_count(35)
    expect(calendar.get_by_text("1 to come").first).to_be_attached()
    page.get_by_label("Time zone of the calendar").select_option("mine")
    page.get_by_role("button", name="Suspend nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("cronjob/nightly is suspended.")).to_be_visible()
    page.get_by_role("button", name="Run now: nightly").click()
    expect(page.get_by_role("heading", name=re.compile("^nightly-manual-"))).to_be_visible()
    page.get_by_role("link", name="CronJobs").click()
    expect(row.get_by_role("link", name=re.compile("^nightly-manual-.*: Complete"))).to_be_visible()


def test_a_calendar_does_not_say_that_there_is_nothing_on_days_that_it_does_not_know(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_cronjob("often", "* * * * *", "true", timeZone="Asia/Tokyo"))
    page = open_dashboard(f"/cronjobs/{namespace.name}/often")
    calendar = page.get_by_role("table", name="Calendar of fires")
    expect(calendar.locator("tbody td").last).to_have_attribute(
        "title", re.compile("further times")
    )


def test_cronjob_without_zone_uses_zone_of_browser(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    namespace.create(a_cronjob("ticks", "@every 1h", "true"))
    page = open_dashboard(f"/cronjobs/{namespace.name}/ticks")
    expect(page.get_by_text("times in your zone")).to_have_count(2)
    expect(page.get_by_label("Time zone of the calendar").locator("option")).to_have_count(1)


# --- everything else ------------------------------------------------------------------------


def test_any_kind_has_a_live_table_and_yaml(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    """A custom resource with columns of its own, like all other served kinds."""
    namespace.create(a_definition("trains", "Train", {"name": "Cars", "path": ".spec.cars"}))
    namespace.create(a_train("first", 3))
    page = open_dashboard(f"/resources?namespace={namespace.name}")
    page.get_by_label("Filter kinds").fill("train")
    page.get_by_role("link", name="Train").click()
    table = page.get_by_role("table", name="Train")
    expect(table.get_by_role("columnheader")).to_have_text(["Namespace", "Name", "Cars", "Age"])
    namespace.create(a_train("second", 12))
    expect(table.get_by_role("row", name=re.compile("second"))).to_contain_text("12")
    page.get_by_label("Filter by labels").fill("size=short")
    page.get_by_label("Filter by labels").press("Enter")
    expect(table.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="first").click()
    editor = page.get_by_role("textbox", name="YAML of Train first")
    expect(editor).to_contain_text("cars: 3")
    expect(editor.locator(".cm-line").first).to_have_text("apiVersion: example.com/v1")
    train = namespace.get("trains", "first")
    change(namespace, train, {"spec": {"cars": 4}})
    expect(editor).to_contain_text("cars: 4")
    replace_text(page, "cars: 4", "cars: 5")
    change(namespace, train, {"spec": {"cars": 6}})
    expect(page.get_by_text("Another user has changed it")).to_be_visible()
    page.get_by_role("button", name="Discard my changes and reload").click()
    expect(editor).to_contain_text("cars: 6")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(table).to_be_visible()
    expect(table.get_by_role("link", name="first")).to_have_count(0)


def test_queue_page_shows_waiting_jobs_and_reasons(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    page = open_dashboard(f"/queue?namespace={namespace.name}")
    expect(page.get_by_text("No Job of this namespace is subject to a limit")).to_be_visible()
    limits(namespace, "gpu=1")
    for name in ("first", "second"):
        job = a_job(name, "sleep 60")
        job["metadata"]["labels"]["onejob.dev/queue"] = "gpu"
        namespace.create(job)
    expect(page.get_by_role("meter", name="queue gpu")).to_have_attribute(
        "aria-valuetext", "1 of 1 run, 1 Job queued"
    )
    rows = page.get_by_role("table", name="Queue").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("Running")
    expect(rows.nth(1)).to_contain_text("queue gpu: limit reached")
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_text("is queued")).to_be_visible()
    page.get_by_role("button", name="Suspend second").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("job/second is suspended.")).to_be_visible()
    limits(namespace, "")


def test_mirror_page_shows_problems(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    page = open_dashboard("/resources")
    expect(page.get_by_role("heading", name="All objects")).to_be_visible()
    nav = page.get_by_role("navigation", name="Pages")
    expect(nav.get_by_role("link", name="Mirrors")).to_have_count(0)
    open_dashboard(f"/mirrors?namespace={namespace.name}")
    expect(page.get_by_text("onejob mirror add prod")).to_be_visible()
    namespace.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "prod", "labels": {TARGET_LABEL: ""}},
            "stringData": {"kubeconfig": "nonsense"},
        }
    )
    expect(page.get_by_role("row", name=re.compile("prod"))).to_contain_text("Not ready")
    expect(page.get_by_role("alert")).to_contain_text("InvalidKubeconfig")
    page.get_by_role("link", name="All objects").click()
    page.reload()
    expect(nav.get_by_role("link", name="Mirrors")).to_be_visible()


def test_a_job_is_created_from_the_form(open_dashboard: Open, namespace: OnejobNamespace) -> None:
    page = open_dashboard("/create")
    page.get_by_label("Name", exact=True).fill("made")
    page.get_by_label("Namespace").fill(namespace.name)
    page.get_by_label("Command").fill("echo $GREETING $PWD $JOB_COMPLETION_INDEX")
    page.get_by_label("Working folder").fill("/usr")
    page.get_by_label("Environment").fill("GREETING=two words=2\n\nEMPTY")
    page.get_by_label("Queue, to wait").fill("gpu")
    page.get_by_label("Completions", exact=True).fill("2")
    page.get_by_label("Give each completion an index").check()
    editor = page.get_by_role("textbox", name="YAML to create")
    expect(editor).to_contain_text("completionMode: Indexed")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="made")).to_be_visible()
    assert namespace.wait_for_job("made") == "Complete"
    assert namespace.logs("made") == "two words=2 /usr 0\ntwo words=2 /usr 1\n"
    made = namespace.get("job", "made")
    assert made["metadata"]["labels"]["onejob.dev/queue"] == "gpu"
    assert made["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "GREETING", "value": "two words=2"},
        {"name": "EMPTY"},
    ]


def test_a_schedule_in_the_form_makes_a_cronjob(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    page = open_dashboard("/create")
    page.get_by_label("Name", exact=True).fill("hourly")
    page.get_by_label("Namespace").fill(namespace.name)
    page.get_by_label("Schedule, for a CronJob").fill("7 * * * *")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_text("cronjob/hourly is waiting")).to_be_visible()


def test_rejected_manifest_shows_error_at_line(
    open_dashboard: Open, namespace: OnejobNamespace
) -> None:
    page = open_dashboard("/create")
    page.get_by_label("Name", exact=True).fill("Not_A_Name")
    page.get_by_label("Namespace").fill(namespace.name)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("metadata.name")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)


def test_read_only_user_sees_notice(
    browser: Browser, server: OnejobServer, namespace: OnejobNamespace, tmp_path: Path
) -> None:
    """A session has the permissions of its user, no more."""
    namespace.create(a_job("seen", "sleep 60"))
    home = server.kubeconfig.parent
    target = tmp_path / "viewer.kubeconfig"
    _add_viewer(home, namespace, target)
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(sign_in_address(target, server))
    page.get_by_role("heading", name="Overview").wait_for()
    expect(page.get_by_role("alert")).to_contain_text("Choose a namespace that you may look at")
    expect(page.get_by_text("No problems")).to_have_count(0)
    expect(page.get_by_text("Nothing is running")).to_have_count(0)
    field = page.get_by_role("textbox", name="Namespace")
    field.fill(namespace.name)
    field.press("Enter")
    page.get_by_role("link", name="Jobs", exact=True).click()
    _choose(page, "seen", "Suspend")
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("cannot patch resource")).to_be_visible()
    assert not namespace.get("job", "seen")["spec"].get("suspend")
    context.close()


def _add_viewer(home: Path, namespace: OnejobNamespace, target: Path) -> None:
    from datetime import UTC, datetime

    import msgspec

    from onejob.api.access.users import USERS_FILE, add_user

    at = datetime(2030, 1, 1, tzinfo=UTC)
    token = add_user(home / "server" / USERS_FILE, f"viewer-{namespace.name}", (), at, None)
    namespace.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "viewers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User",
                    "name": f"viewer-{namespace.name}",
                }
            ],
        }
    )
    config = msgspec.json.decode(namespace.kubeconfig.read_bytes())
    config["users"][0]["user"] = {"token": token}
    target.touch(mode=0o600)
    target.write_bytes(msgspec.json.encode(config))


def test_kept_runs_have_pages_without_actions(browser: Browser, tmp_path: Path) -> None:
    onejob = CommandLine(tmp_path)
    failing = "echo out of paper; exit 3"
    onejob.run("run", "--name", "print", "--", "sh", "-c", failing)
    served = onejob.start("ui", "--no-browser")
    assert served.stdout is not None
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    try:
        page.goto(served.stdout.readline().strip())
        row = page.get_by_role("row", name=re.compile("print"))
        expect(row).to_contain_text("Failed")
        assert findings(page) == []
        row.get_by_role("link", name="print").click()
        expect(page.get_by_text("job/print is Failed")).to_be_visible()
        expect(page.get_by_text("Read-only.")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Rerun|Delete"))).to_have_count(0)
        page.keyboard.press("x")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("link", name="Logs", exact=True).click()
        expect(page.get_by_role("log")).to_contain_text("out of paper")
        page.get_by_role("link", name="Jobs", exact=True).first.click()
        expect(
            page.get_by_role("row", name=re.compile("exit code 3: out of paper"))
        ).to_be_visible()
        page.get_by_role("link", name="All runs").click()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        require_accessible(page)
    finally:
        context.close()
        served.terminate()
        served.communicate(timeout=60)
    assert served.returncode == 0


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/jobs/default/nothing", "Job not found"),
        ("/cronjobs/default/nothing", "CronJob not found"),
        ("/nowhere", "Page not found"),
        ("/resources/example.com/v1/things", "This kind is not served"),
    ],
)
def test_missing_object_shows_message(open_dashboard: Open, address: str, words: str) -> None:
    expect(open_dashboard(address).get_by_text(words)).to_be_visible()
