"""Table representation (`meta.k8s.io/v1`), which `kubectl get` prints."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from onejob.api.http.representations import (
    META_VERSION,
    Enclose,
    enclosed,
    list_metadata,
    metadata_only,
)
from onejob.api.strategy import Strategy
from onejob.wire.errors import BadRequest
from onejob.wire.requests import ListOutcome

IncludeObject: TypeAlias = Literal["Metadata", "Object", "None"]

_decode: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.encode


def parse_include_object(text: str) -> IncludeObject:
    """Return the value of `includeObject`, by default "Metadata". Raises BadRequest."""
    match text:
        case "" | "Metadata":
            return "Metadata"
        case "Object":
            return "Object"
        case "None":
            return "None"
        case _:
            raise BadRequest(f"unrecognized includeObject value: {text!r}")


def table_pieces(
    outcome: ListOutcome,
    strategy: Strategy,
    include: IncludeObject,
    now: datetime,
    enclose: Enclose = enclosed,
) -> Iterator[bytes]:
    """Yield the pieces of a Table of a list, encoded by `enclose`."""
    head = _head(list_metadata(outcome), strategy.columns())
    rows = (_row(document, strategy, include, now) for document in outcome.documents)
    yield from enclose(head, rows, b"]}")


def object_table(
    document: bytes,
    strategy: Strategy,
    include: IncludeObject,
    now: datetime,
    *,
    with_columns: bool = True,
) -> bytes:
    """Return a Table of one row. In a watch, only the first Table contains the columns."""
    decoded = _decode(document)
    metadata = {"resourceVersion": decoded.get("metadata", {}).get("resourceVersion", "")}
    head = _head(metadata, strategy.columns() if with_columns else None)
    return head + _row(document, strategy, include, now, decoded) + b"]}"


def bookmark_table(document: bytes) -> bytes:
    """Return the Table of a bookmark: a row without cells that keeps annotations and revision."""
    metadata = {"resourceVersion": _decode(document)["metadata"]["resourceVersion"]}
    return _head(metadata, None) + b'{"cells":[],"object":' + metadata_only(document) + b"}]}"


def _head(metadata: dict[str, Any], columns: list[dict[str, Any]] | None) -> bytes:
    """Return the beginning of a Table, up to its first row."""
    table = {
        "kind": "Table",
        "apiVersion": META_VERSION,
        "metadata": metadata,
        "columnDefinitions": columns,
    }
    return _encode(table)[:-1] + b',"rows":['


def _row(
    document: bytes,
    strategy: Strategy,
    include: IncludeObject,
    now: datetime,
    decoded: dict[str, Any] | None = None,
) -> bytes:
    """Return the row of a document; `decoded` is the document if it is decoded already."""
    doc = decoded if decoded is not None else _decode(document)
    row = b'{"cells":' + _encode(strategy.cells(doc, now))
    if conditions := strategy.row_conditions(doc):
        row += b',"conditions":' + _encode(conditions)
    match include:
        case "Metadata":
            row += b',"object":' + metadata_only(document)
        case "Object":
            row += b',"object":' + document
        case "None":
            pass
    return row + b"}"
