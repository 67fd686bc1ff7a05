"""The files of the page, as `make ui` built them; without them, a page that says how to.

Files are looked up by name in what the folder held when the first was asked for, so no path leads
out of it.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from onejob.api.http.answers import Answer, Header

ASSETS: Final = Path(__file__).parent / "assets"
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
#: Of every answer below /ui.
SAFETY_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_CACHE: Final[Header] = (b"cache-control", b"no-cache")
#: Their names contain a hash of what they hold.
_IMMUTABLE: Final[Header] = (b"cache-control", b"public, max-age=31536000, immutable")
_VARY: Final[Header] = (b"vary", b"accept-encoding")

_NOT_BUILT: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>onejob: dashboard not built</title></head>
<body><h1>The dashboard is not built</h1>
<p>This onejob runs from a checkout. In its folder, with Node.js 20 or newer, run
<code>make ui</code>, then start the server again. Everything else works without it.</p>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    plain: bytes
    gzipped: bytes


class Files:
    def __init__(self, folder: Path = ASSETS) -> None:
        self._folder = folder

    @cached_property
    def _files(self) -> dict[str, _File]:
        found = {}
        for path in sorted(self._folder.rglob("*")):
            if path.suffix in _TYPES:
                gzipped = path.with_name(path.name + ".gz")
                name = path.relative_to(self._folder).as_posix()
                found[name] = _File(
                    path.read_bytes(), gzipped.read_bytes() if gzipped.exists() else b""
                )
        return found

    @property
    def built(self) -> bool:
        return INDEX in self._files

    def answer(self, name: str, accept_encoding: bytes) -> Answer | None:
        """None if there is no such file; the page itself is always there."""
        name = name or INDEX
        file = self._files.get(name)
        if file is None:
            if name != INDEX:
                return None
            return Answer(503, _NOT_BUILT, _TYPES[".html"], (*SAFETY_HEADERS, _NO_CACHE))
        caching = _NO_CACHE if name == INDEX else _IMMUTABLE
        headers = (*SAFETY_HEADERS, caching, _VARY)
        kind = _TYPES[Path(name).suffix]
        if file.gzipped and b"gzip" in accept_encoding:
            return Answer(200, file.gzipped, kind, (*headers, (b"content-encoding", b"gzip")))
        return Answer(200, file.plain, kind, headers)
