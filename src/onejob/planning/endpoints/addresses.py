"""Endpoints and EndpointSlices of a Service, from its Pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from onejob.objects.service import AddressedPod, Service, ServicePort

SERVICE_LABEL: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
SLICE_MANAGER: Final = "endpointslice-controller.k8s.io"
_ENDPOINTS_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
_MAX_ENDPOINTS: Final = 1000
_MAX_PER_SLICE: Final = 100
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"

Document = dict[str, Any]


class Port(Struct, frozen=True, order=True):
    """Port of the processes behind a port of a Service."""

    name: str
    protocol: str
    number: int
    app_protocol: str = ""


class Address(Struct, frozen=True):
    """A Pod behind a Service."""

    pod: AddressedPod
    ready: bool
    serving: bool
    terminating: bool
    ports: tuple[Port, ...]
    hostname: str = ""


def address_of(
    service: Service, pod: AddressedPod, *, ready: bool, terminating: bool
) -> Address | None:
    """Return the address of a Pod; None if it has none yet, or lacks a port of the Service."""
    if not pod.status.pod_ip:
        return None
    ports = [(port, _target_of(port, pod)) for port in service.spec.ports]
    found = tuple(
        Port(port.name, port.protocol, number, port.app_protocol)
        for port, number in ports
        if number
    )
    if service.spec.ports and not found:
        return None
    public = service.spec.publish_not_ready_addresses
    is_named = pod.spec.subdomain == service.metadata.name
    return Address(
        pod,
        ready=public or (ready and not terminating),
        serving=ready or public,
        terminating=terminating,
        ports=found,
        hostname=pod.spec.hostname if is_named else "",
    )


def _target_of(port: ServicePort, pod: AddressedPod) -> int:
    """Return the number of a port in a Pod; 0 if no container declares the named port."""
    target = port.target_port or port.port
    if isinstance(target, int):
        return target
    for container in pod.spec.containers:
        for declared in container.ports:
            if declared.name == target and declared.protocol == port.protocol:
                return declared.container_port
    return 0


def endpoints_document(service: Service, addresses: Sequence[Address]) -> Document:
    """Return the Endpoints of a Service."""
    headless = {_HEADLESS_LABEL: ""} if service.spec.cluster_ip == "None" else {}
    shown = sorted(addresses, key=_order)[:_MAX_ENDPOINTS]
    annotations = {}
    if len(addresses) > len(shown):
        annotations = {"endpoints.kubernetes.io/over-capacity": "truncated"}
    subsets = []
    for ports, members in _by_ports(shown).items():
        subset: Document = {}
        for field, is_ready in (("addresses", True), ("notReadyAddresses", False)):
            chosen = [each for each in members if each.ready == is_ready]
            chosen = [each for each in chosen if is_ready or not each.terminating]
            if chosen:
                subset[field] = [_endpoint_address(each) for each in chosen]
        if not subset:
            continue
        if ports:
            subset["ports"] = [_port(port) for port in ports]
        subsets.append(subset)
    metadata: Document = {
        "name": service.metadata.name,
        "namespace": service.metadata.namespace,
        "labels": {
            **service.metadata.labels,
            **headless,
            _ENDPOINTS_MANAGED_BY: "endpoint-controller",
        },
    }
    if annotations:
        metadata["annotations"] = annotations
    document = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    return {**document, "subsets": subsets} if subsets else document


def slice_documents(service: Service, addresses: Sequence[Address]) -> dict[str, Document]:
    """Return the EndpointSlices of a Service by name."""
    found: dict[str, Document] = {}
    groups = _by_ports(sorted(addresses, key=_order)) or {(): []}
    for ports, members in groups.items():
        for first in range(0, max(len(members), 1), _MAX_PER_SLICE):
            name = f"{service.metadata.name}-{_suffix(service.metadata.uid, ports, first)}"
            part = members[first : first + _MAX_PER_SLICE]
            found[name] = _slice(service, name, ports, part)
    return found


def _slice(
    service: Service, name: str, ports: Iterable[Port], members: Iterable[Address]
) -> Document:
    metadata = service.metadata
    headless = {_HEADLESS_LABEL: ""} if service.spec.cluster_ip == "None" else {}
    owner = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": {
                **metadata.labels,
                **headless,
                SERVICE_LABEL: metadata.name,
                MANAGED_BY: SLICE_MANAGER,
            },
            "ownerReferences": [owner],
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(each) for each in members],
        "ports": [_port(port) for port in ports],
    }


def _by_ports(addresses: Iterable[Address]) -> dict[tuple[Port, ...], list[Address]]:
    groups: dict[tuple[Port, ...], list[Address]] = {}
    for address in addresses:
        groups.setdefault(address.ports, []).append(address)
    return groups


def _order(address: Address) -> str:
    return address.pod.metadata.name


def _port(port: Port) -> Document:
    optional = {"name": port.name, "appProtocol": port.app_protocol}
    named = {field: value for field, value in optional.items() if value}
    return {**named, "port": port.number, "protocol": port.protocol}


def _target_reference(pod: AddressedPod) -> Document:
    metadata = pod.metadata
    return {
        "kind": "Pod",
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
    }


def _endpoint_address(address: Address) -> Document:
    pod = address.pod
    found: Document = {"ip": pod.status.pod_ip, "targetRef": _target_reference(pod)}
    optional = {"hostname": address.hostname, "nodeName": pod.spec.node_name}
    return {**found, **{field: value for field, value in optional.items() if value}}


def _endpoint(address: Address) -> Document:
    pod = address.pod
    optional = {"hostname": address.hostname, "nodeName": pod.spec.node_name}
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": {
            "ready": address.ready,
            "serving": address.serving,
            "terminating": address.terminating,
        },
        "targetRef": _target_reference(pod),
        **{field: value for field, value in optional.items() if value},
    }


def _suffix(uid: str, ports: Iterable[Port], first: int) -> str:
    """Return five characters that differ between the slices of a Service."""
    text = f"{uid}/{[(p.name, p.protocol, p.number, p.app_protocol) for p in ports]}/{first}"
    # FNV-1a with 64 bits.
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    result = ""
    for _ in range(5):
        value, rest = divmod(value, len(_ALPHABET))
        result += _ALPHABET[rest]
    return result


def differs(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether an object must be replaced; annotations of others are left alone."""
    content = {field: value for field, value in present.items() if field != "metadata"}
    expected = {field: value for field, value in wanted.items() if field != "metadata"}
    labels = present["metadata"].get("labels") or {}
    if labels != wanted["metadata"]["labels"]:
        return True
    return _without_empty(content) != _without_empty(expected)


def _without_empty(document: Mapping[str, Any]) -> Document:
    return {field: value for field, value in document.items() if value not in (None, [], {})}
