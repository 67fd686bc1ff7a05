"""Annotations, labels and finalizers of a mirrored Job, its copy and their Pods."""

from typing import Final

#: Value of `spec.managedBy` that selects mirroring.
MANAGER: Final = "onejob.dev/mirror"
#: Finalizer of mirrored Jobs, kept until the copy is proven gone.
FINALIZER: Final = "onejob.dev/mirror"

# Annotations that users set on mirrored Jobs (docs/reference/fields.md).
TARGET: Final = "onejob.dev/mirror-target"
NAMESPACE: Final = "onejob.dev/mirror-namespace"
COPY_CONFIG: Final = "onejob.dev/mirror-copy"
LOST_AFTER: Final = "onejob.dev/mirror-lost-after"
WHEN_COPY_DELETED: Final = "onejob.dev/mirror-when-copy-deleted"

#: Annotation written by the mirror on mirrored Jobs: location of the copy, and its UID once linked.
RECORD: Final = "onejob.dev/mirror-record"
#: Label with the local Job's UID: on the copy, its Pods, and the local stand-in Pods.
ORIGIN: Final = "onejob.dev/mirror-origin"
#: Annotation of the copy, for humans: namespace and name of the local Job.
COPY_OF: Final = "onejob.dev/mirror-of"
#: Annotation of the copy: digest of the template it was created or last updated with.
TEMPLATE_DIGEST: Final = "onejob.dev/mirror-template"
#: Label of remote ConfigMaps and Secrets: UID of the local object.
COPIED_FROM: Final = "onejob.dev/mirror-copied-from"
#: Annotations of a stand-in Pod.
REMOTE_NAMESPACE: Final = "onejob.dev/mirror-remote-namespace"
REMOTE_UID: Final = "onejob.dev/mirror-remote-uid"

#: Label of Secrets that hold a kubeconfig for mirrored Jobs; used by `onejob mirror list`.
TARGET_LABEL: Final = "onejob.dev/mirror-target"
#: Key of the kubeconfig in such a Secret.
KUBECONFIG_KEY: Final = "kubeconfig"

#: Condition of mirrored Jobs that reports the state of the mirroring.
READY: Final = "MirrorReady"

#: Suffix of the virtual nodes to which stand-in Pods are bound; no kubelet serves them.
NODE_SUFFIX: Final = ".mirror.onejob.dev"


def node_name(target: str) -> str:
    return target + NODE_SUFFIX


def target_of_node(node: str) -> str:
    """Return the target of a stand-in Pod's virtual node; "" for the node of a real Pod."""
    return node.removesuffix(NODE_SUFFIX) if node.endswith(NODE_SUFFIX) else ""
