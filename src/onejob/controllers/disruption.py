"""Disruption controller: maintain the status of PodDisruptionBudgets, which evictions consult.

It does nothing as long as there is no budget. Pods that have ended do not count.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from onejob.client.base import Replace
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.due_keys import DeadlineTimer
from onejob.informers.cache import Delta
from onejob.informers.shared import AnyObject
from onejob.informers.workqueue import WorkQueue, work
from onejob.metrics import QueueName
from onejob.objects.disruption_budget import BUDGETS, Budget, BudgetSpec, BudgetStatus, read_budget
from onejob.objects.meta import Key, Meta, OwnerReference, View
from onejob.objects.pod import Pod
from onejob.planning.disruption import (
    BadBudget,
    failed,
    needed,
    needs_scale,
    observed,
    selection,
    status_document,
)
from onejob.wire.errors import NotFound
from onejob.wire.registry import KindRegistry

_BATCH: Final = 100
_WORKERS: Final = 2


class _Followed(Struct):
    """Budget and the Pods that it covers."""

    spec: BudgetSpec
    covers: Callable[[Mapping[str, str]], bool]
    pods: dict[Key, Pod] = field(default_factory=dict)


class DisruptionController:
    """Controller of PodDisruptionBudgets."""

    def __init__(self, context: ControllerContext, kinds: KindRegistry) -> None:
        self._client = context.client
        self._recorder = context.recorder
        self._clock = context.clock
        self._kinds = kinds
        self._pods = context.informers.pods
        #: Budgets by namespace, then by key.
        self._followed: dict[str, dict[Key, _Followed]] = {}
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=0.005, longest_delay=1000.0)
        self._again = DeadlineTimer(context.clock)
        context.informers.metadata(BUDGETS).on_change(self._budgets_changed)
        self._pods.on_change(self._pods_changed)
        self._pods.on_relist(self._on_relist)

    async def run(self) -> None:
        """Process the queue until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._enqueue_due())
            group.create_task(work(self._queue, self.sync, workers=_WORKERS, name="disruption"))

    async def _enqueue_due(self) -> None:
        """Enqueue budgets whose deadline has passed."""
        while True:
            for key in await self._again.take(_BATCH):
                self._queue.add(key)

    def clock_jumped(self) -> None:
        self._again.clock_jumped()

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        return {"disruption": self._queue}

    def _budgets_changed(self, deltas: Sequence[Delta[AnyObject]]) -> None:
        for delta in deltas:
            self._queue.add(delta.key)

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        if not self._followed:
            return
        for delta in deltas:
            for key, followed in self._followed.get(delta.key.namespace, {}).items():
                if _update(followed, delta.key, delta.new):
                    self._queue.add(key)

    def _on_relist(self, present: Mapping[Key, Pod]) -> None:
        """Drop Pods that a relist no longer contains."""
        for budgets in self._followed.values():
            for key, followed in budgets.items():
                gone = [pod for pod in followed.pods if pod not in present]
                for pod in gone:
                    del followed.pods[pod]
                if gone:
                    self._queue.add(key)

    async def sync(self, key: Key) -> None:
        """Compute the status of a budget, and write it if it changed."""
        try:
            stored = await self._client.get(key)
        except NotFound:
            self._drop_budget(key)
            return
        budget = read_budget(stored)
        followed = self._track_budget(key, budget.spec)
        now = self._clock.now()
        again = None
        pods = list(followed.pods.values())
        try:
            scale = await self._scale(pods) if needs_scale(budget.spec) else 0
            wanted = needed(budget.spec, len(pods), scale)
            status, again = observed(budget, pods, wanted, now)
        except BadBudget as error:
            self._report(budget, str(error))
            status = failed(budget, str(error), now)
        if status != budget.status:
            await self._write(key, stored, status)
        if again is not None:
            self._again.set(key, again)
        else:
            self._again.drop(key)

    async def _write(self, key: Key, stored: bytes, status: BudgetStatus) -> None:
        """Write the status.

        Raises Conflict, which causes a retry, if an eviction was granted in between.
        """
        document: dict[str, Any] = msgspec.json.decode(stored)
        document["status"] = status_document(status)
        await self._client.write(Replace(key, msgspec.json.encode(document), "status"))

    def _track_budget(self, key: Key, spec: BudgetSpec) -> _Followed:
        """Return the Pods that a budget selects, followed from now on."""
        budgets = self._followed.setdefault(key.namespace, {})
        followed = budgets.get(key)
        if followed is None or followed.spec.selector != spec.selector:
            followed = budgets[key] = _Followed(spec, selection(spec))
            for pod in self._pods.cache:
                if pod.metadata.namespace == key.namespace:
                    _update(followed, pod.key, pod)
        followed.spec = spec
        return followed

    def _drop_budget(self, key: Key) -> None:
        self._again.drop(key)
        budgets = self._followed.get(key.namespace, {})
        budgets.pop(key, None)
        if not budgets:
            self._followed.pop(key.namespace, None)

    async def _scale(self, pods: Sequence[Pod]) -> int:
        """Return the total number of Pods that the Pods' controllers want.

        Pods without a controller do not count. Raises BadBudget.
        """
        scales: dict[str, int] = {}
        for pod in pods:
            owner = pod.metadata.controller_ref
            if owner is not None and owner.uid not in scales:
                found = await self._scale_of(owner, pod)
                scales[found[0]] = found[1]
                scales.setdefault(owner.uid, 0)
        return sum(scales.values())

    async def _scale_of(self, owner: OwnerReference, pod: Pod) -> tuple[str, int]:
        """Return the UID of the top-level controller, and the number of Pods it wants.

        Raises BadBudget.
        """
        kind = self._kinds.by_kind.get((owner.api_version, owner.kind))
        resource = kind.resource if kind is not None else ""
        if resource not in _SCALED:
            name = resource or f"{owner.kind} of {owner.api_version}"
            raise BadBudget(f"{name} does not implement the scale subresource")
        key = Key(resource, pod.metadata.namespace, owner.name)
        try:
            controller = _read_scaled(await self._client.get(key))
        except NotFound:
            controller = None
        if controller is None or controller.metadata.uid != owner.uid:
            raise BadBudget(f'found no controllers for pod "{pod.metadata.name}"')
        above = controller.metadata.controller_ref
        if resource == "replicasets.apps" and above is not None and above.kind == "Deployment":
            return await self._scale_of(above, pod)
        return owner.uid, controller.spec.replicas

    def _report(self, budget: Budget, why: str) -> None:
        """Record the Event about a budget that cannot be evaluated."""
        what = about("policy/v1", "PodDisruptionBudget", budget.metadata)
        text = f"Failed to calculate the number of expected pods: {why}"
        self._recorder.record(what, "Warning", "CalculateExpectedPodCountFailed", text)


#: Kinds with their number of Pods in `spec.replicas`.
_SCALED: Final = frozenset(("deployments.apps", "replicasets.apps", "statefulsets.apps"))


class _ScaledSpec(View, frozen=True):
    replicas: int = 1


class _Scaled(View, frozen=True):
    metadata: Meta = Meta()
    spec: _ScaledSpec = _ScaledSpec()


_read_scaled = msgspec.json.Decoder(_Scaled).decode


def _update(followed: _Followed, key: Key, pod: Pod | None) -> bool:
    """Add, update or remove a Pod. Return whether the budget's status may change."""
    before = followed.pods.pop(key, None)
    if pod is None or pod.terminal or not followed.covers(pod.metadata.labels):
        return before is not None
    followed.pods[key] = pod
    return before is None or _relevant_state(before) != _relevant_state(pod)


def _relevant_state(pod: Pod) -> tuple[bool, bool, str]:
    """Return the parts of a Pod's state that affect budgets."""
    return pod.ready, pod.metadata.deletion_timestamp is not None, pod.metadata.uid
