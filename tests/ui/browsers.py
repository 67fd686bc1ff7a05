"""The browser that tests and pictures use: Debian's Chromium, or the one that is named."""

import os
import shutil

from playwright.sync_api import Browser, Playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """The path of a browser; CHROMIUM names another one."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


def launch(playwright: Playwright) -> Browser:
    # Chromium refuses its sandbox to root, and small machines have little shared memory.
    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=find(), args=arguments)
