"""PodDisruptionBudget status and the eviction check."""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.disruption_budget import Budget, BudgetCondition, BudgetSpec, BudgetStatus
from onejob.objects.pod import Pod
from onejob.wire.selectors import SelectorError, matcher_of

_CONDITION: Final = "DisruptionAllowed"
_SYNC_FAILED: Final = "SyncFailed"
#: Time for which a Pod counts as evicted after the grant; afterwards it is assumed to stay.
DELETION_TIMEOUT: Final = timedelta(minutes=2)
#: Maximum number of granted evictions that were not observed to happen.
_MAX_PENDING_EVICTIONS: Final = 2000


class BadBudget(Exception):
    """The status cannot be computed; the message has the reason."""


class Needed(Struct, frozen=True):
    """Number of Pods expected, and how many of them must stay healthy."""

    expected: int
    healthy: int


def selection(spec: BudgetSpec) -> Callable[[Mapping[str, str]], bool]:
    """Return a predicate on Pod labels: whether the budget covers a Pod with these labels."""
    if spec.selector is None:
        return lambda labels: False
    try:
        return matcher_of(spec.selector).matches
    except SelectorError:
        return lambda labels: False


def needs_scale(spec: BudgetSpec) -> bool:
    """Return whether the expected number of Pods must be looked up in their controllers."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def needed(spec: BudgetSpec, pods: int, scale: int) -> Needed:
    """Return the expected and required Pods. Raises `BadBudget`.

    `pods` is the number of existing Pods, `scale` the number desired by their controllers.
    """
    if spec.max_unavailable is not None:
        return Needed(scale, max(0, scale - _share(spec.max_unavailable, scale)))
    if isinstance(spec.min_available, str):
        return Needed(scale, _share(spec.min_available, scale))
    if spec.min_available is not None:
        return Needed(pods, spec.min_available)
    return Needed(0, 0)


def _share(amount: int | str, whole: int) -> int:
    """Return `amount`, or that percentage of `whole`, rounded up. Raises `BadBudget`."""
    if isinstance(amount, int):
        return amount
    number = amount.removesuffix("%")
    if number == amount or not number.isascii() or not number.isdigit():
        raise BadBudget(
            f'invalid value for IntOrString: invalid type: string is not a percentage: "{amount}"'
        )
    return math.ceil(int(number) * whole / 100)


def observed(
    budget: Budget, pods: Iterable[Pod], wanted: Needed, now: datetime
) -> tuple[BudgetStatus, datetime | None]:
    """Return the status computed from `pods`, and when to recompute it, or None.

    The time applies even if nothing changes before.
    """
    pods = list(pods)
    now = now.replace(microsecond=0)
    pending = {
        pod.metadata.name: granted
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and (granted := budget.status.disrupted_pods.get(pod.metadata.name)) is not None
        and granted + DELETION_TIMEOUT > now
    }
    healthy = sum(
        pod.ready and pod.metadata.deletion_timestamp is None and pod.metadata.name not in pending
        for pod in pods
    )
    allowed = max(0, healthy - wanted.healthy) if wanted.expected > 0 else 0
    generation = budget.metadata.generation
    status = BudgetStatus(
        observed_generation=generation,
        disrupted_pods=pending,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=wanted.healthy,
        expected_pods=wanted.expected,
        conditions=_with_allowed(budget.status, allowed, generation, now),
    )
    again = min(pending.values()) + DELETION_TIMEOUT if pending else None
    return status, again


def failed(budget: Budget, why: str, now: datetime) -> BudgetStatus:
    """Return the status after a failed computation.

    No disruption is allowed while the number is unknown.
    """
    before = budget.status
    condition = BudgetCondition(
        type=_CONDITION,
        status="False",
        observed_generation=before.observed_generation,
        reason=_SYNC_FAILED,
        message=why,
    )
    return replace(
        before, disruptions_allowed=0, conditions=_with(before.conditions, condition, now)
    )


def status_document(status: BudgetStatus) -> dict[str, Any]:
    """Return the status as it is stored. Zero counts are included, as upstream does."""
    document: dict[str, Any] = {
        "observedGeneration": status.observed_generation,
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "observedGeneration": condition.observed_generation,
                "lastTransitionTime": _time(condition.last_transition_time),
                "reason": condition.reason,
                "message": condition.message,
            }
            for condition in status.conditions
        ],
    }
    if status.disrupted_pods:
        document["disruptedPods"] = {
            name: _time(granted) for name, granted in sorted(status.disrupted_pods.items())
        }
    return document


def _time(at: datetime | None) -> str | None:
    """Return a timestamp; None for None."""
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Refused(Struct, frozen=True):
    """Reason why a Pod may not be evicted; after `code` 429 the client may retry."""

    code: int
    message: str
    cause: str
    retry_after_seconds: int = 0


def ignores_budgets(phase: str, *, deleting: bool) -> bool:
    """Return whether evicting a Pod in this state disrupts nothing, so budgets do not apply."""
    return deleting or phase in ("Pending", "Succeeded", "Failed")


def evicted(
    budget: Budget, pod: str, *, is_ready: bool, now: datetime
) -> BudgetStatus | Refused | None:
    """Return the budget's status after evicting a running Pod, or a refusal.

    None if the eviction does not affect the budget.
    """
    status, name = budget.status, budget.metadata.name
    if not is_ready and _may_lose_unhealthy(budget):
        return None
    too_many = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.observed_generation < budget.metadata.generation:
        cause = f"The disruption budget {name} is still being processed by the server."
        return Refused(429, too_many, cause, 10)
    if len(status.disrupted_pods) > _MAX_PENDING_EVICTIONS:
        return Refused(
            403,
            f'poddisruptionbudget.policy "{name}" is forbidden: DisruptedPods map too big - too '
            "many evictions not confirmed by PDB controller",
            f"The disruption budget {name} does not allow evicting pods currently: too many "
            "pending evictions not confirmed by PDB controller",
        )
    if status.disruptions_allowed <= 0:
        return Refused(429, too_many, _no_disruption_reason(budget))
    allowed = status.disruptions_allowed - 1
    conditions = status.conditions
    if not allowed:
        conditions = _with_allowed(status, allowed, status.observed_generation, now)
    pending = {**status.disrupted_pods, pod: now.replace(microsecond=0)}
    return replace(
        status, disruptions_allowed=allowed, disrupted_pods=pending, conditions=conditions
    )


def _may_lose_unhealthy(budget: Budget) -> bool:
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return budget.status.current_healthy >= budget.status.desired_healthy > 0


def _no_disruption_reason(budget: Budget) -> str:
    status, name = budget.status, budget.metadata.name
    said = next(
        (c for c in status.conditions if c.type == _CONDITION and c.status == "False"), None
    )
    if said is not None and said.message and said.reason == _SYNC_FAILED:
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it "
            f"failed sync: {said.message}"
        )
    if status.current_healthy <= status.desired_healthy:
        return (
            f"The disruption budget {name} needs {status.desired_healthy} healthy pods and has "
            f"{status.current_healthy} currently"
        )
    return f"The disruption budget {name} does not allow evicting pods currently"


def _with_allowed(
    status: BudgetStatus, allowed: int, generation: int, now: datetime
) -> tuple[BudgetCondition, ...]:
    condition = BudgetCondition(
        type=_CONDITION,
        status="True" if allowed else "False",
        observed_generation=generation,
        reason="SufficientPods" if allowed else "InsufficientPods",
    )
    return _with(status.conditions, condition, now)


def _with(
    conditions: tuple[BudgetCondition, ...], new: BudgetCondition, now: datetime
) -> tuple[BudgetCondition, ...]:
    """Return the conditions with `new` set; lastTransitionTime changes only with its status."""
    before = next((c for c in conditions if c.type == new.type), None)
    since = before.last_transition_time if before and before.status == new.status else None
    new = replace(new, last_transition_time=since or now.replace(microsecond=0))
    if before is None:
        return (*conditions, new)
    return tuple(new if c.type == new.type else c for c in conditions)
