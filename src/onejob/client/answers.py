"""What servers answer, as values. Pure: bytes in; documents, events and errors out."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from onejob.client.base import EventType, WatchEvent, Written
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, Expired, from_status

T = TypeVar("T")

_NOWHERE: Final = Key("", "", "")


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


def written(document: bytes) -> Written:
    answer = decoded(read_object, document)
    return Written(revision_of(answer.metadata.resource_version), document)


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """A success that is not what was asked for comes from something in between."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"this is not the answer of an API server: {error}") from error


def error_of(code: int, body: bytes) -> ApiError:
    """What an unsuccessful answer says: a Status, or text from something in between."""
    status: Any = None
    try:
        status = msgspec.json.decode(body)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace").strip()[:500]
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


def watch_event(line: bytes, resource: str) -> WatchEvent | ApiError:
    event = decoded(_read_event, line)
    document = bytes(event.object)
    if event.type == "ERROR":
        return _from_status(msgspec.json.decode(document))
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
    if item.startswith(head) or read_object(item).kind:
        return item
    return head + item[1:]


def revision_of(text: str) -> int:
    return int(text) if text.isdigit() else 0
