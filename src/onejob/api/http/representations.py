"""Encodings of stored documents: whole, metadata only, lists, watch events.

Documents are stored as JSON bytes and sent as the same bytes wherever possible. Long lists are
rendered in pieces, so that no single step blocks the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from onejob.api.http.negotiation import Representation
from onejob.api.schema.protobuf_encoding import encode_object, has_message
from onejob.api.yielding import Worker
from onejob.wire.errors import NotAcceptable
from onejob.wire.kinds import Kind
from onejob.wire.requests import ListOutcome

#: Approximate maximum of one piece of a streamed list, in bytes and in items: a Table row takes
#: tens of microseconds, however short it is.
_PIECE_BYTES: Final = 128 * 1024
_PIECE_ITEMS: Final = 64
#: Size from which YAML is rendered in the worker thread: it takes milliseconds per object.
_YAML_INLINE_BYTES: Final = 4 * 1024
#: Size from which protobuf is encoded in the worker thread.
_PROTOBUF_INLINE_BYTES: Final = 16 * 1024
#: Size of one piece of a YAML list, rendered without yielding.
_YAML_PIECE_BYTES: Final = 16 * 1024

META_VERSION: Final = "meta.k8s.io/v1"
_PARTIAL_HEAD: Final = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_read_metadata: Callable[[bytes], _MetadataOnly] = msgspec.json.Decoder(_MetadataOnly).decode


def metadata_only(document: bytes) -> bytes:
    """Return a PartialObjectMetadata, cut out of the document without decoding it."""
    return _PARTIAL_HEAD + bytes(_read_metadata(document).metadata) + b"}"


def list_item(document: bytes, kind: Kind) -> bytes:
    """Return the document without apiVersion and kind, which the list states once."""
    head = _item_head(kind)
    if document.startswith(head):
        return b"{" + document[len(head) :]
    # Fields in a different order: decode and encode.
    decoded: dict[str, Any] = msgspec.json.decode(document)
    decoded.pop("apiVersion", None)
    decoded.pop("kind", None)
    return msgspec.json.encode(decoded)


def list_metadata(outcome: ListOutcome) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(outcome.revision)}
    if outcome.continue_token:
        metadata["continue"] = outcome.continue_token
    if outcome.remaining is not None:
        metadata["remainingItemCount"] = outcome.remaining
    return metadata


def list_pieces(
    outcome: ListOutcome, kind: Kind, form: str, enclose: "Enclose | None" = None
) -> Iterator[bytes]:
    """Yield a list in pieces of roughly even size, in JSON or in the encoding of `enclose`."""
    if form == "PartialObjectMetadataList":
        list_kind, api_version = form, META_VERSION
        render = metadata_only
    else:
        list_kind, api_version = kind.list_kind, kind.api_version

        def render(document: bytes) -> bytes:
            # Items of custom resources keep apiVersion and kind.
            return document if kind.custom else list_item(document, kind)

    head = {"kind": list_kind, "apiVersion": api_version, "metadata": list_metadata(outcome)}
    yield from (enclose or enclosed)(
        msgspec.json.encode(head)[:-1] + b',"items":[', map(render, outcome.documents), b"]}"
    )


def enclosed(head: bytes, items: Iterator[bytes], tail: bytes) -> Iterator[bytes]:
    """Yield head, comma-separated items and tail, joined into larger pieces."""
    pending, size = [head], len(head)
    comma = b""
    for item in items:
        pending.append(comma)
        pending.append(item)
        comma = b","
        size += len(item)
        if size >= _PIECE_BYTES or len(pending) >= 2 * _PIECE_ITEMS:
            yield b"".join(pending)
            pending, size = [], 0
    pending.append(tail)
    yield b"".join(pending)


Enclose: TypeAlias = Callable[[bytes, Iterator[bytes], bytes], Iterator[bytes]]


def enclosed_yaml(head: bytes, items: Iterator[bytes], tail: bytes) -> Iterator[bytes]:
    """Yield the same structure as YAML.

    The items must be the last field of the enclosing document.
    """
    document: dict[str, Any] = msgspec.json.decode(head + tail)
    field = list(document)[-1]
    del document[field]
    yield _dump(document)
    pending: list[Any] = []
    size = 0
    key = f"{field}:\n".encode()
    for item in items:
        pending.append(msgspec.json.decode(item))
        size += len(item)
        if size >= _YAML_PIECE_BYTES:
            yield key + _dump(pending)
            pending, size, key = [], 0, b""
    if pending:
        yield key + _dump(pending)
    elif key:
        yield f"{field}: []\n".encode()


async def by_worker(pieces: Iterator[bytes], worker: Worker) -> AsyncIterator[bytes]:
    """Yield pieces computed in the worker thread."""
    while (piece := await worker.turn(_next, pieces)) is not None:
        yield piece


def _next(pieces: Iterator[bytes]) -> bytes | None:
    """Return the next piece; None at the end."""
    return next(pieces, None)


async def in_turns(first: bytes, rest: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces, returning to the event loop between them."""
    yield first
    for piece in rest:
        await asyncio.sleep(0)
        yield piece


async def as_yaml(document: bytes, worker: Worker) -> bytes:
    if len(document) < _YAML_INLINE_BYTES:
        return _to_yaml(document)
    return await worker.turn(_to_yaml, document)


async def as_protobuf(document: bytes, worker: Worker) -> bytes:
    if len(document) < _PROTOBUF_INLINE_BYTES:
        return encode_object(document)
    return await worker.turn(encode_object, document)


def require_form(representation: Representation, kind: Kind, *, is_list: bool) -> None:
    """Raise NotAcceptable if the kind does not support the requested form.

    Lists and objects have different metadata-only forms, and some kinds have no protobuf.
    """
    form = representation.form
    if representation.media == "protobuf" and not has_message(kind):
        raise NotAcceptable(f"{kind.plural} are not available as protobuf, only as JSON and YAML")
    if is_list and form == "PartialObjectMetadata":
        raise NotAcceptable(
            f"you requested PartialObjectMetadata, but the requested object is a list "
            f"({kind.kind}List)"
        )
    if not is_list and form == "PartialObjectMetadataList":
        raise NotAcceptable(
            f"you requested PartialObjectMetadataList, but the requested object is not a list "
            f"({kind.kind})"
        )


WATCH_LINE_TAIL: Final = b"}\n"


def watch_line_head(event_type: str) -> bytes:
    return b'{"type":"%s","object":' % event_type.encode()


def watch_line(event_type: str, document: bytes) -> bytes:
    return b"".join((watch_line_head(event_type), document, WATCH_LINE_TAIL))


def is_status(document: bytes) -> bool:
    """Return whether a document is a Status, which has no other representations."""
    return document.startswith(b'{"kind":"Status",')


_ITEM_HEADS: dict[str, bytes] = {}


def _item_head(kind: Kind) -> bytes:
    name = f"{kind.api_version}/{kind.kind}"
    head = _ITEM_HEADS.get(name)
    if head is None:
        head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}",'.encode()
        _ITEM_HEADS[name] = head
    return head


def _to_yaml(document: bytes) -> bytes:
    return _dump(msgspec.json.decode(document))


def _dump(value: Any) -> bytes:
    """Return a value in YAML."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, allow_unicode=True)
    return text.encode()
