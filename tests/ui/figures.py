"""How the dashboard bears a Job of 10^5 indexes, and what open dashboards cost the server.

`python -m tests.ui.figures [INDEXES]`. Pods are simulated, so that only control plane and page are
measured. The page is measured by the browser itself: long frames, and the heap of the tab.
"""

import http.client
import json
import multiprocessing
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Page, sync_playwright

from onejob.testing import OnejobNamespace, OnejobServer
from tests.ui import browsers
from tests.ui.demo import a_job, sign_in_address

_DASHBOARDS = 20
_BUSY_PODS = 5000
_SCROLL = """async () => {
  const box = document.querySelector('.cells');
  const frames = [];
  let before = performance.now();
  for (let step = 0; step < 300; step += 1) {
    box.scrollTop += 40;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
  }
  frames.sort((a, b) => a - b);
  const at = (share) => frames[Math.floor(frames.length * share)];
  const over50 = frames.filter((frame) => frame > 50).length;
  return { median: at(0.5), p99: at(0.99), longest: frames.at(-1), over50 };
}"""


def main(indexes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = OnejobServer(Path(folder), "simulated")
        namespace = server.new_namespace()
        try:
            _busy(server, namespace)
            _big_job(server, namespace, indexes)
        finally:
            namespace.close()
            server.stop()


# --- what open dashboards cost --------------------------------------------------------------


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
        start = time.monotonic()
        _resume(server, namespace.name, name)
        namespace.wait_for_job(name, 600)
        took = time.monotonic() - start
        crowd.terminate()
        crowd.join()
        print(f"{dashboards:2} dashboards: {_BUSY_PODS / took:,.0f} Pods/s", flush=True)


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
    """The requests of pages that show one Job: a watch that is read, and its summary."""
    for _ in range(dashboards):
        for show in (_watch, _summaries):
            arguments = (url, headers, namespace, name)
            threading.Thread(target=show, args=arguments, daemon=True).start()
    threading.Event().wait()


def _watch(url: str, headers: dict[str, str], namespace: str, name: str) -> None:
    connection = _connection(url)
    query = f"watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds=600"
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?{query}"
    connection.request("GET", path, headers=headers)
    changes = connection.getresponse()
    while changes.read1(65536):
        pass


def _summaries(url: str, headers: dict[str, str], namespace: str, name: str) -> None:
    connection = _connection(url)
    while True:
        connection.request("GET", f"/ui/api/jobs/{namespace}/{name}", headers=headers)
        connection.getresponse().read()
        time.sleep(1.5)


# --- a Job of 10^5 indexes ------------------------------------------------------------------


def _big_job(server: OnejobServer, namespace: OnejobNamespace, indexes: int) -> None:
    job = a_job("big", "true", completions=indexes, parallelism=200, completionMode="Indexed")
    namespace.create(job)
    with sync_playwright() as playwright:
        browser = browsers.launch(playwright)
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(sign_in_address(server.kubeconfig, server))
        page.get_by_role("heading", name="Overview").wait_for()
        print(f"{indexes:,} indexes, while it runs: {_opened(page, server, namespace.name)}")
        namespace.wait_for_job("big", 3600)
        print(f"{indexes:,} indexes, complete: {_opened(page, server, namespace.name)}")
        browser.close()


def _opened(page: Page, server: OnejobServer, namespace: str) -> str:
    page.goto("about:blank")
    start = time.monotonic()
    page.goto(f"{server.url}/ui/#/jobs/{namespace}/big")
    page.get_by_role("application").wait_for()
    grid = time.monotonic() - start
    page.get_by_role("region", name="Pods over time").last.wait_for()
    whole = time.monotonic() - start
    frames = page.evaluate(_SCROLL)
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    texts = ", ".join(f"{name} {value:.1f}" for name, value in frames.items())
    return (
        f"index grid after {grid:.2f} s, all after {whole:.2f} s; "
        f"300 scrolled frames in ms: {texts}; heap {heap:.0f} MB"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
