"""Registration of CustomResourceDefinitions as served kinds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from onejob.api.crd.openapi import open_api_definition
from onejob.api.crd.scale import ScalePaths
from onejob.api.crd.shape import CustomShape
from onejob.api.crd.strategy import CustomStrategy
from onejob.api.schema.added_kinds import definition_name, type_fields
from onejob.api.schema.schema import Schema
from onejob.api.strategy import Document, Strategy
from onejob.wire.kinds import STATUS_VERBS, Kind, Subresource, version_order
from onejob.wire.registry import KindRegistry


class Serving(Protocol):
    """Registries that must change for a kind to be served; implemented by `Service`."""

    kinds: KindRegistry
    schema: Schema
    strategies: dict[str, Strategy]


class Definitions:
    """Keeps the served kinds in sync with the definitions."""

    def __init__(self, service: Serving) -> None:
        self._service = service
        #: Source and kinds of each installed definition, by its name.
        self._installed: dict[str, tuple[Any, tuple[Kind, ...]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._installed

    def install(self, doc: Document, *, terminating: bool = False) -> None:
        """Serve the kinds of an established definition, or update them.

        Raises ValueError if a name conflicts with a built-in kind.
        """
        name = doc["metadata"]["name"]
        spec, status = doc["spec"], doc.get("status") or {}
        source = (
            doc["metadata"]["uid"], spec, status.get("acceptedNames"),
            status.get("storedVersions"), terminating,
        )  # fmt: skip
        known, before = self._installed.get(name, (None, ()))
        if known == source:
            return
        versions = served_versions(spec)
        kinds = kinds_of(spec, status.get("acceptedNames") or spec["names"], versions)
        self._require_free(kinds)
        evolved = bool(before) or doc["metadata"].get("generation", 1) > 1
        service = self._service
        for kind, version in zip(kinds, versions, strict=True):
            strategy = CustomStrategy(kind, version, terminating=terminating)
            # Objects may have been stored in another version or before a default was added.
            strategy.shows_as_stored = not (evolved or kind.stored_as or len(versions) > 1)
            shape = CustomShape(definition_name(kind), strategy.node, type_fields(service.schema))
            definition = open_api_definition(kind, version)
            service.strategies[kind.strategy] = strategy
            service.schema.add(kind.api_version, kind.kind, shape, definition)
        service.kinds.change(added=kinds, removed=before)
        self._installed[name] = (source, kinds)

    def _require_free(self, kinds: Sequence[Kind]) -> None:
        """Raise ValueError if a built-in kind has the same names.

        Runs before any change, because the rules of built-in kinds must not be replaced.
        """
        for kind in kinds:
            for other in self._service.kinds.served:
                same = other.plural == kind.plural or other.kind == kind.kind
                if not other.custom and other.group == kind.group and same:
                    raise ValueError(f"the server has {other.kind} of {other.group} itself")

    def remove(self, name: str) -> None:
        """Stop serving the kinds of a definition."""
        _, kinds = self._installed.pop(name, (None, ()))
        if kinds:
            self._service.kinds.change(removed=kinds)

    def scale(self, kind: Kind) -> ScalePaths:
        """Return the paths of the replica fields in objects of this kind."""
        spec: Mapping[str, Any] = self._installed[kind.resource][0][1]
        version = next(entry for entry in spec["versions"] if entry["name"] == kind.version)
        return msgspec.convert(version["subresources"]["scale"], ScalePaths)

    def conversion(self, kind: Kind) -> Mapping[str, Any]:
        """Return the spec.conversion of the kind's definition."""
        entry = self._installed.get(kind.resource)
        return {} if entry is None else (entry[0][1].get("conversion") or {})

    def has_conversion_webhook(self, kind: Kind) -> bool:
        """Return whether objects of this kind are converted between versions by a webhook."""
        return self.conversion(kind).get("strategy") == "Webhook"

    def needs_conversion(self, kind: Kind) -> bool:
        """Return whether stored objects may be in another version that only a webhook converts."""
        if not self.has_conversion_webhook(kind):
            return False
        stored: Sequence[str] = self._installed[kind.resource][0][3] or ()
        return any(version != kind.version for version in stored)


def served_versions(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the served versions, the storage version first.

    With conversion strategy None, versions differ only in apiVersion. If the version marked for
    storage is not served, any other one can therefore be used for storage.
    """
    served = [version for version in spec["versions"] if version.get("served")]
    return sorted(
        served, key=lambda version: (not version.get("storage"), version_order(version["name"]))
    )


def kinds_of(
    spec: Mapping[str, Any], names: Mapping[str, Any], versions: Sequence[Mapping[str, Any]]
) -> tuple[Kind, ...]:
    """Return the kinds of a definition's served versions."""
    resource = f"{names['plural']}.{spec['group']}"
    return tuple(
        Kind(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            names.get("singular", ""),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=tuple(_subresources(version)),
            stored_as="" if number == 0 else resource,
            custom=True,
            list_kind=names.get("listKind", ""),
        )
        for number, version in enumerate(versions)
    )


def _subresources(version: Mapping[str, Any]) -> Iterator[Subresource]:
    """Yield the subresources of a version."""
    given = version.get("subresources") or {}
    if given.get("status") is not None:
        yield Subresource("status", STATUS_VERBS)
    if given.get("scale") is not None:
        yield Subresource("scale", STATUS_VERBS, "autoscaling", "v1", "Scale")
