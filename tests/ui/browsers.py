"""The browser that tests and pictures use: Debian's Chromium, or the one that is named."""

import os
import shutil

from playwright.sync_api import Browser, Page, Playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """The path of a browser; CHROMIUM names another one."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


def launch(playwright: Playwright) -> Browser:
    # Chromium refuses its sandbox to root, and small machines have little shared memory.
    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=find(), args=arguments)


def replace_text(page: Page, old: str, new: str) -> None:
    """Types over a piece of the editor's text."""
    line = page.locator(".cm-line", has_text=old)
    line.click()
    page.keyboard.press("End")
    for _ in old:
        page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.type(new)
