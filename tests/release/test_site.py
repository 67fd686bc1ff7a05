"""The documentation site: staged pages, navigation, and the check of links."""

import re
from pathlib import Path

import pytest

from release import site
from release.links import problems

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    site.stage(tmp_path / "pages", None)
    return tmp_path / "pages"


def test_every_link_of_a_staged_page_leads_to_a_staged_file(pages: Path) -> None:
    broken = []
    for page in pages.rglob("*.md"):
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        targets = [t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t]
        broken += [f"{page.name}: {t}" for t in targets if not (page.parent / t).exists()]
    assert broken == []


def test_directives_of_tests_are_not_part_of_the_site(pages: Path) -> None:
    assert [page for page in pages.rglob("*.md") if "<!-- guide:" in page.read_text()] == []


def test_navigation_has_every_page_but_single_decisions(pages: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r"([\w./-]+\.md)$", nav, re.MULTILINE))
    present = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    assert listed <= present
    assert {p for p in present - listed if not p.startswith(("decisions/", "tests/"))} == set()


def test_page_with_a_broken_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[a](absent.md)")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    with pytest.raises(site.BrokenLink, match=r"docs/index\.md links to absent\.md"):
        site.converted("docs/index.md", {}, {})


def test_links_outside_of_the_documentation_become_attachments() -> None:
    attached: dict[str, str] = {}
    text = site.converted("docs/index.md", {"docs/install.md": "install.md"}, attached)
    assert "(install.md)" in text
    assert attached["docs/pictures/run.svg"] == "pictures/run.svg"
    assert attached["ARCHITECTURE.md"] == "ARCHITECTURE.md"


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="b.html#there">b</a>', None),
        ('<a href="b.html#missing">b</a>', "a.html: b.html#missing"),
        ('<a href="c.html">c</a>', "a.html: c.html"),
        ('<a href="#here" id="here">a</a>', None),
        ('<a href="https://example.com/">e</a>', None),
        ('<script src="https://example.com/x.js"></script>', "loads https://example.com/x.js"),
        ('<link rel="stylesheet" href="x.css">', "a.html: x.css"),
    ],
)
def test_links_that_lead_nowhere_are_reported(
    tmp_path: Path, html: str, problem: str | None
) -> None:
    (tmp_path / "a.html").write_text(html)
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    found = problems(tmp_path)
    assert found == [] if problem is None else problem in found[0]
