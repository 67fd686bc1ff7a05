"""Opening a page in the user's browser."""

import webbrowser


def open_browser(address: str) -> bool:
    """Whether there is a browser with a window of its own that opened it."""
    try:
        # A browser in this terminal would take it over, and cannot show the page.
        if isinstance(browser := webbrowser.get(), webbrowser.GenericBrowser) and not isinstance(
            browser, webbrowser.BackgroundBrowser
        ):
            return False
        return browser.open(address)
    except webbrowser.Error:
        return False
