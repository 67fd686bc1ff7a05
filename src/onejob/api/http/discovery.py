"""API discovery documents, legacy and aggregated. Pure functions."""

from collections.abc import Sequence
from typing import Any

from onejob.wire.kinds import Kind, Subresource, version_order
from onejob.wire.registry import KindRegistry

_ADDRESSES = "serverAddressByClientCIDRs"


def api_versions(kinds: KindRegistry, address: str) -> dict[str, Any]:
    """Return the document of GET /api."""
    return {
        "kind": "APIVersions",
        "versions": _versions(kinds, ""),
        _ADDRESSES: [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_group_list(kinds: KindRegistry) -> dict[str, Any]:
    """Return the document of GET /apis."""
    groups = [_group(kinds, group) for group in kinds.groups if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(kinds: KindRegistry, group: str) -> dict[str, Any]:
    """Return the document of GET /apis/GROUP."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, group)}


def api_resource_list(kinds: KindRegistry, group: str, version: str) -> dict[str, Any]:
    """Return the document of GET /api/v1 or /apis/GROUP/VERSION."""
    resources = []
    for kind in _kinds(kinds, group, version):
        resources.append(_resource(kind))
        resources += [_legacy_subresource(kind, sub) for sub in kind.subresources]
    resources.sort(key=lambda resource: str(resource["name"]))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def aggregated(kinds: KindRegistry, version: str, *, core: bool) -> dict[str, Any]:
    """Return the APIGroupDiscoveryList of GET /api (core) or /apis."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(kinds, group) for group in kinds.groups if (not group) == core],
    }


def _kinds(kinds: KindRegistry, group: str, version: str) -> Sequence[Kind]:
    """Return the served kinds of a group and version."""
    return [kind for kind in kinds.served if (kind.group, kind.version) == (group, version)]


def _versions(kinds: KindRegistry, group: str) -> list[str]:
    """Return the served versions of a group, preferred first."""
    versions = {kind.version for kind in kinds.served if kind.group == group}
    return sorted(versions, key=version_order)


def _group(kinds: KindRegistry, group: str) -> dict[str, Any]:
    """Return the APIGroup of a group."""
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in _versions(kinds, group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource(kind: Kind) -> dict[str, Any]:
    """Return the APIResource of a kind."""
    resource: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return resource


def _legacy_subresource(kind: Kind, sub: Subresource) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if sub.group:
        resource["group"] = sub.group
    if sub.version:
        resource["version"] = sub.version
    return {**resource, "kind": sub.kind or kind.kind, "verbs": list(sub.verbs)}


def _aggregated_group(kinds: KindRegistry, group: str) -> dict[str, Any]:
    return {
        "metadata": {"name": group, "creationTimestamp": None}
        if group
        else {"creationTimestamp": None},
        "versions": [
            {
                "version": version,
                "freshness": "Current",
                "resources": [_aggregated_resource(kind) for kind in _kinds(kinds, group, version)],
            }
            for version in _versions(kinds, group)
        ],
    }


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": "", "version": "", "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if kind.subresources:
        resource["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group,
                    "version": sub.version,
                    "kind": sub.kind or kind.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in kind.subresources
        ]
    return resource
