"""The names by which a mirrored Job, its copy and their Pods are known."""

from typing import Final

#: Jobs with this `spec.managedBy` are mirrored.
MANAGER: Final = "onejob.dev/mirror"
#: On mirrored Jobs: kept until the copy is proven gone.
FINALIZER: Final = "onejob.dev/mirror"

# Annotations that people set on mirrored Jobs (docs/reference/fields.md).
TARGET: Final = "onejob.dev/mirror-target"
NAMESPACE: Final = "onejob.dev/mirror-namespace"
COPY_CONFIG: Final = "onejob.dev/mirror-copy"
LOST_AFTER: Final = "onejob.dev/mirror-lost-after"
WHEN_COPY_DELETED: Final = "onejob.dev/mirror-when-copy-deleted"

#: Written by the mirror on mirrored Jobs: where the copy is, and its UID once that is known.
RECORD: Final = "onejob.dev/mirror-record"
#: Label with the UID of the Job here: on the copy, its Pods, and the Pods that stand in for them.
ORIGIN: Final = "onejob.dev/mirror-origin"
#: Annotation of the copy: the namespace and name of the Job here, for people.
COPY_OF: Final = "onejob.dev/mirror-of"
#: Annotation of the copy: a digest of the template that it was given.
TEMPLATE_DIGEST: Final = "onejob.dev/mirror-template"
#: Label of ConfigMaps and Secrets on the remote side: the UID of the object here.
COPIED_FROM: Final = "onejob.dev/mirror-copied-from"
#: Annotations of a Pod that stands in for a remote one.
REMOTE_NAMESPACE: Final = "onejob.dev/mirror-remote-namespace"
REMOTE_UID: Final = "onejob.dev/mirror-remote-uid"

#: Label of Secrets that hold a kubeconfig for mirrored Jobs; found by `onejob mirror list`.
TARGET_LABEL: Final = "onejob.dev/mirror-target"
#: Where the kubeconfig is in such a Secret.
KUBECONFIG_KEY: Final = "kubeconfig"

#: The condition of mirrored Jobs that says how the mirroring goes.
READY: Final = "MirrorReady"

#: Pods that stand in for remote ones are bound to nodes with this ending: nobody's kubelet.
NODE_SUFFIX: Final = ".mirror.onejob.dev"


def node_name(target: str) -> str:
    return target + NODE_SUFFIX


def target_of_node(node: str) -> str:
    """The target whose remote Pod a Pod on this node stands in for; "" if it is a real Pod."""
    return node.removesuffix(NODE_SUFFIX) if node.endswith(NODE_SUFFIX) else ""
