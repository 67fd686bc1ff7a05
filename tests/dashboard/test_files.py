"""The page's files: exact names only, and headers that keep others out."""

from pathlib import Path

import pytest

from onejob.dashboard.files import ASSETS, Files

BUILT = (ASSETS / "index.html").is_file()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<p>page</p>")
    (tmp_path / "assets" / "a-1.js").write_text("code")
    (tmp_path / "assets" / "a-1.js.gz").write_bytes(b"compressed")
    (tmp_path / "secret.txt").write_text("no")
    return tmp_path


def test_a_checkout_without_the_page_says_how_to_build_it(tmp_path: Path) -> None:
    answer = Files(tmp_path).answer("", b"")
    assert answer is not None
    assert isinstance(answer.body, bytes)
    assert (answer.code, b"make ui" in answer.body) == (503, True)


def test_files_are_sent_compressed_to_those_who_can_read_it(folder: Path) -> None:
    plain, packed = (Files(folder).answer("assets/a-1.js", by) for by in (b"", b"gzip, br"))
    assert plain is not None
    assert packed is not None
    assert (plain.body, packed.body) == (b"code", b"compressed")
    assert (b"content-encoding", b"gzip") in packed.headers


@pytest.mark.parametrize("name", ["../index.html", "secret.txt", "assets/a-1.js.gz", "assets", "x"])
def test_nothing_else_is_served(folder: Path, name: str) -> None:
    assert Files(folder).answer(name, b"") is None


@pytest.mark.parametrize("name", ["", "assets/a-1.js"])
def test_no_answer_lets_others_in(folder: Path, name: str) -> None:
    answer = Files(folder).answer(name, b"")
    assert answer is not None
    headers = dict(answer.headers)
    policy = headers[b"content-security-policy"]
    assert b"default-src 'none'" in policy
    assert b"frame-ancestors 'none'" in policy
    assert b"unsafe" not in policy
    assert headers[b"x-content-type-options"] == b"nosniff"


def test_names_with_a_hash_are_kept_by_browsers_and_the_page_is_not(folder: Path) -> None:
    page, script = (Files(folder).answer(name, b"") for name in ("", "assets/a-1.js"))
    assert page is not None
    assert script is not None
    assert dict(page.headers)[b"cache-control"] == b"no-cache"
    assert b"immutable" in dict(script.headers)[b"cache-control"]


@pytest.mark.skipif(not BUILT, reason="the dashboard is not built: make ui")
def test_the_built_page_is_small() -> None:
    sizes = {path.name: path.stat().st_size for path in ASSETS.rglob("*.gz")}
    assert sizes
    assert sum(sizes.values()) < 250_000, sizes


@pytest.mark.skipif(not BUILT, reason="the dashboard is not built: make ui")
def test_the_built_page_names_nobody_else() -> None:
    text = (ASSETS / "index.html").read_text()
    assert "http" not in text
    assert "<script>" not in text
    assert "style=" not in text
