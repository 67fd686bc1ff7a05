"""Replacement of Pods that end on a node under maintenance (JobPodReplacementOnNodeMaintenance).

With `podReplacementPolicy: Failed` a Pod that is being deleted is replaced only once it has ended.
On a node under maintenance that may never be reported (kubernetes/enhancements#6262), so such a Pod
is replaced at once. It is neither deleted nor counted before it ends.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from onejob.objects.meta import Condition, condition_is_true
from onejob.objects.pod import Pod

#: Condition that an administrator sets on a node (upstream's KEP-5683).
MAINTENANCE_CONDITION = "MaintenanceInProgress"


def under_maintenance(conditions: tuple[Condition, ...]) -> bool:
    return condition_is_true(conditions, MAINTENANCE_CONDITION)


def awaited_pods(ending: Iterable[Pod], nodes: AbstractSet[str]) -> Sequence[Pod]:
    """Return the ending Pods that must end before others take their place.

    `nodes` are the names of the nodes under maintenance.
    """
    return [pod for pod in ending if pod.spec.node_name not in nodes]
