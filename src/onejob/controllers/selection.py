"""Which controllers run: names and rules as of kube-controller-manager's `--controllers`."""

from collections.abc import Mapping
from typing import Final

JOB: Final = "job-controller"
CRONJOB: Final = "cronjob-controller"
TTL: Final = "ttl-after-finished-controller"
GARBAGE: Final = "garbage-collector-controller"
POD_GARBAGE: Final = "pod-garbage-collector-controller"
#: Also makes what every namespace holds: its ServiceAccount and the root certificate.
NAMESPACE: Final = "namespace-controller"
#: Runs Jobs with `managedBy: onejob.dev/mirror` on remote clusters.
MIRROR: Final = "mirror-controller"
#: Fails Pods that have not started by their deadline.
PENDING: Final = "pending-deadline-controller"
#: Suspends Jobs while as many run as the limits allow.
QUEUE: Final = "queue-controller"
DISRUPTION: Final = "disruption-controller"
#: Sends messages about Jobs, where targets are configured.
NOTIFICATION: Final = "notification-controller"
CLUSTER_ROLES: Final = "clusterrole-aggregation-controller"
QUOTA: Final = "resourcequota-controller"

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
}

ALL: Final[frozenset[str]] = frozenset(_ALIASES)
#: Those that a run needs: nobody can create what the others are about there, for want of a server.
OF_A_RUN: Final[frozenset[str]] = ALL - {CRONJOB, DISRUPTION, QUOTA}


class UnknownController(ValueError):
    """A controller was named that does not exist."""


def select_controllers(text: str) -> frozenset[str]:
    """Read `*,-job-controller`: `*` stands for all that are not named, `-NAME` leaves one out.

    Of contradicting items the first one counts. Without `*`, only those that are named run.
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
    for full, alias in _ALIASES.items():
        if name in (full, alias):
            return full
    known = ", ".join(sorted(ALL))
    raise UnknownController(f"{name!r} is not in the list of known controllers: {known}")
