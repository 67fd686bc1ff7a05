"""Installation manifests of `onejob controller`, as documents. Pure functions.

The RBAC rules are exactly the permissions that the controller checks when it starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onejob.cluster.permissions import (
    ELECTION_NEEDS,
    MIRROR_NEEDS,
    NEEDS,
    OWN_NAMESPACE_PERMISSIONS,
    WORKFLOW_NEEDS,
    Need,
)

Document = dict[str, Any]

_NAME: Final = "onejob-controller"
_LABELS: Final = {"app.kubernetes.io/name": _NAME}
_PORT: Final = 8080
_RBAC: Final = "rbac.authorization.k8s.io"
#: The conventional UID of the user `nonroot` in images without a user of their own.
_USER: Final = 65532


@dataclass(frozen=True, slots=True)
class Installation:
    """Parameters of an installation."""

    namespace: str
    image: str
    manager: str
    #: Namespaces whose Jobs are run; empty means all.
    watched: tuple[str, ...] = ()
    replicas: int = 2
    #: Whether it also runs Jobs on other clusters.
    mirror: bool = False
    #: Whether it also runs workflows; their definitions are then among the manifests.
    workflows: bool = False


def manifests(installation: Installation) -> Sequence[Document]:
    """Return the manifests in the order in which they can be applied."""
    namespace = installation.namespace
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *_definitions(installation),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(namespace)},
        *_roles_for_jobs(installation),
        *_role(
            "Role",
            f"{_NAME}-own",
            (*OWN_NAMESPACE_PERMISSIONS, *ELECTION_NEEDS),
            namespace,
            namespace,
        ),
        _deployment(installation),
    )


def _definitions(installation: Installation) -> Sequence[Document]:
    if not installation.workflows:
        return ()
    # Imported on use: it reads the schema of all kinds.
    from onejob.cluster.definitions import definitions

    return definitions()


def _roles_for_jobs(installation: Installation) -> Sequence[Document]:
    needs = (
        *NEEDS,
        *(MIRROR_NEEDS if installation.mirror else ()),
        *(WORKFLOW_NEEDS if installation.workflows else ()),
    )
    if not installation.watched:
        return _role("ClusterRole", _NAME, needs, "", installation.namespace)
    return [
        document
        for namespace in installation.watched
        for document in _role("Role", _NAME, needs, namespace, installation.namespace)
    ]


def _role(
    kind: str, name: str, needs: Sequence[Need], namespace: str, own_namespace: str
) -> Sequence[Document]:
    """Return a role, and its binding to the controller's service account."""
    metadata = _metadata(namespace, name)
    rules = [
        {"apiGroups": [need.group], "resources": [need.path], "verbs": list(need.verbs)}
        for need in needs
    ]
    account = {"kind": "ServiceAccount", "name": _NAME, "namespace": own_namespace}
    return (
        {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
            "subjects": [account],
        },
    )


def _deployment(installation: Installation) -> Document:
    """Return the Deployment."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(installation.namespace),
        "spec": {
            "replicas": installation.replicas,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod(installation)},
        },
    }


def _pod(installation: Installation) -> Document:
    """Return the spec of the Deployment's Pods."""
    same_node = {
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": _LABELS},
        },
    }
    return {
        "serviceAccountName": _NAME,
        "terminationGracePeriodSeconds": 45,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [same_node]}
        },
        "containers": [_container(installation)],
    }


def _container(installation: Installation) -> Document:
    """Return the container."""
    arguments = [
        "controller",
        f"--manager-name={installation.manager}",
        "--leader-elect",
        f"--metrics-listen=0.0.0.0:{_PORT}",
        *(f"--namespace={namespace}" for namespace in installation.watched),
        *(["--mirror"] if installation.mirror else []),
        *(["--workflows"] if installation.workflows else []),
    ]
    return {
        "name": "controller",
        "image": installation.image,
        "args": arguments,
        "ports": [{"name": "metrics", "containerPort": _PORT}],
        "livenessProbe": _probe("/healthz", 10, 3),
        "readinessProbe": _probe("/readyz", 5, 1),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(path: str, period: int, failures: int) -> Document:
    """Return an HTTP probe."""
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "failureThreshold": failures,
    }


def _metadata(namespace: str, name: str = _NAME) -> Document:
    """Return the metadata of an object; cluster-scoped without a namespace."""
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, "labels": dict(_LABELS)}
