"""Response decoding: bytes to documents, watch events and errors. Pure functions."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from onejob.api.decoding.json_reading import has_more_values
from onejob.client.base import EventType, WatchEvent, Written
from onejob.client.transport.answer import MAX_BODY_BYTES
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, Expired, from_status

T = TypeVar("T")

_NOWHERE: Final = Key("", "", "")
#: A Status is short; longer error bodies are shown as text.
_MAX_STATUS_BYTES: Final = 64 * 1024
#: Revisions have up to 64 bits.
_MAX_DIGITS: Final = 20


class ResponseLimits(msgspec.Struct, frozen=True):
    """Bounds on the size of responses. 0 values means unlimited."""

    #: Bounds of a list, or of the response to `get_raw`.
    list_bytes: int = MAX_BODY_BYTES
    list_values: int = 0
    #: Bounds of a single object, or of one watch event.
    object_bytes: int = 16 * 2**20
    object_values: int = 0


#: For servers whose address and credentials are chosen by users: decoding a response must not take
#: more than a few milliseconds and megabytes, however it is built. Large enough for any object of a
#: Kubernetes server.
UNTRUSTED: Final = ResponseLimits(
    list_bytes=16 * 2**20, list_values=200_000, object_bytes=4 * 2**20, object_values=100_000
)


class Unreachable(ApiError):
    """No usable response arrived. The server may or may not have performed the request."""

    code, reason = 503, "ServiceUnavailable"


class Untrusted(Unreachable):
    """The server's certificate is not trusted; no request was sent."""


def unreachable(error: Exception, server: str = "the API server") -> Unreachable:
    """Return the error for a failed connection."""
    return Unreachable(f"no response from {server}: {str(error) or type(error).__name__}")


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


read_object = msgspec.json.Decoder(_Object).decode
read_list = msgspec.json.Decoder(_List).decode
_read_event = msgspec.json.Decoder(_Event).decode
_read_status = msgspec.json.Decoder(dict[str, Any]).decode


def written(document: bytes) -> Written:
    """Return the revision and document of a write's response."""
    answer = decoded(read_object, document)
    return Written(revision_of(answer.metadata.resource_version), document)


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """Decode the body of a successful response.

    Raises:
        Unreachable: if it is not the expected JSON, which then comes from an intermediary.
    """
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"unexpected response, not from an API server: {error}") from error


def require_values(body: bytes, most: int) -> None:
    """Raise Unreachable if a document contains more than `most` values; 0 means unlimited."""
    if most and has_more_values(body, most):
        raise Unreachable(
            f"unexpected response, not from an API server: it contains more than {most} values"
        )


def error_of(code: int, body: bytes) -> ApiError:
    """Return the error of an unsuccessful response: a Status, or text from an intermediary."""
    status: Any = None
    try:
        status = msgspec.json.decode(body[:_MAX_STATUS_BYTES])
    except msgspec.DecodeError:
        text = body[:2000].decode("utf-8", "replace").strip()[:500]
        status = {"message": text or f"the server responded with HTTP status {code}"}
    if not isinstance(status, dict) or not isinstance(status.get("message", ""), str):
        status = {"message": f"the server responded with HTTP status {code}"}
    return _from_status({**status, "code": code})


def _from_status(status: dict[str, Any]) -> ApiError:
    error = from_status(status)
    if error.code == 410 and not isinstance(error, Expired):
        # Kubernetes has two reasons for status 410; callers handle only Expired.
        return Expired(error.message, details=error.details)
    return error


def watch_event(line: bytes, resource: str, limits: ResponseLimits) -> WatchEvent | ApiError:
    """Decode one line of a watch into an event, or an error sent by the server.

    Raises Unreachable for anything else.
    """
    require_values(line, limits.object_values)
    event = decoded(_read_event, line)
    document = bytes(event.object)
    if event.type == "ERROR":
        return _from_status(decoded(_read_status, document))
    metadata = decoded(read_object, document).metadata
    revision = revision_of(metadata.resource_version)
    if event.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", _NOWHERE, revision, b"")
    key = Key(resource, metadata.namespace, metadata.name)
    return WatchEvent(_event_type(event.type), key, revision, document)


def _event_type(text: str) -> EventType:
    """Return the type of a watch event. Raises Unreachable for an unknown one."""
    match text:
        case "ADDED" | "MODIFIED" | "DELETED" as known:
            return known
        case _:
            raise Unreachable(f"the server sent a watch event of unknown type {text!r}")


def head_of_items(kind: str, api_version: str) -> bytes:
    """Return the JSON prefix of an item: its apiVersion and kind."""
    return b'{"apiVersion":"%s","kind":"%s",' % (api_version.encode(), kind.encode())


def whole_item(item: bytes, head: bytes) -> bytes:
    """Return an item of a list with apiVersion and kind added if the list omitted them."""
    if item.startswith(head) or decoded(read_object, item).kind:
        return item
    return head + item[1:]


def revision_of(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS else 0
