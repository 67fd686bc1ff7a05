"""Browser for tests and screenshots: Debian's Chromium, or another one by configuration."""

import os
import shutil

from playwright.sync_api import Browser, Page, Playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """Return the path of a browser, or None; the variable CHROMIUM overrides it."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


def launch(playwright: Playwright) -> Browser:
    # Chromium refuses its sandbox to root, and small machines have little shared memory.
    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=find(), args=arguments)


def replace_text(page: Page, old: str, new: str) -> None:
    """Replace a piece of the editor's text by typing."""
    line = page.locator(".cm-line", has_text=old)
    line.click()
    page.keyboard.press("End")
    for _ in old:
        page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.type(new)
