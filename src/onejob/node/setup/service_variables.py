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
    of its own gets the node's, and the ports at which its Pods listen. The API server's Service is
    omitted, because nothing listens at its address (see `api_server_variables`).
    """
    result: dict[str, str] = {}
    for service in services:
        spec = service.spec
        if (service.metadata.namespace, service.metadata.name) == _API_SERVER:
            continue
        if not spec.ports or spec.type == "ExternalName" or spec.cluster_ip == "None":
            continue
        numbers = tuple(port.port if spec.cluster_ip else _at_pods(port) for port in spec.ports)
        address = spec.cluster_ip or node_ip
        result |= _variables(service.metadata.name, spec.ports, address, numbers)
    return result


def _at_pods(port: ServicePort) -> int:
    """Return the number at which Pods listen, or that of the port if it is given by name."""
    target = port.target_port
    return target if isinstance(target, int) and target else port.port


def api_server_variables(host: str, port: int) -> Mapping[str, str]:
    """Return the variables by which clients in a Pod find the API server at its real address."""
    return _variables(_API_SERVER[1], (ServicePort(name="https", port=port),), host, (port,))


# Cached: every container gets the same variables.
@lru_cache(maxsize=256)
def _variables(
    name: str, ports: tuple[ServicePort, ...], address: str, numbers: tuple[int, ...]
) -> Mapping[str, str]:
    """Return the variables of one Service, from a cache; `numbers` are those to connect to."""
    prefix = _variable_name(name)
    host = f"[{address}]" if ":" in address else address
    result = {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(numbers[0]),
        f"{prefix}_PORT": f"{ports[0].protocol.lower()}://{host}:{numbers[0]}",
    }
    for port, number in zip(ports, numbers, strict=True):
        if port.name:
            result[f"{prefix}_SERVICE_PORT_{_variable_name(port.name)}"] = str(number)
        link = f"{prefix}_PORT_{port.port}_{port.protocol.upper()}"
        result |= {
            link: f"{port.protocol.lower()}://{host}:{number}",
            f"{link}_PROTO": port.protocol.lower(),
            f"{link}_PORT": str(number),
            f"{link}_ADDR": address,
        }
    return result


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
