"""Bootstrap objects: namespaces and the `kubernetes` Service, created once at start."""

from collections.abc import Sequence

import msgspec

from onejob.client.base import Client, Create
from onejob.objects.meta import NAMESPACES
from onejob.wire.errors import AlreadyExists, ApiError

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def _namespace(name: str) -> Create:
    """Return the creation of a namespace."""
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return Create(NAMESPACES, "", msgspec.json.encode(document), replaces_damaged=True)


def _kubernetes_service() -> Create:
    """Return the `kubernetes` Service, by which clients and test suites recognise a cluster."""
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 7443}],
            "sessionAffinity": "None",
        },
    }
    return Create("services", "default", msgspec.json.encode(document), replaces_damaged=True)


def bootstrap_objects() -> Sequence[Create]:
    return (*map(_namespace, SYSTEM_NAMESPACES), _kubernetes_service())


async def bootstrap(client: Client) -> None:
    """Create missing or damaged bootstrap objects; existing ones are left unchanged."""
    for result in await client.write_many(bootstrap_objects()):
        if isinstance(result, ApiError) and not isinstance(result, AlreadyExists):
            raise result
