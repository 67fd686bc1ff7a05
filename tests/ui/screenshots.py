"""Screenshots of the dashboard's pages: `python -m tests.ui.screenshots FOLDER [PAGE...]`.

Widths of 1280 and 390 pixels, light and dark. Names with `state-` are of rare states, names with
`empty-` of a server without Jobs.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from onejob.testing import OnejobNamespace, OnejobServer
from tests.ui.browsers import launch
from tests.ui.demo import fill, fill_workflows, sign_in_address, sweep
from tests.ui.states import LONG_NAME, fill_states, report_indexes

_PAGES = {
    "overview": "#/",
    "jobs": "#/jobs",
    "job": "#/jobs/{ns}/render",
    "job-failed": "#/jobs/{ns}/train",
    "job-backoff": "#/jobs/{ns}/crawl-news",
    "results": "#/jobs/{ns}/sweep?tab=results",
    "pod": "#/resources/v1/pods/{ns}/{pod}",
    "terminal": "#/resources/v1/pods/{ns}/{pod}?tab=terminal",
    "pods": "#/jobs/{ns}/train?tab=pods",
    "logs": "#/jobs/{ns}/render?tab=logs",
    "yaml": "#/jobs/{ns}/train?tab=yaml",
    "workflows": "#/workflows",
    "workflow": "#/workflows/{ns}/training",
    "cronjobs": "#/cronjobs",
    "cronjob": "#/cronjobs/{ns}/nightly-backup",
    "queue": "#/queue",
    "mirrors": "#/mirrors",
    "everything": "#/resources",
    "pod-table": "#/resources/v1/pods",
    "create": "#/create",
}
_EMPTY = {
    "empty-overview": "#/",
    "empty-jobs": "#/jobs",
    "empty-cronjobs": "#/cronjobs",
    "empty-queue": "#/queue",
    "empty-table": "#/resources/v1/pods",
}
_STATES = {
    "state-overview": "#/",
    "state-jobs": "#/jobs",
    "state-three-causes": "#/jobs/{ns}/three-causes",
    "state-init-fails": "#/jobs/{ns}/init-fails",
    "state-init-logs": "#/jobs/{ns}/init-fails?tab=logs&container=fetch",
    "state-retries": "#/jobs/{ns}/retries-an-index",
    "state-many-indexes": "#/jobs/{ns}/many-indexes",
    "state-long-name": f"#/jobs/{{ns}}/{LONG_NAME}",
    "state-long-logs": f"#/jobs/{{ns}}/{LONG_NAME}?tab=logs",
    "state-long-yaml": f"#/jobs/{{ns}}/{LONG_NAME}?tab=yaml",
    "state-queue": "#/queue",
    "state-queued": "#/jobs/{ns}/gpu-second",
    "state-cronjobs": "#/cronjobs",
    "state-cronjob-skips": "#/cronjobs/{ns}/skips",
    "state-cronjob-minute": "#/cronjobs/{ns}/every-minute",
    "state-custom-table": "#/resources/example.com/v1/trains",
    "state-custom": "#/resources/example.com/v1/trains/{ns}/train-1",
    "state-pod-of-job": "#/resources/v1/pods?namespace={ns}&text=three",
    "state-no-job": "#/jobs/{ns}/nothing",
    "state-no-page": "#/nowhere",
}
_SIZES: dict[str, Any] = {
    "1280": {"width": 1280, "height": 800},
    "390": {"width": 390, "height": 844},
}


def main(folder: Path, only: set[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        server = OnejobServer(Path(place))
        try:
            namespace = server.new_namespace()
            _take(server, namespace, folder, only, _EMPTY)
            fill(namespace)
            fill_workflows(namespace)
            sweep(namespace)
            _take(server, namespace, folder, only, _PAGES)
            fill_states(namespace)
            report_indexes(namespace)
            _take(server, namespace, folder, only, _STATES)
            namespace.close()
        finally:
            server.stop()


def _take(
    server: OnejobServer,
    namespace: OnejobNamespace,
    folder: Path,
    only: set[str],
    pages: dict[str, str],
) -> None:
    pods = (pod["metadata"]["name"] for pod in namespace.list("pods"))
    names = {"ns": namespace.name, "pod": next((p for p in pods if p.startswith("render-")), "")}
    wanted = {name: page for name, page in pages.items() if not only or name in only}
    if not wanted:
        return
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for size, view in _SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport=view,
                    color_scheme=scheme,
                    ignore_https_errors=True,
                )
                page = context.new_page()
                page.on("console", lambda message: print("console:", message.text))
                page.on("pageerror", lambda error: print("error:", error))
                page.goto(sign_in_address(server.kubeconfig, server))
                page.get_by_role("heading", name="Overview").wait_for()
                for name, address in wanted.items():
                    page.goto(f"{server.url}/ui/{address.format(**names)}")
                    page.wait_for_timeout(1500)
                    page.screenshot(path=folder / f"{name}-{size}-{scheme}.png")
                if pages is _EMPTY:
                    page.get_by_role("button", name="Sign out").click()
                    page.get_by_role("heading", name="Sign in").wait_for()
                    page.screenshot(path=folder / f"signed-out-{size}-{scheme}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), set(sys.argv[2:]))
