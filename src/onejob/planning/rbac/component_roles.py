"""Identities and roles of the server's own components: each controller, and the node.

Names and roles are those of Kubernetes, extended where onejob's components work differently: they
patch where Kubernetes' update, the namespace controller also creates the objects of Kubernetes'
service-account controller and root-ca-cert-publisher, and the node binds Pods itself. The
controllers of queues, mirrors and pending deadlines are specific to onejob.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.planning.certificates import SIGNERS
from onejob.wire.requests import User

Document = dict[str, Any]


def _rule(groups: str, resources: str, verbs: str) -> Document:
    """Return a rule; all arguments are separated by spaces, `core` is the unnamed group."""
    names = ["" if group == "core" else group for group in groups.split()]
    return {"apiGroups": names, "resources": resources.split(), "verbs": verbs.split()}


_EVENTS: Final = _rule("core events.k8s.io", "events", "create patch update")

#: By service account in kube-system: name and rules of its role.
CONTROLLERS: Final[Mapping[str, tuple[str, Sequence[Document]]]] = {
    "job-controller": (
        "job-controller",
        (
            _rule("batch", "jobs", "get list patch update watch"),
            _rule("batch", "jobs/status", "update patch"),
            _rule("batch", "jobs/finalizers", "update"),
            _rule("core", "pods", "create delete list patch watch"),
            _EVENTS,
        ),
    ),
    "cronjob-controller": (
        "cronjob-controller",
        (
            _rule("batch", "cronjobs", "get list update watch"),
            _rule("batch", "jobs", "create delete get list patch update watch"),
            _rule("batch", "cronjobs/status", "update patch"),
            _rule("batch", "cronjobs/finalizers", "update"),
            _rule("core", "pods", "delete list watch"),
            _EVENTS,
        ),
    ),
    "deployment-controller": (
        "deployment-controller",
        (
            _rule("apps", "deployments", "get list patch update watch"),
            _rule("apps", "deployments/status", "patch update"),
            _rule("apps", "deployments/finalizers", "update"),
            _rule("apps", "replicasets", "create delete get list patch update watch"),
            _rule("core", "pods", "get list update watch"),
            _EVENTS,
        ),
    ),
    "replicaset-controller": (
        "replicaset-controller",
        (
            _rule("apps", "replicasets", "get list update watch"),
            _rule("apps", "replicasets/status", "patch update"),
            _rule("apps", "replicasets/finalizers", "update"),
            _rule("core", "pods", "create delete get list patch watch"),
            _EVENTS,
        ),
    ),
    "endpoint-controller": (
        "endpoint-controller",
        (
            _rule("core", "pods services", "get list watch"),
            _rule("core", "services/finalizers", "update"),
            _rule("core", "endpoints", "create delete get list update"),
            _rule("discovery.k8s.io", "endpointslices", "create delete get list update"),
            _EVENTS,
        ),
    ),
    "workflow-controller": (
        "workflow-controller",
        (
            _rule("onejob.dev", "workflows", "get list watch"),
            _rule("onejob.dev", "workflows/status", "update patch"),
            _rule("onejob.dev", "workflows/finalizers", "update"),
            _rule("batch", "jobs", "create delete get list patch watch"),
            _rule("core", "pods", "list watch"),
            _EVENTS,
        ),
    ),
    "cronworkflow-controller": (
        "cronworkflow-controller",
        (
            _rule("onejob.dev", "cronworkflows", "get list watch"),
            _rule("onejob.dev", "cronworkflows/status", "update patch"),
            _rule("onejob.dev", "cronworkflows/finalizers", "update"),
            _rule("onejob.dev", "workflows", "create delete get list watch"),
            _EVENTS,
        ),
    ),
    "ttl-after-finished-controller": (
        "ttl-after-finished-controller",
        (
            _rule("batch", "jobs", "delete get list watch"),
            # For Pods, and custom resources whose definition specifies when they are finished.
            _rule("*", "*", "delete get list watch"),
            _EVENTS,
        ),
    ),
    "generic-garbage-collector": (
        "generic-garbage-collector",
        (_rule("*", "*", "delete get list patch update watch"), _EVENTS),
    ),
    "pod-garbage-collector": (
        "pod-garbage-collector",
        (
            _rule("core", "pods", "delete list watch"),
            _rule("core", "nodes", "get list watch"),
            _rule("core", "pods/status", "patch"),
        ),
    ),
    "namespace-controller": (
        "namespace-controller",
        (
            _rule("core", "namespaces", "delete get list watch"),
            _rule("core", "namespaces/finalize namespaces/status", "update patch"),
            _rule("*", "*", "delete deletecollection get list watch"),
            _rule("core", "serviceaccounts", "create"),
            _rule("core", "configmaps", "create update patch"),
        ),
    ),
    "resourcequota-controller": (
        "resourcequota-controller",
        (
            _rule("*", "*", "list watch"),
            _rule("core", "resourcequotas/status", "patch update"),
            _EVENTS,
        ),
    ),
    "clusterrole-aggregation-controller": (
        "clusterrole-aggregation-controller",
        (
            _rule(
                "rbac.authorization.k8s.io", "clusterroles", "escalate get list patch update watch"
            ),
        ),
    ),
    "disruption-controller": (
        "disruption-controller",
        (
            _rule("apps", "deployments replicasets statefulsets", "get list watch"),
            _rule("core", "replicationcontrollers", "get list watch"),
            _rule("policy", "poddisruptionbudgets", "get list watch"),
            _rule("policy", "poddisruptionbudgets/status", "update"),
            _rule("core", "pods/status", "patch update"),
            _rule("*", "*/scale", "get"),
            _EVENTS,
        ),
    ),
    "persistent-volume-binder": (
        "persistent-volume-binder",
        (
            _rule("core", "persistentvolumes", "create delete get list patch update watch"),
            _rule("core", "persistentvolumes/status", "patch update"),
            _rule("core", "persistentvolumeclaims", "create get list patch update watch"),
            _rule("core", "persistentvolumeclaims/status", "patch update"),
            _rule("core", "pods", "get list watch"),
            _rule("core", "pods/finalizers", "update"),
            _rule("storage.k8s.io", "storageclasses", "create get list watch"),
            _EVENTS,
        ),
    ),
    "certificate-controller": (
        "certificate-controller",
        (
            _rule("certificates.k8s.io", "certificatesigningrequests", "get list watch"),
            _rule("certificates.k8s.io", "certificatesigningrequests/status", "update patch"),
            {**_rule("certificates.k8s.io", "signers", "sign"), "resourceNames": list(SIGNERS)},
            _EVENTS,
        ),
    ),
    "queue-controller": (
        "queue-controller",
        (
            _rule("batch", "jobs", "patch"),
            _rule("scheduling.k8s.io", "priorityclasses", "list watch"),
            _rule("core", "configmaps", "get"),
            _EVENTS,
        ),
    ),
    "pending-deadline-controller": (
        "pending-deadline-controller",
        (_rule("core", "pods", "get"), _rule("core", "pods/status", "patch"), _EVENTS),
    ),
    "notification-controller": ("notification-controller", (_EVENTS,)),
    "mirror-controller": (
        "mirror-controller",
        (
            _rule("batch", "jobs", "get patch"),
            _rule("batch", "jobs/status", "update"),
            _rule("core", "pods", "create delete list"),
            _rule("core", "pods/status", "patch"),
            # Objects used by its Jobs are copied to the remote cluster; a Secret holds its address.
            _rule("core", "configmaps secrets", "get"),
            _EVENTS,
        ),
    ),
}

#: Identity that fills the caches shared by all controllers, as in Kubernetes. Of the role of this
#: name, only the rules required for that are included.
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
CONTROLLER_MANAGER_RULES: Final[Sequence[Document]] = (_rule("*", "*", "list watch"),)

NODE_ROLE: Final = "system:node"
NODES_GROUP: Final = "system:nodes"
NODE: Final[Sequence[Document]] = (
    _rule("authentication.k8s.io", "tokenreviews", "create"),
    _rule("authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews", "create"),
    _rule("core", "services", "get list watch"),
    _rule("core", "nodes", "create get list watch"),
    _rule("core", "nodes/status", "patch update"),
    _rule("core", "nodes", "patch update"),
    _EVENTS,
    _rule("core", "pods", "get list watch"),
    _rule("core", "pods", "create delete"),
    _rule("core", "pods/status", "patch update"),
    _rule("core", "pods/eviction", "create"),
    _rule("core", "configmaps secrets", "get list watch"),
    _rule("core", "persistentvolumeclaims persistentvolumes", "get"),
    _rule("coordination.k8s.io", "leases", "create delete get patch update"),
    _rule("core", "serviceaccounts/token", "create"),
    # onejob has no separate scheduler.
    _rule("core", "pods/binding", "create"),
)


def manager_user() -> User:
    return User(CONTROLLER_MANAGER, groups=("system:authenticated",))


def server_user() -> User:
    """Return the API server's own identity, which maintains roles, definitions and Events.

    The name is Kubernetes'.
    """
    return User("system:apiserver", groups=("system:masters", "system:authenticated"))


def node_user(name: str) -> User:
    return User(f"system:node:{name}", groups=(NODES_GROUP, "system:authenticated"))


def controller_user(account: str) -> User:
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
    name = f"system:serviceaccount:kube-system:{account}"
    return User(name, groups=(*groups, "system:authenticated"))
