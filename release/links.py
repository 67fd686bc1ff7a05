"""Links of a built site: `python -m release.links SITE` fails if one leads nowhere.

It reads the HTML, so that it also covers what the theme generates. Scripts, styles and pictures
must come from the site itself.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Anchors of a page, its links, and the addresses that a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if "src" in found:
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") != "canonical":
            self.loaded.append(found.get("href", ""))
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])


def problems(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere and each address of another site."""
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        name = file.relative_to(site)
        found += [f"{name}: loads {address}" for address in page.loaded if urlsplit(address).netloc]
        # The page of errors is served at every address, so its links are absolute.
        if file.name != "404.html":
            targets = [link for link in (*page.links, *page.loaded) if not urlsplit(link).netloc]
            found += [f"{name}: {link}" for link in targets if not _leads(file, link, pages)]
    return found


def _leads(file: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme in ("mailto", "data"):
        return True
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    page = pages.get(target)
    return page is None or unquote(parts.fragment) in page.anchors


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    pages = sorted(site.rglob("*.html"))
    links = sum(len(Page(file.read_text()).links) for file in pages)
    print(f"{len(pages)} pages, {links} links, {len(found)} broken")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
