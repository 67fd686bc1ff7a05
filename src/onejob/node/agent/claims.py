"""Pods that wait for their PersistentVolumeClaims, for the scheduler of a node."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from onejob.client.base import Client, Patch
from onejob.informers.cache import Delta
from onejob.informers.claim_caches import ClaimCaches, classes_by_name, pods_using
from onejob.objects.claims import ClaimPod
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod
from onejob.planning.claims.names import SELECTED_NODE
from onejob.planning.claims.scheduling import claims_of, hold
from onejob.wire.errors import ApiError

log = logging.getLogger(__name__)

_STARTING: Final = "0/1 nodes are available: the state of the Pod's claims is not known yet."


class ClaimHolds:
    """Which waiting Pods their claims hold back."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        caches: ClaimCaches,
        note: Callable[[Key], str] = lambda claim: "",
    ) -> None:
        """`note` returns why a claim is pending; "" if that is not known."""
        self._note = note
        self._client = client
        self._node_name = node_name
        self._caches = caches
        caches.pods.on_change(self._pods_changed)
        caches.on_change(lambda: self._handler())
        self._handler: Callable[[], None] = lambda: None
        #: Claims of Pods that are being bound to this node, by UID, until the cache has them.
        self._placed: dict[str, tuple[Key, ...]] = {}
        self._selecting: dict[Key, asyncio.Task[None]] = {}

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call `handler` when Pods may no longer be held back."""
        self._handler = handler

    def hold(self, pod: NodePod) -> str:
        """Return why a Pod may not be bound yet; "" if it may.

        Claims that wait for a Pod are bound for this one.
        """
        caches = self._caches
        if not caches.is_synced:
            return _STARTING
        self._placed.pop(pod.uid, None)
        volumes, meta = pod.spec.claim_volumes, pod.metadata
        in_use = frozenset(key for key in claims_of(meta, volumes) if self._is_used(key, pod.uid))
        found = hold(
            meta, volumes, caches.claims.cache.get, classes_by_name(caches), in_use, self._note
        )
        for key in found.selects:
            self._select(key)
        return found.reason

    def placed(self, pod: NodePod) -> None:
        """Account for the claims of a Pod that is about to be bound to the node."""
        self._placed[pod.uid] = claims_of(pod.metadata, pod.spec.claim_volumes)

    def close(self) -> None:
        for task in self._selecting.values():
            task.cancel()

    def _pods_changed(self, deltas: Sequence[Delta[ClaimPod]]) -> None:
        for delta in deltas:
            pod = delta.new or delta.old
            if pod is not None and (delta.new is None or pod.spec.node_name):
                self._placed.pop(pod.metadata.uid, None)

    def _is_used(self, claim: Key, by_other_than: str) -> bool:
        if any(claim in claims for claims in self._placed.values()):
            return True
        return any(
            pod.spec.node_name == self._node_name and not pod.terminal
            for pod in pods_using(self._caches, claim.namespace, claim.name)
            if pod.metadata.uid != by_other_than
        )

    def _select(self, claim: Key) -> None:
        """Let the controller bind a claim that waits for a Pod, as upstream's scheduler does."""
        if claim not in self._selecting:
            task = self._selecting[claim] = asyncio.create_task(self._write_selection(claim))
            task.add_done_callback(lambda _: self._selecting.pop(claim, None))

    async def _write_selection(self, claim: Key) -> None:
        body = {"metadata": {"annotations": {SELECTED_NODE: self._node_name}}}
        try:
            await self._client.write(Patch(claim, msgspec.json.encode(body), "merge"))
        except ApiError as error:
            # The next change of the claim repeats it.
            log.warning("%s: cannot select the node: %s", claim, error)
