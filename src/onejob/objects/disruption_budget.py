"""PodDisruptionBudget view: the number of Pods that may be evicted at a time."""

from datetime import datetime
from typing import Final

import msgspec

from onejob.objects.meta import Key, LabelSelector, Meta, View

BUDGETS: Final = "poddisruptionbudgets.policy"


class BudgetSpec(View, frozen=True):
    #: A number, or a percentage such as "30%".
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    #: None selects nothing.
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetCondition(View, frozen=True):
    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class BudgetStatus(View, frozen=True):
    observed_generation: int = 0
    #: Pods whose eviction was granted but whose deletion has not begun, with the time of the grant.
    disrupted_pods: dict[str, datetime] = msgspec.field(default_factory=dict)
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[BudgetCondition, ...] = ()


class Budget(View, frozen=True):
    metadata: Meta = Meta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def key(self) -> Key:
        return Key(BUDGETS, self.metadata.namespace, self.metadata.name)


read_budget = msgspec.json.Decoder(Budget).decode
