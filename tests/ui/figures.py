"""Benchmark of the dashboard: a Job of 10^5 indexes, a log of 100 MB, and 20 open pages.

`python -m tests.ui.figures [--indexes N] [PART...]`, the parts being `busy`, `big` and `log`. Pods
of the first two are simulated, so that only control plane and page are measured; the log is that of
a real process. The page is measured by the browser itself: its trace, its clock, the heap of the
tab. Frames by the clock depend on other load of the machine; the CPU time of the tasks between them
does not.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import msgspec
from playwright.sync_api import Browser, Page, sync_playwright

from onejob.testing import OnejobNamespace, OnejobServer
from tests.ui import browsers
from tests.ui.demo import a_job, sign_in_address

_DASHBOARDS = 20
_BUSY_PODS = 5000
_LOG_BYTES = 100_000_000
_LONG_MS = 50
_PARTS = ("busy", "big", "log")
#: Scrolls through a box and returns the duration of each frame.
_SCROLL = """async ([selector, step]) => {
  const box = document.querySelector(selector);
  const frames = [];
  let before = performance.now();
  for (let count = 0; count < 300; count += 1) {
    box.scrollTop += step;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
  }
  return frames;
}"""
#: Records when an element first appeared, by the clock that starts with the page.
_NOTE_FIRST = """(() => {
  const wanted = { grid: '[role=application]', whole: '.gantt .line', line: '.log .l' };
  window.firstSeen = {};
  const look = () => {
    for (const [name, selector] of Object.entries(wanted)) {
      if (document.querySelector(selector)) firstSeen[name] ??= performance.now();
    }
    requestAnimationFrame(look);
  };
  look();
})()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", default=[])
    parser.add_argument("--indexes", type=int, default=100_000)
    chosen = parser.parse_args()
    parts = chosen.parts or _PARTS
    if unknown := set(parts) - set(_PARTS):
        parser.error(f"{min(unknown)}: choose from {', '.join(_PARTS)}")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        if "busy" in parts or "big" in parts:
            with _served(Path(folder) / "simulated", "simulated") as (server, namespace):
                if "busy" in parts:
                    _busy(server, namespace)
                if "big" in parts:
                    _big_job(server, namespace, chosen.indexes)
        if "log" in parts:
            with _served(Path(folder) / "real", "process") as (server, namespace):
                _large_log(server, namespace)


@contextmanager
def _served(
    folder: Path, runtime: Literal["process", "simulated"]
) -> Iterator[tuple[OnejobServer, OnejobNamespace]]:
    folder.mkdir()
    server = OnejobServer(folder, runtime)
    namespace = server.new_namespace()
    try:
        yield server, namespace
    finally:
        namespace.close()
        server.stop()


# --- cost of open dashboards ------------------------------------------------------------------


def _busy(server: OnejobServer, namespace: OnejobNamespace) -> None:
    for number, dashboards in enumerate((0, _DASHBOARDS, 0, _DASHBOARDS)):
        name = f"busy-{number}"
        job = a_job(
            name, "true", completions=_BUSY_PODS, parallelism=100, completionMode="Indexed",
            suspend=True,
        )  # fmt: skip
        namespace.create(job)
        address = (server.url, _headers(server), namespace.name, name)
        # In a process of its own: the server shares this one's interpreter.
        crowd = multiprocessing.get_context("spawn").Process(
            target=_crowd, args=(dashboards, *address), daemon=True
        )
        crowd.start()
        time.sleep(3)
        start, worked = time.monotonic(), time.process_time()
        _resume(server, namespace.name, name)
        namespace.wait_for_job(name, 600)
        took, cost = time.monotonic() - start, time.process_time() - worked
        crowd.terminate()
        crowd.join()
        print(
            f"{dashboards:2} dashboards: {_BUSY_PODS / took:,.0f} Pods/s, "
            f"{cost / _BUSY_PODS * 1000:.2f} ms of the server's processor time for each",
            flush=True,
        )


def _connection(url: str) -> http.client.HTTPSConnection:
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host = parts.hostname or ""
    return http.client.HTTPSConnection(host, parts.port, timeout=60, context=context)


def _headers(server: OnejobServer) -> dict[str, str]:
    config = msgspec.json.decode(server.kubeconfig.read_bytes())
    return {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}


def _resume(server: OnejobServer, namespace: str, name: str) -> None:
    connection = _connection(server.url)
    headers = {**_headers(server), "Content-Type": "application/merge-patch+json"}
    body = json.dumps({"spec": {"suspend": False}})
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    connection.request("PATCH", path, body, headers)
    assert connection.getresponse().read()
    connection.close()


def _crowd(dashboards: int, url: str, headers: dict[str, str], namespace: str, name: str) -> None:
    """Send the requests of pages that show one Job: watches of it and its events, its summary."""
    for _ in range(dashboards):
        for show in (_watch, _events, _summaries):
            arguments = (url, headers, namespace, name)
            threading.Thread(target=show, args=arguments, daemon=True).start()
    threading.Event().wait()


def _watch(url: str, headers: dict[str, str], namespace: str, name: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?fieldSelector=metadata.name%3D{name}"
    _follow(url, path, headers)


def _events(url: str, headers: dict[str, str], namespace: str, name: str) -> None:
    fields = quote(f"involvedObject.name={name},involvedObject.kind=Job", safe="")
    _follow(url, f"/api/v1/namespaces/{namespace}/events?fieldSelector={fields}", headers)


def _follow(url: str, path: str, headers: dict[str, str]) -> None:
    connection = _connection(url)
    connection.request("GET", f"{path}&watch=true&timeoutSeconds=600", headers=headers)
    changes = connection.getresponse()
    while changes.read1(65536):
        pass


def _summaries(url: str, headers: dict[str, str], namespace: str, name: str) -> None:
    connection = _connection(url)
    while True:
        connection.request("GET", f"/ui/api/jobs/{namespace}/{name}", headers=headers)
        connection.getresponse().read()
        time.sleep(1.5)


# --- measurements by the browser --------------------------------------------------------------


@contextmanager
def _signed_in(server: OnejobServer) -> Iterator[tuple[Browser, Page]]:
    with sync_playwright() as playwright:
        browser = browsers.launch(playwright)
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.add_init_script(_NOTE_FIRST)
        page.goto(sign_in_address(server.kubeconfig, server))
        page.get_by_role("heading", name="Overview").wait_for()
        yield browser, page
        browser.close()


def _scrolled(browser: Browser, page: Page, selector: str, step: int) -> str:
    categories = ["toplevel", "devtools.timeline", "__metadata"]
    browser.start_tracing(page=page, categories=categories)
    frames = sorted(page.evaluate(_SCROLL, [selector, step]))
    trace = json.loads(browser.stop_tracing())
    tasks = _main_thread_tasks(trace["traceEvents"])
    return (
        f"300 scrolled frames: median {frames[150]:.0f} ms, 99 % {frames[297]:.0f} ms, longest "
        f"{frames[-1]:.0f} ms, {sum(frame > _LONG_MS for frame in frames)} over {_LONG_MS} ms; "
        f"tasks of the main thread by its trace, in processor time: longest {max(tasks):.0f} ms, "
        f"{sum(task > _LONG_MS for task in tasks)} over {_LONG_MS} ms"
    )


def _main_thread_tasks(events: list[dict[str, Any]]) -> list[float]:
    """Return the CPU milliseconds of each task between which the page can be drawn."""
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event["tdur"] / 1000
        for event in events
        if event["name"].endswith("RunTask")
        and (event["pid"], event["tid"]) in mains
        and "tdur" in event
    ]


def _memory(browser: Browser, page: Page) -> str:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    everyone = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    renderers = [_resident(one["id"]) for one in everyone if one["type"] == "renderer"]
    heap = metrics["JSHeapUsedSize"] / 1e6
    return f"heap {heap:.0f} MB, largest process of a tab {max(renderers) / 1e6:.0f} MB resident"


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- a Job of 10^5 indexes ------------------------------------------------------------------


def _big_job(server: OnejobServer, namespace: OnejobNamespace, indexes: int) -> None:
    job = a_job("big", "true", completions=indexes, parallelism=200, completionMode="Indexed")
    namespace.create(job)
    with _signed_in(server) as (browser, page):
        running = _opened(browser, page, server, namespace.name)
        print(f"{indexes:,} indexes, while it runs: {running}", flush=True)
        start = time.monotonic()
        page.goto("about:blank")
        namespace.wait_for_job("big", 7200)
        took = time.monotonic() - start
        print(f"{indexes:,} Pods of it are in the store after {took:.0f} s more", flush=True)
        for _ in range(3):
            found = _opened(browser, page, server, namespace.name)
            print(f"{indexes:,} indexes, complete: {found}", flush=True)


def _opened(browser: Browser, page: Page, server: OnejobServer, namespace: str) -> str:
    page.goto("about:blank")
    page.goto(f"{server.url}/ui/#/jobs/{namespace}/big")
    page.locator(".gantt .line").first.wait_for()
    seen = page.evaluate("firstSeen")
    scrolled = _scrolled(browser, page, ".cells", 40)
    return (
        f"index grid after {seen['grid'] / 1000:.2f} s, all after {seen['whole'] / 1000:.2f} s; "
        f"{scrolled}; {_memory(browser, page)}"
    )


# --- a log of 100 MB ------------------------------------------------------------------------


def _large_log(server: OnejobServer, namespace: OnejobNamespace) -> None:
    lines = _LOG_BYTES // 100
    namespace.create(a_job("talk", f"yes {'x' * 92} | head -n {lines} | cat -n"))
    namespace.wait_for_job("talk", 300)
    with _signed_in(server) as (browser, page):
        page.goto("about:blank")
        page.goto(f"{server.url}/ui/#/jobs/{namespace.name}/talk?tab=logs")
        page.locator(".log .l").first.wait_for()
        first = page.evaluate("firstSeen.line")
        print(f"a log of {_LOG_BYTES / 1e6:.0f} MB: first line after {first / 1000:.2f} s")
        for more in (False, True):
            if more:
                page.get_by_role("button", name="Earlier lines").click()
            shown = page.get_by_text(re.compile(r"lines.*, ended"))
            shown.wait_for()
            page.evaluate("document.querySelector('.log').scrollTop = 0")
            scrolled = _scrolled(browser, page, ".log", 900)
            print(f"  {shown.inner_text()}: {scrolled}; {_memory(browser, page)}", flush=True)


if __name__ == "__main__":
    main()
