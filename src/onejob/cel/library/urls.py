"""URLs, parsed as by Go's net/url: absolute, or a path that begins with a slash."""

import re
from urllib.parse import quote, unquote, unquote_plus

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.values import Opaque

LIBRARY = Library()

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]*\Z")
_PORT = re.compile(r"(?::\d*)?\Z", re.ASCII)
_PATH_SAFE = "-_.~$&+,/:;=@!'()*[]"


class URL(Opaque):
    __slots__ = ("host", "path", "query", "scheme")
    type_name = "kubernetes.URL"

    def __init__(self, scheme: str, host: str, path: str, query: str) -> None:
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, URL) and (self.scheme, self.host, self.path, self.query) == (
            other.scheme, other.host, other.path, other.query,
        )  # fmt: skip


def parse_url(text: str) -> URL:
    def fault(why: str) -> EvaluationError:
        return EvaluationError(
            f'URL parse error during conversion from string: parse "{text[:200]}": {why}'
        )

    if not text:
        raise fault("empty url")
    if _CONTROL.search(text):
        raise fault("net/url: invalid control character in URL")
    whole = text.partition("#")[0]
    match = _SCHEME.match(whole)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", whole)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme:
            raise fault("invalid URI for request")
        # Opaque, as in mailto:user: it has neither host nor path.
        return URL(scheme, "", "", query)
    host = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        host, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = _host(host, fault)
    if _BAD_ESCAPE.search(rest):
        raise fault("invalid URL escape")
    return URL(scheme, host, rest, query)


def _host(authority: str, fault: object) -> str:
    assert callable(fault)
    host = authority.rpartition("@")[2]
    if not _HOST.match(host) or " " in authority:
        raise fault("invalid character in host name")
    if host.startswith("["):
        inside, bracket, port = host.rpartition("]")
        if not bracket or not inside:
            raise fault("missing ']' in host")
    else:
        name, colon, digits = host.rpartition(":")
        port = colon + digits if colon else ""
        if _BAD_ESCAPE.search(name or host):
            raise fault("invalid URL escape")
    if not _PORT.match(port):
        raise fault(f'invalid port "{port}" after host')
    return unquote(host)


@LIBRARY.add("url(string) -> URL", cost=Cost.TRAVERSE)
def url(text: str) -> URL:
    return parse_url(text)


@LIBRARY.add("isURL(string) -> bool", cost=Cost.TRAVERSE)
def is_url(text: str) -> bool:
    try:
        parse_url(text)
    except EvaluationError:
        return False
    return True


@LIBRARY.add("URL..getScheme() -> string")
def get_scheme(value: URL) -> str:
    return value.scheme


@LIBRARY.add("URL..getHost() -> string")
def get_host(value: URL) -> str:
    return value.host


@LIBRARY.add("URL..getHostname() -> string")
def get_hostname(value: URL) -> str:
    return _split_port(value.host)[0]


@LIBRARY.add("URL..getPort() -> string")
def get_port(value: URL) -> str:
    return _split_port(value.host)[1]


def _split_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        inside, _, rest = host[1:].partition("]")
        return inside, rest.removeprefix(":")
    name, colon, port = host.rpartition(":")
    return (name, port) if colon else (host, "")


@LIBRARY.add("URL..getEscapedPath() -> string", cost=Cost.TRAVERSE)
def get_escaped_path(value: URL) -> str:
    return quote(value.path, safe=_PATH_SAFE + "%")


@LIBRARY.add("URL..getQuery() -> map<string, list<string>>", cost=Cost.TRAVERSE)
def get_query(value: URL) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in value.query.split("&"):
        # Go ignores the parts of a query that it cannot parse.
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        name, _, content = pair.partition("=")
        found.setdefault(unquote_plus(name), []).append(unquote_plus(content))
    return found
