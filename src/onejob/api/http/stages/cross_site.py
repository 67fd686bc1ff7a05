"""Cross-site stage: reject requests that a browser sends on behalf of another site.

The browser attaches the user's client certificate or session cookie automatically, but never a
token. Requests with a token, and clients other than browsers, are not affected.
"""

from onejob.api.access.authentication import read_bearer_token
from onejob.api.http.requests import Request
from onejob.wire.errors import Forbidden


def require_same_site(request: Request) -> None:
    """Raise Forbidden for a cross-site write, or session, of a browser (CSRF protection).

    Required for requests with `upgrade` or a Sec-Fetch-Site header.
    """
    if request.upgrade:
        _require_same_origin(request)
    else:
        _require_same_site_write(request)


def _require_same_site_write(request: Request) -> None:
    """Raise Forbidden for a cross-site write.

    A browser sends a body without a content type without a CORS preflight. Only browsers send
    Sec-Fetch-Site; a user's own dashboard between browser and server may forward it together with a
    token.
    """
    if request.method in ("GET", "HEAD", "OPTIONS") or _has_token(request):
        return
    if request.fields[b"sec-fetch-site"] not in (b"same-origin", b"none"):
        raise Forbidden("nothing is written for other sites")


def _require_same_origin(request: Request) -> None:
    """Raise Forbidden for a cross-site WebSocket.

    Other clients may send any Origin: Go's golang.org/x/net/websocket always does.
    """
    origin = request.fields.get(b"origin")
    if origin is None or _has_token(request):
        return
    if origin.partition(b"://")[2] != request.fields.get(b"host"):
        raise Forbidden("sessions are not opened for other sites")


def _has_token(request: Request) -> bool:
    return bool(read_bearer_token(request.fields.get(b"authorization", b"")))
