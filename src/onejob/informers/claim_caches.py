"""Caches of claims, volumes, classes and the Pods that use claims; started when first needed."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from onejob.client.base import Client, Selection
from onejob.informers.cache import Delta, IndexEntry
from onejob.informers.informer import Informer
from onejob.objects.claims import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    Claim,
    ClaimPod,
    PersistentVolume,
    StorageClass,
    read_claim,
    read_claim_pod,
    read_class,
    read_volume,
)
from onejob.objects.meta import PODS


class ClaimCaches:
    """Informers shared by the controller of claims and the scheduler of the node.

    Created for the first claim, or the first Pod that uses one: other servers have none of them.
    """

    def __init__(self, client: Client) -> None:
        self.claims: Informer[Claim] = Informer(
            client, Selection(CLAIMS), read_claim, lambda claim: claim.key
        )
        self.volumes: Informer[PersistentVolume] = Informer(
            client,
            Selection(VOLUMES),
            read_volume,
            lambda volume: volume.key,
            index_entries=_index_volume,
        )
        self.classes: Informer[StorageClass] = Informer(
            client, Selection(CLASSES), read_class, lambda each: each.key
        )
        #: All Pods that use claims; also ended ones, which protect their claims until deleted.
        self.pods: Informer[ClaimPod] = Informer(
            client,
            Selection(PODS),
            read_claim_pod,
            lambda pod: pod.key,
            keep=lambda pod: bool(pod.claims),
            index_entries=_index_pod,
        )
        self._informers: tuple[Informer[Any], ...] = (
            self.claims,
            self.volumes,
            self.classes,
            self.pods,
        )
        self._synced = asyncio.Event()
        self._handlers: list[Callable[[], None]] = []
        for informer in self._informers:
            informer.on_change(self._changed)

    @property
    def is_synced(self) -> bool:
        """Return whether all caches are complete."""
        return self._synced.is_set()

    async def synced(self) -> None:
        await self._synced.wait()

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call `handler` once the caches are complete, and after each batch of changes."""
        self._handlers.append(handler)

    async def run(self) -> None:
        """Keep the caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            for informer in self._informers:
                await informer.synced()
            self._synced.set()
            self._notify()

    def _changed(self, deltas: Sequence[Delta[Any]]) -> None:
        if any(_concerns_claims(delta.new or delta.old) for delta in deltas):
            self._notify()

    def _notify(self) -> None:
        if self.is_synced:
            for handler in self._handlers:
                handler()


def _concerns_claims(view: Any) -> bool:
    return bool(view.claims) if isinstance(view, ClaimPod) else True


def classes_by_name(caches: ClaimCaches) -> dict[str, StorageClass]:
    return {each.metadata.name: each for each in caches.classes.cache}


def pods_using(caches: ClaimCaches, namespace: str, claim: str) -> Iterator[ClaimPod]:
    """Yield the Pods whose volumes refer to a claim."""
    yield from caches.pods.cache.find("claim", (namespace, claim))


def _index_pod(pod: ClaimPod) -> Sequence[IndexEntry]:
    return tuple(("claim", (key.namespace, key.name)) for key in set(pod.claims))


def _index_volume(volume: PersistentVolume) -> Sequence[IndexEntry]:
    reference = volume.spec.claim_ref
    return () if reference is None else (("claim", (reference.namespace, reference.name)),)
