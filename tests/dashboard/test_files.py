"""Files of the dashboard: exact names only, and security headers."""

import gzip
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from onejob.dashboard import files
from onejob.dashboard.files import ARCHIVE, Files
from tests.api.http.raw_requests import Requests, with_requests

ROOT = Path(__file__).parents[2]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "page.zip"
    with zipfile.ZipFile(path, "w") as written:
        for name, content in (
            ("index.html", b"<p>page</p>"),
            ("assets/a-1.js", b"code"),
            ("secret.txt", b"no"),
        ):
            written.writestr(f"{name}.gz", gzip.compress(content))
    return path


def test_files_name_the_remedy_without_an_archive(tmp_path: Path) -> None:
    answer = Files(tmp_path / "absent.zip").answer("", b"")
    assert answer is not None
    assert isinstance(answer.body, bytes)
    assert (answer.code, b"make ui" in answer.body, b"<" in answer.body) == (503, True, False)


def test_files_are_sent_compressed_if_the_client_accepts_it(archive: Path) -> None:
    plain, packed = (Files(archive).answer("assets/a-1.js", by) for by in (b"", b"gzip, br"))
    assert plain is not None
    assert packed is not None
    assert isinstance(packed.body, bytes)
    assert (plain.body, gzip.decompress(packed.body)) == (b"code", b"code")
    assert (b"content-encoding", b"gzip") in packed.headers
    assert (b"vary", b"accept-encoding") in plain.headers


@pytest.mark.parametrize("name", ["../index.html", "secret.txt", "assets/a-1.js.gz", "assets", "x"])
def test_nothing_else_is_served(archive: Path, name: str) -> None:
    assert Files(archive).answer(name, b"") is None


@pytest.mark.parametrize("name", ["", "assets/a-1.js"])
def test_no_answer_lets_others_in(archive: Path, name: str) -> None:
    answer = Files(archive).answer(name, b"")
    assert answer is not None
    headers = dict(answer.headers)
    policy = headers[b"content-security-policy"]
    assert b"default-src 'none'" in policy
    assert b"frame-ancestors 'none'" in policy
    assert b"unsafe" not in policy
    assert headers[b"x-content-type-options"] == b"nosniff"


def test_names_with_a_hash_are_kept_by_browsers_and_the_page_is_not(archive: Path) -> None:
    page, script = (Files(archive).answer(name, b"") for name in ("", "assets/a-1.js"))
    assert page is not None
    assert script is not None
    assert dict(page.headers)[b"cache-control"] == b"no-cache"
    assert b"immutable" in dict(script.headers)[b"cache-control"]


def test_page_is_built_from_its_sources() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "ui" / "pack.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_page_is_small() -> None:
    assert ARCHIVE.stat().st_size < 280_000


def test_page_names_no_other_site() -> None:
    page = Files().answer("", b"")
    assert page is not None
    assert isinstance(page.body, bytes)
    for text in (b"http", b"<script>", b"style="):
        assert text not in page.body


def test_sign_in_code_is_refused_without_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onejob ui` prints the refusal instead of an address of an empty page."""
    monkeypatch.setattr(files, "ARCHIVE", tmp_path / "absent.zip")

    async def refused(requests: Requests) -> None:
        code, status = await requests("POST", "/ui/api/codes")
        assert (code, status["message"]) == (404, "{}: {}".format(*files.MISSING))

    with_requests(tmp_path, refused)
