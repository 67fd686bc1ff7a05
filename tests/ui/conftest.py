"""Fixtures: one browser and one server for consecutive tests of the dashboard.

Not for the whole session: while Playwright is active, its event loop is that of the thread, and
tests that run one of their own would fail.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onejob.testing import OnejobNamespace, OnejobServer
from tests.ui.demo import fill, fill_workflows, sign_in_address

pytest.importorskip("playwright", reason="playwright is not installed: make setup")

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.ui import browsers

_SECONDS = 60


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if browsers.find() is None:
        pytest.skip("there is no Chromium: make chromium")
    with sync_playwright() as playwright:
        launched = browsers.launch(playwright)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnejobServer]:
    running = OnejobServer(tmp_path_factory.mktemp("dashboard"))
    yield running
    running.stop()


@pytest.fixture(scope="package")
def demo(server: OnejobServer) -> Iterator[OnejobNamespace]:
    """Create Jobs in every state. Tests only read them."""
    namespace = server.new_namespace()
    fill(namespace)
    yield namespace
    namespace.close()


@pytest.fixture(scope="package")
def flows(server: OnejobServer) -> Iterator[OnejobNamespace]:
    """Create a workflow with tasks of all ends. Tests only read it."""
    namespace = server.new_namespace()
    fill_workflows(namespace)
    yield namespace
    namespace.close()


@pytest.fixture
def namespace(server: OnejobServer) -> Iterator[OnejobNamespace]:
    """Yield a namespace of the test's own."""
    made = server.new_namespace()
    yield made
    made.remove()


@pytest.fixture(scope="package")
def context(browser: Browser, server: OnejobServer) -> Iterator[BrowserContext]:
    """Yield a browser context signed in as the admin."""
    made = browser.new_context(
        ignore_https_errors=True, viewport={"width": 1280, "height": 800}, locale="en-GB"
    )
    made.set_default_timeout(_SECONDS * 1000)
    expect.set_options(timeout=_SECONDS * 1000)
    page = made.new_page()
    page.goto(sign_in_address(server.kubeconfig, server))
    page.get_by_role("heading", name="Overview").wait_for()
    page.close()
    yield made
    made.close()


class Dashboard:
    """A tab, and the errors of its console."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._on_dialog)

    def go(self, address: str) -> Page:
        self.page.goto(f"{self._url}/ui/#{address}")
        return self.page

    def _on_console(self, message: Any) -> None:
        # The page displays responses such as 403 and 422; the browser logs them, too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def _on_dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def open_dashboard(
    context: BrowserContext, server: OnejobServer
) -> Iterator[Callable[[str], Page]]:
    """Yield a function that opens an address in a new tab; console errors fail the test."""
    page = context.new_page()
    dashboard = Dashboard(page, server.url)
    yield dashboard.go
    page.close()
    assert dashboard.complaints == []


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    return tmp_path
