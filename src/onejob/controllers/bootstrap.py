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


def aggregation_objects() -> Sequence[Create]:
    """Return what API servers of other projects read to authenticate their users.

    Managers with an API server of their own, such as Kueue, do not start without it. It names no
    authorities: users reach these servers with tokens only.
    """
    name = "extension-apiserver-authentication"
    metadata = {"name": name, "namespace": "kube-system"}
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [name],
        "verbs": ["get", "list", "watch"],
    }
    documents = {
        "configmaps": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata},
        "roles.rbac.authorization.k8s.io": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {**metadata, "name": f"{name}-reader"},
            "rules": [rule],
        },
    }
    return [
        Create(resource, "kube-system", msgspec.json.encode(document), replaces_damaged=True)
        for resource, document in documents.items()
    ]


async def bootstrap(client: Client) -> None:
    """Create missing or damaged bootstrap objects; existing ones are left unchanged."""
    await create_missing(client, bootstrap_objects())


async def create_missing(client: Client, creations: Sequence[Create]) -> None:
    for result in await client.write_many(creations):
        if isinstance(result, ApiError) and not isinstance(result, AlreadyExists):
            raise result
