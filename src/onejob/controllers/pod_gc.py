"""Pod garbage collector: every 20 s, remove Pods that no other component will clean up."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from onejob.client.base import Client, Delete, Patch
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics, RemovalReason
from onejob.objects.meta import NODES, Condition, Key, View, condition_is_true
from onejob.objects.pod import Pod
from onejob.planning.mirror.names import target_of_node
from onejob.planning.pod.gc import (
    DEFAULT_TERMINATED_LIMIT,
    EndedPods,
    Quarantine,
    Removal,
    failed_status,
    stranded,
    stuck,
)
from onejob.wire.errors import ApiError, NotFound

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 20.0
_BATCH = 500
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Taint(View, frozen=True):
    key: str = ""


class NodeSpec(View, frozen=True):
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()


class NodeHealth(View, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def out_of_service(self) -> bool:
        """Return whether the Node is tainted as out of service and not Ready."""
        tainted = any(taint.key == _OUT_OF_SERVICE for taint in self.spec.taints)
        return tainted and not condition_is_true(self.status.conditions, "Ready")


_read_node = msgspec.json.Decoder(NodeHealth).decode


class PodGarbageCollector:
    """Collector of ended, unscheduled and orphaned Pods."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        *,
        clock: Clock,
        metrics: Metrics,
        terminated_limit: int = DEFAULT_TERMINATED_LIMIT,
    ) -> None:
        self._client = client
        self._pods = informers.pods
        self._nodes = informers.metadata(NODES)
        self._clock = clock
        self._metrics = metrics
        self._limit = terminated_limit
        #: The Pod cache drops ended Pods; the facts needed about them are kept here.
        self._ended = EndedPods()
        self._deleting: set[Key] = set()
        self._bound: dict[str, set[Key]] = {}
        self._quarantine = Quarantine()
        self._pods.on_change(self._changed)
        self._pods.on_relist(self._relisted)

    def __len__(self) -> int:
        """Return the number of ended Pods on record."""
        return len(self._ended)

    async def run(self) -> None:
        """Sweep periodically until cancelled; errors are logged."""
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            try:
                await self.sweep()
            except ApiError as error:
                log.warning("sweep aborted: %s", error)

    async def sweep(self) -> None:
        """Delete the Pods that are due, once."""
        await self._remove(self._ended.beyond(self._limit))
        deleting = [pod for key in self._deleting if (pod := self._pods.cache.get(key))]
        dead = await self._out_of_service({pod.spec.node_name for pod in deleting})
        await self._remove(stuck(deleting, dead))
        gone = await self._gone_nodes()
        if gone:
            keys = [key for node in sorted(gone) for key in sorted(self._bound.get(node, ()))]
            running = [pod for key in keys if (pod := self._pods.cache.get(key))]
            done = [memory for key in keys if (memory := self._ended.get(key))]
            await self._remove(stranded(running, done, gone))

    def _changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Update the sets of Pods that a sweep considers."""
        for delta in deltas:
            key, pod = delta.key, delta.new
            if pod is None:
                self._ended.drop(key)
                self._deleting.discard(key)
                self._remove_from_node(key, delta.old)
                continue
            self._ended.observe(key, pod)
            if pod.metadata.deletion_timestamp is not None:
                self._deleting.add(key)
            elif self._deleting:
                self._deleting.discard(key)
            node = pod.spec.node_name
            if node and (delta.old is None or delta.old.spec.node_name != node):
                if node in self._bound:
                    self._bound[node].add(key)
                elif not target_of_node(node):
                    self._bound[node] = {key}

    def _relisted(self, present: Mapping[Key, Pod]) -> None:
        """Forget deleted Pods.

        The cache keeps no ended Pods, so their deletion may go unreported.
        """
        self._ended.keep_only(present)
        self._deleting.intersection_update(present)
        for node, keys in list(self._bound.items()):
            keys.intersection_update(present)
            if not keys:
                del self._bound[node]

    def _remove_from_node(self, key: Key, pod: Pod | None) -> None:
        node = pod.spec.node_name if pod is not None else ""
        if node in self._bound:
            self._bound[node].discard(key)
            if not self._bound[node]:
                del self._bound[node]

    async def _out_of_service(self, nodes: set[str]) -> frozenset[str]:
        """Return those of the Nodes that are out of service, by a fresh read."""
        dead = set()
        for name in sorted(nodes - {""}):
            try:
                node = _read_node(await self._client.get(Key(NODES, "", name)))
            except NotFound:
                continue
            if node.out_of_service:
                dead.add(name)
        return frozenset(dead)

    async def _gone_nodes(self) -> frozenset[str]:
        """Return the Nodes of bound Pods that have been absent for the quarantine, verified by a
        fresh read."""
        present = frozenset(node.metadata.name for node in self._nodes.cache)
        over = self._quarantine.over(self._bound.keys(), present, self._clock.monotonic())
        gone = set()
        for name in over:
            try:
                await self._client.get(Key(NODES, "", name))
            except NotFound:
                gone.add(name)
        return frozenset(gone)

    async def _remove(self, removals: Iterable[Removal]) -> None:
        """Remove Pods in batches."""
        remaining = iter(removals)
        while batch := list(islice(remaining, _BATCH)):
            await self._remove_batch(batch)

    async def _remove_batch(self, removals: Sequence[Removal]) -> None:
        """Mark Pods as failed where required, then delete them."""
        marked = [removal for removal in removals if removal.mark_failed]
        now = self._clock.now()
        patches = [
            Patch(removal.key, failed_status(removal, now), "strategic", "status")
            for removal in marked
        ]
        unmarked = set()
        for removal, result in zip(marked, await self._client.write_many(patches), strict=True):
            if isinstance(result, ApiError) and not isinstance(result, NotFound):
                unmarked.add(removal.key)
                self._log_failure(removal, result)
        # A Pod that could not be marked as failed is left for the next sweep: its end must be
        # visible to watchers.
        doomed = [removal for removal in removals if removal.key not in unmarked]
        deletes = [Delete(removal.key, grace_seconds=0, uid=removal.uid) for removal in doomed]
        removed: Counter[tuple[str, RemovalReason]] = Counter()
        for removal, result in zip(doomed, await self._client.write_many(deletes), strict=True):
            if isinstance(result, ApiError) and not isinstance(result, NotFound):
                self._log_failure(removal, result)
            else:
                removed[removal.key.namespace, removal.reason] += 1
        for (namespace, reason), count in removed.items():
            self._metrics.pods_removed.add(count, namespace=namespace, reason=reason)

    def _log_failure(self, removal: Removal, error: ApiError) -> None:
        log.warning("cannot delete %s (%s): %s", removal.key, removal.reason, error)
        self._metrics.pod_removal_errors.inc(namespace=removal.key.namespace, reason=removal.reason)
