"""Checks of pages by axe-core."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).resolve().parents[2] / "ui/node_modules/axe-core/axe.min.js"


def require_accessible(page: Page) -> None:
    """Fail on findings, low contrast in light or dark, or a page wider than a phone."""
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    assert findings(page, "{runOnly: ['color-contrast']}") == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")


def findings(page: Page, options: str = "{}") -> list[Any]:
    """Return all findings. Skips the test without axe-core."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make ui-check")
    # Evaluated, not added as a script: the page's policy allows none but its own.
    page.evaluate(AXE.read_text() + "; undefined")
    found = page.evaluate(f"axe.run({{resultTypes: ['violations'], ...{options}}})")
    return [
        (item["id"], [node["html"][:160] for node in item["nodes"]][:3])
        for item in found["violations"]
    ]
