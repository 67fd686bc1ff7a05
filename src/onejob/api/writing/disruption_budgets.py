"""Enforcement of PodDisruptionBudgets in the eviction subresource."""

from collections.abc import Sequence

from onejob.api.documents import decode
from onejob.api.writing.writes import Writes
from onejob.objects.disruption_budget import Budget, BudgetStatus, read_budget
from onejob.objects.meta import Key
from onejob.objects.pod import read_pod
from onejob.planning.disruption import (
    Refused,
    evicted,
    ignores_budgets,
    selection,
    status_document,
)
from onejob.wire.errors import ApiError, Forbidden, InternalError, TooManyRequests


def charge_eviction(writes: Writes, pod: bytes, budgets: Sequence[Key], *, dry_run: bool) -> None:
    """Charge the eviction of a Pod to the PodDisruptionBudget that covers it, and stage its status.

    `budgets` are the keys of all budgets in the Pod's namespace.

    Raises:
        TooManyRequests, Forbidden: if the budget refuses the eviction.
        InternalError: if more than one budget covers the Pod.
    """
    view = read_pod(pod)
    metadata = view.metadata
    if not budgets or ignores_budgets(view.phase, deleting=metadata.deleting):
        return
    covering = [
        budget
        for key in budgets
        if (stored := writes.store.newest(key)) is not None
        and selection((budget := read_budget(stored.value)).spec)(metadata.labels)
    ]
    if not covering:
        return
    if len(covering) > 1:
        raise InternalError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    (budget,) = covering
    outcome = evicted(budget, metadata.name, is_ready=view.ready, now=writes.clock.now())
    if isinstance(outcome, Refused):
        raise _refusal(outcome)
    if outcome is not None and not dry_run:
        _write_status(writes, budget, outcome)


def _write_status(writes: Writes, budget: Budget, status: BudgetStatus) -> None:
    stored = writes.store.newest(budget.key)
    assert stored is not None, "it was just read"
    document = {**decode(stored.value), "status": status_document(status)}
    writes.stage(budget.key, stored.revision, document)


def _refusal(refused: Refused) -> ApiError:
    """Return the error of a refused eviction."""
    cause = {"reason": "DisruptionBudget", "message": refused.cause}
    details = {"causes": [cause]}
    if refused.code == 403:
        return Forbidden(refused.message, details=details)
    seconds = refused.retry_after_seconds or None
    return TooManyRequests(refused.message, details=details, retry_after_seconds=seconds)
