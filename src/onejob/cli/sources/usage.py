"""Current CPU and memory usage of Pods and nodes from metrics.k8s.io (`top`, `why` and others)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from onejob.cli.sources.base import Api, get, list_all
from onejob.wire.errors import ApiError
from onejob.wire.kinds import MEASURED_KINDS, Kind
from onejob.wire.quantity import parse_quantity

_KIND: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in MEASURED_KINDS}


class Usage(Struct, frozen=True, rename="camel"):
    """CPU usage, averaged over the last moments, and memory in use."""

    cpu_millicores: int = 0
    memory_bytes: int = 0


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sum of the usages."""
    found = list(usages)
    return Usage(sum(one.cpu_millicores for one in found), sum(one.memory_bytes for one in found))


def usage_of_pod(api: Api, namespace: str, name: str) -> Mapping[str, Usage]:
    """Return usage by container.

    Empty if the Pod is not measured, as after its end, and for any ApiError.
    """
    try:
        return _by_container(get(api, _KIND["PodMetrics"], namespace, name))
    except ApiError:
        # Other API servers may have no metrics API, and reading it may be forbidden.
        return {}


def usage_of_pods(api: Api, namespace: str) -> Mapping[tuple[str, str], Usage]:
    """Return usage by (namespace, name); `namespace` "" selects all. Raises ApiError."""
    return {
        (item["metadata"]["namespace"], item["metadata"]["name"]): total(
            _by_container(item).values()
        )
        for item in list_all(api, _KIND["PodMetrics"], namespace)
    }


def usage_of_nodes(api: Api) -> Mapping[str, Usage]:
    """Return usage by node name. Raises ApiError."""
    return {
        item["metadata"]["name"]: _usage(item["usage"])
        for item in list_all(api, _KIND["NodeMetrics"], "")
    }


def _by_container(document: dict[str, Any]) -> dict[str, Usage]:
    return {item["name"]: _usage(item["usage"]) for item in document["containers"]}


def _usage(amounts: Mapping[str, str]) -> Usage:
    return Usage(
        parse_quantity(amounts.get("cpu", "0")).milli,
        parse_quantity(amounts.get("memory", "0")).whole,
    )
