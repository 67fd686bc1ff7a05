"""metrics.k8s.io: resource usage of Pods and nodes, measured by the node on request.

Lists contain the Pods or nodes that match the selectors; those without a measurement are omitted.
Nothing is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from onejob.api.service import Service
from onejob.api.strategy import Document
from onejob.api.writing.metadata import timestamp
from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.objects.meta import NODES, PODS
from onejob.wire.errors import not_found
from onejob.wire.kinds import BY_RESOURCE, Kind
from onejob.wire.requests import ListOptions


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of a container or node."""

    cpu_nanocores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Usage of a Pod's containers by name, or of a node under its own name."""

    at: datetime
    #: Period over which CPU usage is averaged.
    window_seconds: float
    usage: Mapping[str, Usage]


class UsageSource(Protocol):
    """Source of resource usage measurements, implemented by the node.

    Pods and nodes that are absent from a result are omitted from responses.
    """

    async def pods(self) -> Mapping[str, Measurement]:
        """Return the measurement of each Pod with running processes on this machine, by uid."""

    async def node(self) -> Measurement | None:
        """Return the measurement of this machine, under the name of its node; None if
        unavailable."""


_SOURCES: Final = {"PodMetrics": BY_RESOURCE[PODS], "NodeMetrics": BY_RESOURCE[NODES]}


class UsageReader:
    """Reader of PodMetrics and NodeMetrics: objects of the API server, joined with measurements."""

    def __init__(self, service: Service, source: UsageSource | None) -> None:
        self._service = service
        self._source = source

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        """Return the metrics of one object.

        Raises NotFound if it does not exist or is not measured.
        """
        measured = _SOURCES[kind.kind]
        document = await self._service.get(measured, namespace, name)
        for shown in await self._measured_documents(kind, [document]):
            return msgspec.json.encode(shown)
        raise not_found(kind.resource, name)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> bytes:
        """Return the encoded list of metrics of the selected objects. Objects without a measurement
        are omitted, so a page may be shorter than its limit."""
        outcome = await self._service.list(_SOURCES[kind.kind], namespace, options)
        items = await self._measured_documents(kind, outcome.documents)
        metadata: Document = {"resourceVersion": str(outcome.revision)}
        if outcome.continue_token:
            metadata["continue"] = outcome.continue_token
        return msgspec.json.encode(
            {
                "kind": f"{kind.kind}List",
                "apiVersion": kind.api_version,
                "metadata": metadata,
                "items": items,
            }
        )

    async def _measured_documents(
        self, kind: Kind, documents: Sequence[bytes]
    ) -> Sequence[Document]:
        """Return the metrics of those Pods or nodes, given by their documents, that have a
        measurement."""
        if self._source is None or not documents:
            return []
        if kind.kind == "NodeMetrics":
            node = await self._source.node()
            measured, key = (dict.fromkeys(node.usage, node) if node else {}), "name"
        else:
            measured, key = dict(await self._source.pods()), "uid"
        shown: list[Document] = []
        turns = Turns()
        for document in documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            metadata = _read_metadata(document).metadata
            if metadata[key] in measured:
                shown.append(_document(kind, metadata, measured[metadata[key]]))
        return shown


class _MetadataOnly(msgspec.Struct):
    metadata: dict[str, Any]


_read_metadata: Final = msgspec.json.Decoder(_MetadataOnly).decode


def _document(kind: Kind, metadata: Mapping[str, Any], measurement: Measurement) -> Document:
    """Return a PodMetrics or NodeMetrics document."""
    kept = {name: metadata[name] for name in ("name", "namespace", "labels") if name in metadata}
    document: Document = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {**kept, "creationTimestamp": timestamp(measurement.at)},
        "timestamp": timestamp(measurement.at),
        "window": f"{measurement.window_seconds:.3f}s",
    }
    if kind.kind == "NodeMetrics":
        document["usage"] = _amounts(measurement.usage[metadata["name"]])
    else:
        document["containers"] = [
            {"name": name, "usage": _amounts(usage)} for name, usage in measurement.usage.items()
        ]
    return document


def _amounts(usage: Usage) -> dict[str, str]:
    """Return the amounts in the units of Kubernetes' metrics server."""
    return {"cpu": f"{usage.cpu_nanocores}n", "memory": f"{usage.memory_bytes // 1024}Ki"}
