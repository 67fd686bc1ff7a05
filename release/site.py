"""Pages of the documentation site: copied into one folder, with links that work there.

`python -m release.site FOLDER [MERMAID]` prepares what `mkdocs.yml` builds. Files of the repository
that are no pages, such as code and examples, become part of the site if a page links to them.
"""

import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Pages outside of docs/ that are part of the site, by their path there.
OTHER_PAGES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
)
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")
_HIDDEN = re.compile(r"^ *<!-- (?:guide|figures): .*?-->\n", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


class BrokenLink(Exception):
    """A page links to a file that does not exist."""


def stage(folder: Path, mermaid: Path | None) -> None:
    """Write all pages and what they link to. Raises BrokenLink."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = {source: place_of(source) for source in sources()}
    attached: dict[str, str] = {}
    for source, place in pages.items():
        text = converted(source, pages, attached)
        put(folder / place, text)
    for source, place in attached.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, target)
    for name in ("site.css", "site.js"):
        shutil.copy(ROOT / "release" / name, folder)
    if mermaid is not None:
        shutil.copy(mermaid, folder / "mermaid.min.js")
    else:
        put(folder / "mermaid.min.js", "")


def sources() -> Iterator[str]:
    """Yield the path of each page in the repository."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield page.relative_to(ROOT).as_posix()
    yield from OTHER_PAGES


def place_of(source: str) -> str:
    return source.removeprefix("docs/")


def converted(source: str, pages: dict[str, str], attached: dict[str, str]) -> str:
    """Return the text of a page for the site; files that it links to are added to `attached`."""
    text = _HIDDEN.sub("", (ROOT / source).read_text())
    here = posixpath.dirname(place_of(source))

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not (ROOT / path).exists():
            raise BrokenLink(f"{source} links to {target}")
        place = pages.get(path) or pages.get(f"{path}/README.md")
        if place is None and (ROOT / path).is_dir():
            # A folder has no page: its first file stands for it.
            path = min(
                f.relative_to(ROOT).as_posix() for f in (ROOT / path).iterdir() if f.is_file()
            )
        if place is None:
            place = attached[path] = place_of(path)
        return posixpath.relpath(place, here or ".") + anchor

    parts = []
    end = 0
    for block in _FENCED.finditer(text):
        parts += [_LINK.sub(link, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def put(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


if __name__ == "__main__":
    stage(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
