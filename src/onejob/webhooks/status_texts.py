"""Texts of unsuccessful HTTP responses of webhooks, as of Kubernetes' client. Pure."""

import http
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_TEXTS: Final[Mapping[int, str]] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    415: "the server was unable to respond with a content type that the client supports",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be "
    "processing the request",
}
#: Upper bound on a quoted body.
_QUOTED: Final = 2048


def is_success(status: int) -> bool:
    return http.HTTPStatus.OK <= status <= http.HTTPStatus.PARTIAL_CONTENT


def seconds_until_retry(status: int, retry_after: str) -> int | None:
    """Return when to send a request again; None if the response is final."""
    if status == http.HTTPStatus.TOO_MANY_REQUESTS or 500 <= status < 600:
        return int(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return None


def status_text(status: int, content_type: str, body: bytes) -> str:
    """Return the error of an unsuccessful response."""
    if message := _status_message(body):
        return message
    if 300 <= status < 400:
        return f"the server responded with the status code {status}; redirects are not followed"
    said = "unknown"
    if not content_type or content_type.startswith("text/"):
        said = body[:_QUOTED].decode(errors="replace").strip()
    if status == http.HTTPStatus.FORBIDDEN:
        return said
    if status in _TEXTS:
        return _TEXTS[status]
    if status >= 500:
        quoted = msgspec.json.encode(said).decode()
        return f"an error on the server ({quoted}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _status_message(body: bytes) -> str:
    """Return the message of a Status document; "" if the body is none."""
    try:
        document: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(document, dict) or document.get("kind") != "Status":
        return ""
    return str(document.get("message") or "")
