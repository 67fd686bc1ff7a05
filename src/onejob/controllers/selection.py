"""Controller selection: names and syntax of kube-controller-manager's `--controllers`."""

from collections.abc import Mapping
from typing import Final

JOB: Final = "job-controller"
CRONJOB: Final = "cronjob-controller"
TTL: Final = "ttl-after-finished-controller"
GARBAGE: Final = "garbage-collector-controller"
POD_GARBAGE: Final = "pod-garbage-collector-controller"
#: Also creates the default objects of each namespace: its ServiceAccount and the root certificate.
NAMESPACE: Final = "namespace-controller"
#: Runs Jobs with `managedBy: onejob.dev/mirror` on remote clusters.
MIRROR: Final = "mirror-controller"
#: Fails Pods that have not started by their deadline.
PENDING: Final = "pending-deadline-controller"
#: Suspends Jobs while the concurrency limits are exhausted.
QUEUE: Final = "queue-controller"
DISRUPTION: Final = "disruption-controller"
#: Sends messages about Jobs, if targets are configured.
NOTIFICATION: Final = "notification-controller"
CLUSTER_ROLES: Final = "clusterrole-aggregation-controller"
QUOTA: Final = "resourcequota-controller"
DEPLOYMENT: Final = "deployment-controller"
REPLICA_SET: Final = "replicaset-controller"
#: Writes the addresses of Services, both as Endpoints and as EndpointSlices.
ENDPOINTS: Final = "endpoints-controller"
WORKFLOW: Final = "workflow-controller"
CRONWORKFLOW: Final = "cronworkflow-controller"
#: Signs approved CertificateSigningRequests.
CERTIFICATES: Final = "certificatesigningrequest-signing-controller"
#: Binds claims and provisions their volumes; also does the work of Kubernetes' controllers that
#: protect claims and volumes, and of the one for ephemeral volumes.
CLAIMS: Final = "persistentvolume-binder-controller"

#: Name -> its older name, which is accepted too.
_ALIASES: Final[Mapping[str, str]] = {
    JOB: "job",
    CRONJOB: "cronjob",
    TTL: "ttl-after-finished",
    GARBAGE: "garbagecollector",
    POD_GARBAGE: "podgc",
    NAMESPACE: "namespace",
    MIRROR: "mirror",
    PENDING: "pending-deadline",
    QUEUE: "queue",
    DISRUPTION: "disruption",
    CLUSTER_ROLES: "clusterrole-aggregation",
    QUOTA: "resourcequota",
    NOTIFICATION: "notification",
    DEPLOYMENT: "deployment",
    REPLICA_SET: "replicaset",
    ENDPOINTS: "endpoint",
    WORKFLOW: "workflow",
    CRONWORKFLOW: "cronworkflow",
    CLAIMS: "persistentvolume-binder",
    CERTIFICATES: "csrsigning",
}

ALL: Final[frozenset[str]] = frozenset(_ALIASES)
#: Controllers of `onejob run`. The objects of the others cannot be created there, because a run
#: serves no API; a run of workflows, or with claims, adds their controller.
RUN_CONTROLLERS: Final[frozenset[str]] = ALL - {
    CERTIFICATES,
    CLAIMS,
    CRONJOB,
    CRONWORKFLOW,
    DEPLOYMENT,
    DISRUPTION,
    ENDPOINTS,
    QUOTA,
    REPLICA_SET,
    WORKFLOW,
}


class UnknownController(ValueError):
    """The name of a controller that does not exist."""


def select_controllers(text: str) -> frozenset[str]:
    """Parse `*,-job-controller`: `*` selects all controllers not named, `-NAME` excludes one.

    Of contradicting items the first one applies. Without `*`, only the named ones run. Raises
    UnknownController.
    """
    chosen: dict[str, bool] = {}
    others = False
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        if item == "*":
            others = True
            continue
        name = _full_name(item.removeprefix("-"))
        chosen.setdefault(name, not item.startswith("-"))
    return frozenset(name for name in ALL if chosen.get(name, others))


def _full_name(name: str) -> str:
    """Return the full name of a controller. Raises UnknownController."""
    for full, alias in _ALIASES.items():
        if name in (full, alias):
            return full
    known = ", ".join(sorted(ALL))
    raise UnknownController(f"{name!r} is not in the list of known controllers: {known}")
