"""What servers answer, as values. Pure: bytes in; documents, events and errors out."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from onejob.api.input.decoding import has_more_values
from onejob.client.base import EventType, WatchEvent, Written
from onejob.client.transport.answer import MAX_BODY_BYTES
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, Expired, from_status

T = TypeVar("T")

_NOWHERE: Final = Key("", "", "")
#: A Status is short; longer bodies of errors are shown as text.
_MAX_STATUS_BYTES: Final = 64 * 1024
#: Revisions have up to 64 bits.
_MAX_DIGITS: Final = 20


class AnswerLimits(msgspec.Struct, frozen=True):
    """Bounds on what a server may answer. Zero values means any number of them."""

    #: Of a list, or of whatever a path has.
    list_bytes: int = MAX_BODY_BYTES
    list_values: int = 0
    #: Of a single object, or of one event of a watch.
    object_bytes: int = 16 * 2**20
    object_values: int = 0


#: For servers whose address and credentials come from users of ours: what these answer must not
#: take more than a few milliseconds and megabytes, however it is built. As large as objects of a
#: Kubernetes server can be.
UNTRUSTED: Final = AnswerLimits(
    list_bytes=16 * 2**20, list_values=200_000, object_bytes=4 * 2**20, object_values=100_000
)


class Unreachable(ApiError):
    """No answer came. Whether the request was carried out is not known."""

    code, reason = 503, "ServiceUnavailable"


class Untrusted(Unreachable):
    """The server's certificate is not what the connection asks for; nothing was sent."""


def unreachable(error: Exception, server: str = "the API server") -> Unreachable:
    return Unreachable(f"no answer from {server}: {str(error) or type(error).__name__}")


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
    answer = decoded(read_object, document)
    return Written(revision_of(answer.metadata.resource_version), document)


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """A success that is not what was asked for comes from something in between."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"this is not the answer of an API server: {error}") from error


def require_values(body: bytes, most: int) -> None:
    """Raises Unreachable if there are more values in a document than that, unless `most` is 0."""
    if most and has_more_values(body, most):
        raise Unreachable(
            f"this is not the answer of an API server: it holds more than {most} values"
        )


def error_of(code: int, body: bytes) -> ApiError:
    """Return the error of an unsuccessful answer: a Status, or text from something in between."""
    status: Any = None
    try:
        status = msgspec.json.decode(body[:_MAX_STATUS_BYTES])
    except msgspec.DecodeError:
        text = body[:2000].decode("utf-8", "replace").strip()[:500]
        status = {"message": text or f"the server answered with HTTP status {code}"}
    if not isinstance(status, dict) or not isinstance(status.get("message", ""), str):
        status = {"message": f"the server answered with HTTP status {code}"}
    return _from_status({**status, "code": code})


def _from_status(status: dict[str, Any]) -> ApiError:
    error = from_status(status)
    if error.code == 410 and not isinstance(error, Expired):
        # Kubernetes has two reasons for one thing; callers know one.
        return Expired(error.message, details=error.details)
    return error


def watch_event(line: bytes, resource: str, limits: AnswerLimits) -> WatchEvent | ApiError:
    """Return the event of one line of a watch. Raises Unreachable if it is none."""
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
    match text:
        case "ADDED" | "MODIFIED" | "DELETED" as known:
            return known
        case _:
            raise Unreachable(f"the server sent a watch event of unknown type {text!r}")


def head_of_items(kind: str, api_version: str) -> bytes:
    return b'{"apiVersion":"%s","kind":"%s",' % (api_version.encode(), kind.encode())


def whole_item(item: bytes, head: bytes) -> bytes:
    """An item of a list with the apiVersion and kind that the list left out."""
    if item.startswith(head) or decoded(read_object, item).kind:
        return item
    return head + item[1:]


def revision_of(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS else 0
