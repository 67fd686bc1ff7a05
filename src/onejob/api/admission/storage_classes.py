"""Admission of claims: the default StorageClass of new ones, and whether they may grow."""

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from onejob.api.strategy import Document
from onejob.planning.claims.names import IS_DEFAULT
from onejob.wire.quantity import parse_quantity

_CLASSES: Final = "storageclasses.storage.k8s.io"


class ClassSource(Protocol):
    """Store of StorageClasses."""

    def newest_in(self, resource: str, namespace: str) -> Iterator[tuple[str, bytes | None]]: ...


def set_default_class(store: ClassSource, claim: Document) -> None:
    """Set the default class in a new claim that names none, as DefaultStorageClass does."""
    spec = claim.get("spec") or {}
    if "storageClassName" in spec:
        return
    defaults = [
        found["metadata"]
        for found in _classes(store)
        if (found["metadata"].get("annotations") or {}).get(IS_DEFAULT) == "true"
    ]
    if defaults:
        newest = max(found["creationTimestamp"] for found in defaults)
        names = [found["name"] for found in defaults if found["creationTimestamp"] == newest]
        spec["storageClassName"] = min(names)


def growth_refusal(store: ClassSource, new: Document, old: Document) -> str:
    """Return why a claim may not request more; "" if it may or does not."""
    if _request(new) <= _request(old):
        return ""
    if (old.get("status") or {}).get("phase") != "Bound":
        return "Only bound persistent volume claims can be expanded"
    name = old["spec"].get("storageClassName")
    if any(
        found.get("allowVolumeExpansion")
        for found in _classes(store)
        if name and found["metadata"]["name"] == name
    ):
        return ""
    return (
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the "
        "pvc must support resize"
    )


def _classes(store: ClassSource) -> Iterator[dict[str, Any]]:
    for _, document in store.newest_in(_CLASSES, ""):
        if document is not None:
            yield msgspec.json.decode(document)


def _request(claim: Document) -> int:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage", "0")).nanos
