"""Opening a page in the user's browser."""

import webbrowser


def open_browser(address: str) -> bool:
    """Open an address in a graphical browser; return whether one was found and opened it."""
    try:
        # A text browser would take over this terminal, and cannot show the page.
        if isinstance(browser := webbrowser.get(), webbrowser.GenericBrowser) and not isinstance(
            browser, webbrowser.BackgroundBrowser
        ):
            return False
        return browser.open(address)
    except webbrowser.Error:
        return False
