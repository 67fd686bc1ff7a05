"""Names with a meaning in claims, volumes and classes; those of other projects are Kubernetes'."""

from typing import Final

#: Provisioner of folders on the node's disk.
PROVISIONER: Final = "onejob.dev/local"
#: Default StorageClass. The name is that of minikube, kind and GKE, which many manifests contain.
DEFAULT_CLASS: Final = "standard"
IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"

CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
#: Set on a claim by the scheduler: the node of the first Pod that uses it.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

#: Binding mode of classes whose claims wait for a Pod.
WAIT_FOR_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
READ_ONLY_MANY: Final = "ReadOnlyMany"


def volume_name(claim_uid: str) -> str:
    """Return the name of the volume that is provisioned for a claim."""
    return f"pvc-{claim_uid}"
