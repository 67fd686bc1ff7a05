"""Service view: the name, address and ports that Pods get as environment variables."""

import msgspec

from onejob.objects.meta import Meta, View


class ServicePort(View, frozen=True):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class ServiceSpec(View, frozen=True):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: tuple[ServicePort, ...] = ()


class Service(View, frozen=True):
    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()


read_service = msgspec.json.Decoder(Service).decode
