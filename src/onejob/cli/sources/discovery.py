"""Discovery of the resource kinds that a server offers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onejob.cli.sources.base import Api, ApiRequest
from onejob.wire.kinds import Kind, Subresource

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def discovered(api: Api) -> Sequence[Kind]:
    """Return the kinds that the server lists in aggregated discovery, core group excluded."""
    reply = api.send(ApiRequest("GET", "/apis", accept=f"{_AGGREGATED},application/json"))
    return list(_kinds_in(reply.document))


def _kinds_in(document: Mapping[str, Any]) -> Iterator[Kind]:
    for group in document.get("items", ()):
        # The preferred version comes first: it is the one meant by names without a version.
        for version in group.get("versions", ()):
            for resource in version.get("resources", ()):
                yield _kind_of(group["metadata"]["name"], version["version"], resource)


def _kind_of(group: str, version: str, resource: Mapping[str, Any]) -> Kind:
    return Kind(
        group,
        version,
        resource["responseKind"]["kind"],
        resource["resource"],
        resource.get("singularResource", ""),
        namespaced=resource["scope"] == "Namespaced",
        short_names=tuple(resource.get("shortNames", ())),
        categories=tuple(resource.get("categories", ())),
        verbs=tuple(resource.get("verbs", ())),
        subresources=tuple(
            Subresource(sub["subresource"], tuple(sub.get("verbs", ())))
            for sub in resource.get("subresources", ())
        ),
    )
