"""Nodes under maintenance, for the Job controller (JobPodReplacementOnNodeMaintenance).

With `podReplacementPolicy: Failed` a Pod that is being deleted is replaced only once it has ended.
On a node under maintenance that may never be reported (kubernetes/enhancements#6262), so such a Pod
is replaced at once. It is neither deleted nor counted before it ends.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from onejob.client.base import Client, Selection
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import JOBS, NODES, Condition, Key, Meta, View, condition_is_true
from onejob.objects.pod import Pod

#: Condition that an administrator sets on a node (upstream's KEP-5683).
MAINTENANCE_CONDITION: Final = "MaintenanceInProgress"


class _NodeStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _Node(View, frozen=True):
    metadata: Meta = Meta()
    status: _NodeStatus = _NodeStatus()


class NodeMaintenance:
    """Names of the nodes under maintenance.

    When a node enters or leaves maintenance, the Jobs with a Pod that ends there are passed to the
    handler of `on_change`.
    """

    def __init__(self, client: Client, pods: Informer[Pod]) -> None:
        self._pods = pods
        self._nodes: Informer[_Node] = Informer(
            client,
            Selection(NODES, ""),
            msgspec.json.Decoder(_Node).decode,
            lambda node: Key(NODES, "", node.metadata.name),
        )
        self._nodes.on_change(self._nodes_changed)
        self._handler: Callable[[Key], None] = lambda job: None
        self.nodes: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Watch Nodes until cancelled."""
        await self._nodes.run()

    def on_change(self, handler: Callable[[Key], None]) -> None:
        self._handler = handler

    def _nodes_changed(self, deltas: Sequence[Delta[_Node]]) -> None:
        """Update the set of Nodes under maintenance."""
        before = self.nodes
        self.nodes = frozenset(
            node.metadata.name
            for node in self._nodes.cache
            if condition_is_true(node.status.conditions, MAINTENANCE_CONDITION)
        )
        changed = before ^ self.nodes
        if not changed:
            return
        for pod in self._pods.cache:
            owner = pod.metadata.controller_ref
            if pod.terminating and pod.spec.node_name in changed and owner is not None:
                self._handler(Key(JOBS, pod.metadata.namespace, owner.name))
