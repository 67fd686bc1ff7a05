"""Static files of the dashboard, read from the archive that `make ui` builds.

Names are looked up among the members of the archive, so no path leads out of it.
"""

import gzip
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Final

from onejob.api.http.responses import Header, Response

#: Written by ui/pack.py: gzip streams named after the files that they hold.
ARCHIVE: Final = Path(__file__).parent / "page.zip"
INDEX: Final = "index.html"

_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'"
)
#: Headers of every response below /ui.
SAFETY_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_CACHE: Final[Header] = (b"cache-control", b"no-cache")
#: Their names contain a hash of their contents.
_IMMUTABLE: Final[Header] = (b"cache-control", b"public, max-age=31536000, immutable")
_VARY: Final[Header] = (b"vary", b"accept-encoding")

#: Message and remedy for an installation without the archive.
MISSING: Final = (
    "this installation of onejob contains no dashboard",
    "reinstall onejob, or run `make ui` in its checkout, and restart the server",
)


class Files:
    """Responses for the dashboard's files. The archive is read at the first request."""

    def __init__(self, archive: Path | None = None) -> None:
        self._archive = archive or ARCHIVE

    @cached_property
    def _files(self) -> dict[str, bytes]:
        """Gzip streams by file name; empty if there is no archive."""
        if not self._archive.is_file():
            return {}
        with zipfile.ZipFile(self._archive) as archive:
            return {
                name.removesuffix(".gz"): archive.read(name)
                for name in archive.namelist()
                if Path(name.removesuffix(".gz")).suffix in _TYPES
            }

    @property
    def built(self) -> bool:
        """Return whether the page has been built into the package."""
        return INDEX in self._files

    def answer(self, name: str, accept_encoding: bytes) -> Response | None:
        """Return the response for the file `name`, by default the page itself.

        Returns:
            None if there is no such file; 503 with instructions if the page itself is missing.
        """
        name = name or INDEX
        gzipped = self._files.get(name)
        if gzipped is None:
            if name != INDEX:
                return None
            text = "{}: {}\n".format(*MISSING).encode()
            return Response(503, text, b"text/plain", (*SAFETY_HEADERS, _NO_CACHE))
        caching = _NO_CACHE if name == INDEX else _IMMUTABLE
        headers = (*SAFETY_HEADERS, caching, _VARY)
        content_type = _TYPES[Path(name).suffix]
        if b"gzip" in accept_encoding:
            encoding = (b"content-encoding", b"gzip")
            return Response(200, gzipped, content_type, (*headers, encoding))
        return Response(200, gzip.decompress(gzipped), content_type, headers)
