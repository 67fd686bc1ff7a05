"""Controller of claims: binds them to volumes, provisions and reclaims volumes, protects both.

It combines Kubernetes' persistentvolume-binder, its protection controllers of claims and volumes,
and the controller of ephemeral volumes, because all of them follow the same objects.

Crash safety: the folder of a volume is made before the volume is written, and deleted before the
volume is. A crash in between leaves an empty folder, which the next attempt uses or `sweep`
removes, or a volume whose deletion is repeated.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.client.base import Create, Delete, Patch, Selection
from onejob.client.events import about
from onejob.controllers.claims.default_class import create_default_class
from onejob.controllers.claims.provisioner import Provisioner
from onejob.controllers.context import ControllerContext
from onejob.informers.cache import Delta
from onejob.informers.claim_caches import ClaimCaches, classes_by_name, pods_using
from onejob.informers.workqueue import WorkQueue, work
from onejob.metrics import QueueName
from onejob.objects.claims import (
    CLAIMS,
    VOLUMES,
    Claim,
    ClaimPod,
    PersistentVolume,
    StorageClass,
    read_claim,
    read_claim_pod,
    read_volume,
)
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import claim_name
from onejob.planning.claims.claim import (
    AssignClass,
    BindTo,
    Lose,
    Provision,
    Wait,
    capacity_of,
    decide_claim,
    request_of,
)
from onejob.planning.claims.documents import (
    claim_reference,
    ephemeral_claim,
    volume_document,
)
from onejob.planning.claims.names import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLAIM_PROTECTION,
    PROVISIONER,
    STORAGE_PROVISIONER,
    VOLUME_PROTECTION,
    volume_name,
)
from onejob.planning.claims.scheduling import is_made_for, not_made_for
from onejob.planning.claims.volume import decide_volume, is_provisioned_here
from onejob.wire.errors import AlreadyExists, NotFound

_WORKERS: Final = 4
#: Seconds between attempts to provision a claim that could not be provisioned: its reason, such as
#: a full disk, ends without any change that the controller sees.
_RETRY_SECONDS: Final = 15.0


class ClaimController:
    """Controller of claims and volumes.

    Without a provisioner (a server without a node), claims are bound only to volumes that others
    create.
    """

    def __init__(
        self, context: ControllerContext, caches: ClaimCaches, provisioner: Provisioner | None
    ) -> None:
        self._client = context.client
        self._recorder = context.recorder
        self._caches = caches
        self._provisioner = provisioner
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=0.05, longest_delay=60.0)
        #: Last Event of each pending claim, which is not repeated.
        self._told: dict[Key, tuple[str, str]] = {}
        #: One at a time, so that each claim sees what the others were promised.
        self._provisioning = asyncio.Lock()
        caches.claims.on_change(self._claims_changed)
        caches.volumes.on_change(self._volumes_changed)
        caches.classes.on_change(self._classes_changed)
        caches.pods.on_change(self._pods_changed)

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        return {"claims": self._queue}

    def note(self, claim: Key) -> str:
        """Return why a claim is pending; "" if that is not known."""
        return self._told.get(claim, ("", ""))[1]

    async def run(self) -> None:
        """Sync claims and volumes until cancelled."""
        await self._caches.synced()
        if self._provisioner is not None:
            await create_default_class(self._client)
            names = frozenset(each.metadata.name for each in self._caches.volumes.cache)
            await self._provisioner.sweep(names)
        # The caches may have been filled before this controller was created.
        for informer in (self._caches.claims, self._caches.volumes, self._caches.pods):
            for view in informer.cache:
                self._queue.add(view.key)
        await work(self._queue, self.sync, workers=_WORKERS, name="claims")

    # --- what is affected by a change ---------------------------------------------------------

    def _claims_changed(self, deltas: Sequence[Delta[Claim]]) -> None:
        for delta in deltas:
            self._queue.add(delta.key)
            claim = delta.new or delta.old
            if claim is not None and claim.spec.volume_name:
                self._queue.add(Key(VOLUMES, "", claim.spec.volume_name))
            if delta.new is None:
                self._told.pop(delta.key, None)
                namespace, name = delta.key.namespace, delta.key.name
                for volume in self._caches.volumes.cache.find("claim", (namespace, name)):
                    self._queue.add(volume.key)

    def _volumes_changed(self, deltas: Sequence[Delta[PersistentVolume]]) -> None:
        for delta in deltas:
            self._queue.add(delta.key)
            volume = delta.new or delta.old
            if volume is not None and volume.spec.claim_ref is not None:
                self._queue.add(volume.spec.claim_ref.key)
            else:
                self._queue_pending()

    def _classes_changed(self, deltas: Sequence[Delta[StorageClass]]) -> None:
        self._queue_pending()

    def _queue_pending(self) -> None:
        for claim in self._caches.claims.cache:
            if BIND_COMPLETED not in claim.metadata.annotations:
                self._queue.add(claim.key)

    def _pods_changed(self, deltas: Sequence[Delta[ClaimPod]]) -> None:
        for delta in deltas:
            pod = delta.new or delta.old
            if pod is None or not pod.claims:
                continue
            for key in pod.claims:
                claim = self._caches.claims.cache.get(key)
                if claim is not None and claim.metadata.deleting:
                    self._queue.add(key)
            if delta.new is not None and any(volume.ephemeral for volume in pod.spec.volumes):
                self._queue.add(delta.key)

    # --- syncs --------------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Take the next step of a claim, a volume or a Pod; return seconds until the next one."""
        match key.resource:
            case "persistentvolumeclaims":
                return await self._sync_claim(key)
            case "persistentvolumes":
                return await self._sync_volume(key)
            case _:
                await self._sync_pod(key)
        return None

    async def _sync_claim(self, key: Key) -> float | None:
        # Read afresh: the cache may lag behind this controller's own writes.
        try:
            claim = read_claim(await self._client.get(key))
        except NotFound:
            return None
        if claim.metadata.deleting:
            await self._release_claim(claim)
            return None
        if CLAIM_PROTECTION not in claim.metadata.finalizers:
            await self._set_finalizers(
                key, claim.metadata.uid, (*claim.metadata.finalizers, CLAIM_PROTECTION)
            )
        volumes = {each.metadata.name: each for each in self._caches.volumes.cache}
        if claim.spec.volume_name and claim.spec.volume_name not in volumes:
            # A volume that the cache does not contain yet is not lost.
            found = await self._find_volume(claim.spec.volume_name)
            volumes |= {} if found is None else {found.metadata.name: found}
        match decide_claim(claim, volumes, classes_by_name(self._caches)):
            case AssignClass(name):
                await self._patch(key, claim.metadata.uid, {"spec": {"storageClassName": name}})
            case BindTo(volume):
                await self._bind(claim, volume)
            case Provision(storage_class):
                return await self._provision(claim, storage_class)
            case Lose(message, reason):
                await self._lose(claim, reason, message)
            case Wait(reason, message, kind):
                self._tell(claim, kind, reason, message)
        return None

    async def _find_volume(self, name: str) -> PersistentVolume | None:
        try:
            return read_volume(await self._client.get(Key(VOLUMES, "", name)))
        except NotFound:
            return None

    async def _release_claim(self, claim: Claim) -> None:
        """Remove the protection of a claim that is being deleted, once no Pod uses it."""
        finalizers = claim.metadata.finalizers
        if CLAIM_PROTECTION not in finalizers:
            return
        namespace, name = claim.metadata.namespace, claim.metadata.name
        if any(_protects(pod, claim) for pod in pods_using(self._caches, namespace, name)):
            return
        # The cache may lack a Pod that was created just before the claim was deleted.
        listed = (await self._client.list(Selection(PODS, namespace))).documents
        if any(_protects(read_claim_pod(document), claim) for document in listed):
            return
        kept = [name for name in finalizers if name != CLAIM_PROTECTION]
        await self._set_finalizers(claim.key, claim.metadata.uid, kept)

    async def _provision(self, claim: Claim, storage_class: StorageClass) -> float | None:
        if self._provisioner is None:
            text = "this server has no node, whose disk would hold the volume"
            self._tell(claim, "Warning", "ProvisioningFailed", text)
            return None
        name = volume_name(claim.metadata.uid)
        async with self._provisioning:
            existing = await self._find_volume(name)
            if existing is None:
                size, promised = request_of(claim), self._promised()
                if problem := await self._provisioner.make(name, size, promised):
                    self._tell(claim, "Warning", "ProvisioningFailed", problem)
                    return _RETRY_SECONDS
                path = self._provisioner.path_of(name)
                document = volume_document(claim, storage_class, path)
                created = Create(VOLUMES, "", msgspec.json.encode(document))
                written = await self._client.write(created)
                existing = read_volume(written.document)
                text = f"Successfully provisioned volume {name}"
                self._tell(claim, "Normal", "ProvisioningSucceeded", text)
                # Otherwise the next claim would not see this promise.
                await self._caches.volumes.reached(written.revision)
        await self._bind(claim, existing)
        return None

    def _promised(self) -> int:
        """Return the capacity of all volumes that were provisioned here, in bytes."""
        return sum(
            capacity_of(volume)
            for volume in self._caches.volumes.cache
            if is_provisioned_here(volume)
        )

    async def _bind(self, claim: Claim, volume: PersistentVolume) -> None:
        """Bind claim and volume to each other, as far as they are not."""
        reference = volume.spec.claim_ref
        if reference is None or reference.uid != claim.metadata.uid:
            body: dict[str, Any] = {"spec": {"claimRef": claim_reference(claim)}}
            if reference is None:
                body["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
            # The revision, so that of two claims only one gets the volume.
            own = volume.metadata
            await self._patch(volume.key, own.uid, body, revision=own.resource_version)
        annotations = claim.metadata.annotations
        name = volume.metadata.name
        if claim.spec.volume_name != name or BIND_COMPLETED not in annotations:
            added = {BIND_COMPLETED: "yes"}
            if not claim.spec.volume_name:
                added[BOUND_BY_CONTROLLER] = "yes"
            if is_provisioned_here(volume):
                added[STORAGE_PROVISIONER] = PROVISIONER
            body = {"metadata": {"annotations": added}, "spec": {"volumeName": name}}
            await self._patch(claim.key, claim.metadata.uid, body)
        status = claim.status
        modes, capacity = volume.spec.access_modes, volume.spec.capacity
        if (status.phase, status.access_modes, status.capacity) != ("Bound", modes, capacity):
            bound = {"phase": "Bound", "accessModes": list(modes), "capacity": capacity}
            await self._patch(claim.key, claim.metadata.uid, {"status": bound}, "status")
        self._told.pop(claim.key, None)

    async def _lose(self, claim: Claim, reason: str, message: str) -> None:
        if claim.status.phase == "Lost":
            return
        await self._patch(claim.key, claim.metadata.uid, {"status": {"phase": "Lost"}}, "status")
        self._tell(claim, "Warning", reason, message)

    async def _sync_volume(self, key: Key) -> float | None:
        try:
            volume = read_volume(await self._client.get(key))
        except NotFound:
            return None
        own = volume.metadata
        if not own.deleting and VOLUME_PROTECTION not in own.finalizers:
            await self._set_finalizers(key, own.uid, (*own.finalizers, VOLUME_PROTECTION))
        step = decide_volume(volume, await self._claim_of(volume))
        if volume.status.phase != step.phase or volume.status.message != step.message:
            status = {"phase": step.phase, "message": step.message or None}
            await self._patch(key, own.uid, {"status": status}, "status")
        if step.phase == "Failed" and volume.status.phase != "Failed":
            self._record(volume, "VolumeFailedDelete", step.message)
        if step.deletes:
            return await self._delete_volume(volume)
        if own.deleting and step.phase != "Bound":
            await self._unprotect_volume(volume)
        return None

    async def _claim_of(self, volume: PersistentVolume) -> Claim | None:
        reference = volume.spec.claim_ref
        if reference is None:
            return None
        try:
            return read_claim(await self._client.get(reference.key))
        except NotFound:
            return None

    async def _delete_volume(self, volume: PersistentVolume) -> float | None:
        """Delete the folder of a released volume, then the volume."""
        if self._provisioner is None:
            return None
        if problem := await self._provisioner.delete(volume.metadata.name):
            self._record(volume, "VolumeFailedDelete", problem)
            return _RETRY_SECONDS
        if not volume.metadata.deleting:
            await self._client.write(Delete(volume.key, uid=volume.metadata.uid))
        await self._unprotect_volume(volume)
        # The room may suffice for a claim that waits.
        self._queue_pending()
        return None

    async def _unprotect_volume(self, volume: PersistentVolume) -> None:
        kept = [name for name in volume.metadata.finalizers if name != VOLUME_PROTECTION]
        try:
            await self._set_finalizers(volume.key, volume.metadata.uid, kept)
        except NotFound:
            return

    async def _sync_pod(self, key: Key) -> None:
        """Create the claims of a Pod's ephemeral volumes."""
        pod = self._caches.pods.cache.get(key)
        if pod is None or pod.metadata.deleting or pod.terminal:
            return
        missing = {}
        for volume, claim_key in _ephemeral(pod):
            claim = self._caches.claims.cache.get(claim_key)
            if claim is None:
                missing[volume] = claim_key
            elif not is_made_for(claim, pod.metadata):
                self._recorder.record(
                    about("v1", "Pod", pod.metadata),
                    "Warning",
                    "FailedBinding",
                    not_made_for(claim, pod.metadata),
                )
        if not missing:
            return
        try:
            document = msgspec.json.decode(await self._client.get(key))
        except NotFound:
            return
        if document["metadata"]["uid"] != pod.metadata.uid:
            return
        for volume in document["spec"]["volumes"]:
            if volume["name"] in missing:
                template = volume["ephemeral"]["volumeClaimTemplate"]
                body = ephemeral_claim(pod.metadata, volume["name"], template)
                create = Create(CLAIMS, pod.metadata.namespace, msgspec.json.encode(body))
                try:
                    await self._client.write(create)
                except AlreadyExists:
                    continue

    # --- writes -------------------------------------------------------------------------------

    async def _set_finalizers(self, key: Key, uid: str, finalizers: Sequence[str]) -> None:
        await self._patch(key, uid, {"metadata": {"finalizers": list(finalizers) or None}})

    async def _patch(
        self, key: Key, uid: str, body: dict[str, Any], subresource: str = "", *, revision: str = ""
    ) -> None:
        metadata = {**body.get("metadata", {}), "uid": uid}
        if revision:
            metadata["resourceVersion"] = revision
        encoded = msgspec.json.encode({**body, "metadata": metadata})
        await self._client.write(Patch(key, encoded, "merge", subresource))

    def _tell(self, claim: Claim, kind: str, reason: str, message: str) -> None:
        """Record an Event about a claim, unless it was the last one."""
        if self._told.get(claim.key) == (reason, message):
            return
        self._told[claim.key] = (reason, message)
        what = about("v1", "PersistentVolumeClaim", claim.metadata)
        self._recorder.record(what, kind, reason, message)

    def _record(self, volume: PersistentVolume, reason: str, message: str) -> None:
        what = about("v1", "PersistentVolume", volume.metadata)
        self._recorder.record(what, "Warning", reason, message)


def _ephemeral(pod: ClaimPod) -> Sequence[tuple[str, Key]]:
    """Return name and claim of each ephemeral volume."""
    namespace = pod.metadata.namespace
    return [
        (volume.name, Key(CLAIMS, namespace, f"{pod.metadata.name}-{volume.name}"))
        for volume in pod.spec.volumes
        if volume.ephemeral is not None
    ]


def _protects(pod: ClaimPod, claim: Claim) -> bool:
    """Return whether a Pod keeps the claim from being removed.

    As upstream, an ended Pod does until it is deleted; a Pod without a node does not, because it
    cannot start any more.
    """
    if not pod.spec.node_name:
        return False
    is_shut_down = pod.metadata.deleting and pod.metadata.deletion_grace_period_seconds == 0
    for volume in pod.spec.volumes:
        if claim_name(pod.metadata.name, volume) != claim.metadata.name:
            continue
        if volume.persistent_volume_claim is not None:
            return True
        if not is_shut_down and is_made_for(claim, pod.metadata):
            return True
    return False
