"""The Pod and port behind a proxy request. Pure functions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from onejob.wire.errors import BadRequest, ServiceUnavailable

Document = Mapping[str, Any]

_SCHEMES = ("", "http", "https")


class ProxyName(NamedTuple):
    """Parts of `[SCHEME:]NAME[:PORT]`, as the path names a Pod or Service."""

    scheme: str
    name: str
    port: str


class Backend(NamedTuple):
    """Port of a Pod."""

    pod: str
    port: int


def parse_name(text: str, noun: str) -> ProxyName:
    """Parse the name of a proxy request. Raises BadRequest."""
    parts = text.split(":")
    match parts:
        case [name]:
            found = ProxyName("", name, "")
        case [name, port]:
            found = ProxyName("", name, port)
        case [scheme, name, port]:
            found = ProxyName(scheme, name, port)
        case _:
            found = ProxyName("", "", "")
    if not found.name or found.scheme not in _SCHEMES or (len(parts) == 2 and not found.port):
        raise BadRequest(f'invalid {noun} request "{text}"')
    return found


def pod_port(pod: Document, port: str) -> int:
    """Return the requested port, else the first one that a container declares; 80 without any.

    Raises BadRequest.
    """
    if port:
        return _number(port, f'invalid port "{port}"')
    for container in pod["spec"].get("containers") or ():
        for declared in container.get("ports") or ():
            return int(declared["containerPort"])
    return 80


def service_port_name(service: Document, port: str) -> str:
    """Return the name of a Service's port that is given by name or number. Raises
    ServiceUnavailable."""
    if not port.isdigit():
        return port
    for declared in service["spec"].get("ports") or ():
        if str(declared.get("port")) == port:
            return str(declared.get("name") or "")
    name = service["metadata"]["name"]
    raise ServiceUnavailable(f'no service port {port} found for service "{name}"')


def backends(slices: Iterable[Document], service: str, port: str) -> list[Backend]:
    """Return the ready Pods behind a port of a Service.

    Addresses that are not those of Pods are left out: a client may have written them. Raises
    ServiceUnavailable if none is left.
    """
    found = [backend for each in slices for backend in _of_slice(each, port)]
    if not found:
        raise ServiceUnavailable(f'no endpoints available for service "{service}"')
    return found


def _of_slice(document: Document, port: str) -> Iterator[Backend]:
    numbers = [
        int(declared["port"])
        for declared in document.get("ports") or ()
        if (declared.get("name") or "") == port and declared.get("port")
    ]
    for endpoint in document.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        # An unset condition counts as true.
        ready = (endpoint.get("conditions") or {}).get("ready", True)
        if ready and target.get("kind") == "Pod" and target.get("name"):
            yield from (Backend(target["name"], number) for number in numbers)


def _number(text: str, problem: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise BadRequest(problem)
