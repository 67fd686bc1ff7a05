"""Heads of relayed requests and responses: which headers are passed on. Pure functions."""

from collections.abc import Iterable, Mapping
from typing import Final

Header = tuple[bytes, bytes]

#: They concern one connection only.
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
#: Credentials of the client at this server, which no Pod may see, and what is set anew.
_WITHHELD: Final = frozenset(
    {
        b"authorization", b"cookie", b"content-length", b"expect", b"host", b"x-onejob-session",
        b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-uri",
    }
)  # fmt: skip
#: By these a Pod could affect the user's other pages on this server.
_NOT_RETURNED: Final = frozenset(
    {
        b"clear-site-data", b"content-length", b"content-type", b"content-security-policy",
        b"set-cookie", b"service-worker-allowed", b"strict-transport-security", b"date",
    }
)  # fmt: skip
#: Pages of Pods have the origin of this server. In a sandbox they get one of their own, so that
#: their scripts cannot act for the user who has opened them.
_SANDBOX: Final = (
    b"content-security-policy",
    b"sandbox allow-downloads allow-forms allow-popups allow-scripts",
)


def request_head(
    method: str, target: str, headers: Mapping[bytes, bytes], *, length: int, prefix: str
) -> bytes:
    """Return the encoded head of the request to the Pod.

    `prefix` is the path below which the client sees the Pod.
    """
    host = headers.get(b"host", b"localhost")
    lines = [f"{method} {target} HTTP/1.1".encode("ascii", "replace"), b"host: " + host]
    lines += [
        name + b": " + value
        for name, value in headers.items()
        if name not in _HOP_BY_HOP and name not in _WITHHELD and not name.startswith(_PREFIXES)
    ]
    if length or method in ("POST", "PUT", "PATCH"):
        lines.append(b"content-length: %d" % length)
    lines += [
        b"x-forwarded-host: " + host,
        b"x-forwarded-proto: https",
        b"x-forwarded-uri: " + (prefix + target).encode("ascii", "replace"),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", b""])


_PREFIXES: Final = (b"impersonate-", b"sec-websocket-")


def response_headers(headers: Iterable[Header], prefix: str) -> tuple[Header, ...]:
    """Return the headers for the client. Redirects within the Pod stay below the prefix."""
    returned = [
        (name, _below(value, prefix) if name == b"location" else value)
        for name, value in headers
        if name not in _HOP_BY_HOP and name not in _NOT_RETURNED
    ]
    return (*returned, _SANDBOX)


def content_type_of(headers: Iterable[Header]) -> bytes:
    return next((value for name, value in headers if name == b"content-type"), b"")


def _below(location: bytes, prefix: str) -> bytes:
    """Return a redirect to a path of the Pod as the client has to request it."""
    if location.startswith(b"/") and not location.startswith(b"//"):
        return prefix.encode("ascii", "replace") + location
    return location
