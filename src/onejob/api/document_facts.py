"""Cache of labels and selectable fields of documents, shared by all watches."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from onejob.api.strategy import Document, Strategy

#: Minimum size of cached documents: decoding shorter ones takes no longer than a lookup.
_LARGE_BYTES: Final = 4096
#: Total size of cached documents; the store keeps as many of the newest changes anyway.
_MAX_BYTES: Final = 16 * 1024 * 1024


class _Meta(msgspec.Struct):
    labels: dict[str, str] = {}


class _Labels(msgspec.Struct):
    metadata: _Meta


_read_labels = msgspec.json.Decoder(_Labels).decode
_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


class DocumentFacts:
    """Cache of the newest large documents.

    Without it, a thousand watches with selectors would each decode every change.
    """

    def __init__(self) -> None:
        #: Entries by the identity of the document, which is kept so that the identity stays unique.
        self._known: dict[int, tuple[bytes, dict[object, Mapping[str, str]]]] = {}
        self._bytes = 0

    def labels(self, document: bytes) -> Mapping[str, str]:
        """Return the labels of a document; those of a large one are cached."""
        if len(document) < _LARGE_BYTES:
            return _read_labels(document).metadata.labels
        known = self._facts_of(document)
        labels = known.get("labels")
        if labels is None:
            labels = known["labels"] = _read_labels(document).metadata.labels
        return labels

    def fields(self, strategy: Strategy, document: bytes) -> Mapping[str, str]:
        """Return the values that field selectors of a kind may refer to."""
        if len(document) < _LARGE_BYTES:
            return strategy.selectable_fields(_decode(document))
        known = self._facts_of(document)
        fields = known.get(strategy)
        if fields is None:
            fields = known[strategy] = strategy.selectable_fields(_decode(document))
        return fields

    def _facts_of(self, document: bytes) -> dict[object, Mapping[str, str]]:
        """Return the facts of a document, computing them on first use."""
        found = self._known.get(id(document))
        if found is not None:
            return found[1]
        facts: dict[object, Mapping[str, str]] = {}
        self._known[id(document)] = document, facts
        self._bytes += len(document)
        while self._bytes > _MAX_BYTES:
            forgotten, _ = self._known.pop(next(iter(self._known)))
            self._bytes -= len(forgotten)
        return facts
