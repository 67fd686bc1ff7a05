"""Variables that tell a container of the Services in its namespace, as the kubelet sets them."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from onejob.objects.service import Service, ServicePort


def service_variables(services: Iterable[Service], node_ip: str) -> dict[str, str]:
    """Nothing routes to Services here, and Pods share the host's network: one without an address
    of its own is where the node is."""
    result: dict[str, str] = {}
    for service in services:
        spec = service.spec
        if not spec.ports or spec.type == "ExternalName" or spec.cluster_ip == "None":
            continue
        result |= _variables(service.metadata.name, spec.ports, spec.cluster_ip or node_ip)
    return result


# Every container is told of the same ones.
@lru_cache(maxsize=256)
def _variables(name: str, ports: tuple[ServicePort, ...], address: str) -> Mapping[str, str]:
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
