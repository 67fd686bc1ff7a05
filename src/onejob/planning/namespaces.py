"""What a namespace must have while it lives, and what remains to be said when it is empty."""

from typing import Any

import msgspec

SERVICE_ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"

_FINALIZER = "kubernetes"


def service_account(namespace: str) -> bytes:
    """The account that Pods run as unless they say otherwise."""
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace},
        }
    )


def root_ca_map(namespace: str, root_ca: str) -> bytes:
    """The certificate by which clients in Pods recognise the API server."""
    description = "The certificate authority of this API server, for its clients in Pods."
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CA,
                "namespace": namespace,
                "annotations": {"kubernetes.io/description": description},
            },
            "data": _root_ca_data(root_ca),
        }
    )


def root_ca_repair(stored: bytes, root_ca: str) -> bytes | None:
    """A JSON patch that restores the certificate; None if it is as it should be."""
    document: dict[str, Any] = msgspec.json.decode(stored)
    if document.get("data") == _root_ca_data(root_ca):
        return None
    operation = {"op": "add", "path": "/data", "value": _root_ca_data(root_ca)}
    return msgspec.json.encode([operation])


def finalized(stored: bytes) -> bytes:
    """The namespace for its `/finalize`: nothing of ours keeps it any longer."""
    document: dict[str, Any] = msgspec.json.decode(stored)
    spec = document.setdefault("spec", {})
    spec["finalizers"] = [name for name in spec.get("finalizers", []) if name != _FINALIZER]
    return msgspec.json.encode(document)


def _root_ca_data(root_ca: str) -> dict[str, str]:
    return {"ca.crt": root_ca}
