"""Documents that the controller of claims creates."""

from typing import TYPE_CHECKING, Any

from onejob.objects.meta import Meta
from onejob.planning.claims.names import (
    DEFAULT_CLASS,
    IS_DEFAULT,
    PROVISIONED_BY,
    PROVISIONER,
    volume_name,
)

if TYPE_CHECKING:
    from onejob.objects.claims import Claim, StorageClass

Document = dict[str, Any]


def default_class_document() -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": DEFAULT_CLASS, "annotations": {IS_DEFAULT: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def claim_reference(claim: "Claim") -> Document:
    metadata = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }


def volume_document(claim: "Claim", storage_class: "StorageClass", path: str) -> Document:
    """Return the volume for a claim, with the folder at `path`."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim.metadata.uid),
            "annotations": {PROVISIONED_BY: PROVISIONER},
        },
        "spec": {
            "accessModes": list(claim.spec.access_modes),
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "claimRef": claim_reference(claim),
            "hostPath": {"path": path, "type": "Directory"},
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": storage_class.metadata.name,
            "volumeMode": "Filesystem",
        },
    }


def ephemeral_claim(pod: Meta, volume: str, template: Document) -> Document:
    """Return the claim of a Pod's ephemeral volume, which is deleted with the Pod."""
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"{pod.name}-{volume}",
            "namespace": pod.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.name,
                    "uid": pod.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template.get("spec") or {},
    }
