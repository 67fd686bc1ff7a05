"""Pictures of the dashboard's pages: `python -m tests.ui.screenshots FOLDER`.

Widths of 1280 and 390 pixels, light and dark.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from onejob.testing import OnejobServer
from tests.ui.browsers import launch
from tests.ui.demo import fill, sign_in_address

_PAGES = {
    "overview": "#/",
    "jobs": "#/jobs",
    "job": "#/jobs/{ns}/render",
    "job-failed": "#/jobs/{ns}/train",
    "job-backoff": "#/jobs/{ns}/crawl-news",
    "pods": "#/jobs/{ns}/train?tab=pods",
    "logs": "#/jobs/{ns}/render?tab=logs",
    "yaml": "#/jobs/{ns}/train?tab=yaml",
    "cronjobs": "#/cronjobs",
    "cronjob": "#/cronjobs/{ns}/nightly-backup",
    "everything": "#/resources",
    "pod-table": "#/resources/v1/pods",
    "create": "#/create",
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
            fill(namespace)
            namespace.close()
            _take(server, namespace.name, folder, only)
        finally:
            server.stop()


def _take(server: OnejobServer, namespace: str, folder: Path, only: set[str]) -> None:
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
                for name, address in _PAGES.items():
                    if only and name not in only:
                        continue
                    page.goto(f"{server.url}/ui/{address.format(ns=namespace)}")
                    page.wait_for_timeout(1500)
                    page.screenshot(path=folder / f"{name}-{size}-{scheme}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), set(sys.argv[2:]))
