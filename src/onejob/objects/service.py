"""Service view: its ports and selector; and the view of the Pods behind it."""

import msgspec

from onejob.objects.meta import SERVICES, Key, Meta, View


class ServicePort(View, frozen=True):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    #: Number, or the name of a port that a container declares.
    target_port: int | str = 0
    app_protocol: str = ""


class ServiceSpec(View, frozen=True):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    publish_not_ready_addresses: bool = False


class Service(View, frozen=True):
    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()

    @property
    def selects_pods(self) -> bool:
        return bool(self.spec.selector) and self.spec.type != "ExternalName"

    @property
    def key(self) -> Key:
        return Key(SERVICES, self.metadata.namespace, self.metadata.name)


class ContainerPort(View, frozen=True):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class PortedContainer(View, frozen=True):
    ports: tuple[ContainerPort, ...] = ()


class AddressedPodSpec(View, frozen=True):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    containers: tuple[PortedContainer, ...] = ()


class AddressedPodStatus(View, frozen=True):
    pod_ip: str = msgspec.field(name="podIP", default="")


class AddressedPod(View, frozen=True):
    """The part of a Pod that addresses of Services are made of."""

    metadata: Meta = Meta()
    spec: AddressedPodSpec = AddressedPodSpec()
    status: AddressedPodStatus = AddressedPodStatus()


read_service = msgspec.json.Decoder(Service).decode
read_addressed_pod = msgspec.json.Decoder(AddressedPod).decode
