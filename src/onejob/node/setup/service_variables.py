"""Service environment variables of containers, as set by the kubelet."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from onejob.objects.service import Service, ServicePort

#: Namespace and name of the Service for the API server.
_API_SERVER: Final = ("default", "kubernetes")


def service_variables(services: Iterable[Service], node_ip: str) -> dict[str, str]:
    """Return the variables of a namespace's Services.

    There is no routing to Services, and Pods share the host's network: a Service without an address
    of its own gets the node's. The API server's Service is omitted, because nothing listens at its
    address (see `api_server_variables`).
    """
    result: dict[str, str] = {}
    for service in services:
        spec = service.spec
        if (service.metadata.namespace, service.metadata.name) == _API_SERVER:
            continue
        if not spec.ports or spec.type == "ExternalName" or spec.cluster_ip == "None":
            continue
        result |= _variables(service.metadata.name, spec.ports, spec.cluster_ip or node_ip)
    return result


def api_server_variables(host: str, port: int) -> Mapping[str, str]:
    """Return the variables by which clients in a Pod find the API server at its real address."""
    return _variables(_API_SERVER[1], (ServicePort("https", "TCP", port),), host)


# Cached: every container gets the same variables.
@lru_cache(maxsize=256)
def _variables(name: str, ports: tuple[ServicePort, ...], address: str) -> Mapping[str, str]:
    """Return the variables of one Service, from a cache."""
    prefix = _variable_name(name)
    host = f"[{address}]" if ":" in address else address
    result = {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(ports[0].port),
        f"{prefix}_PORT": f"{ports[0].protocol.lower()}://{host}:{ports[0].port}",
    }
    for port in ports:
        if port.name:
            result[f"{prefix}_SERVICE_PORT_{_variable_name(port.name)}"] = str(port.port)
        link = f"{prefix}_PORT_{port.port}_{port.protocol.upper()}"
        result |= {
            link: f"{port.protocol.lower()}://{host}:{port.port}",
            f"{link}_PROTO": port.protocol.lower(),
            f"{link}_PORT": str(port.port),
            f"{link}_ADDR": address,
        }
    return result


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
