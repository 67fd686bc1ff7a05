"""Stand-in Pods: local Pods that show the state of remote ones."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from onejob.client.base import Client, Create, Delete, Op, Patch, Selection, Written
from onejob.controllers.mirror.remote import Remote, Seen
from onejob.objects.meta import EVENTS, PODS, Key
from onejob.planning.mirror import names
from onejob.planning.mirror.stand_ins import local_event, stand_in, stand_in_status
from onejob.wire.errors import AlreadyExists, ApiError, NotFound

log = logging.getLogger(__name__)

Document = dict[str, Any]
_BATCH: Final = 200


@dataclass(slots=True)
class _Here:
    """State of one stand-in Pod."""

    uid: str
    remote_uid: str
    status: Document
    deleting: bool
    owned: bool
    #: Version of the remote Pod that the stand-in shows.
    shown: str = ""


@dataclass(slots=True)
class StandIns:
    """Stand-in Pods of one Job.

    They are listed once; after that their state follows from our own writes, until `forget` is
    called.
    """

    client: Client
    job: Document
    target: str
    _here: dict[str, _Here] = field(default_factory=dict)
    _read: bool = False

    def forget(self) -> None:
        """List the stand-ins again before the next use: they were changed by another client."""
        self._read = False

    async def orphaned(self) -> bool:
        """Return whether stand-ins have lost their owner.

        Then the Job is being deleted with its Pods kept.
        """
        self._read = False
        await self._load()
        return any(not here.owned for here in self._here.values())

    async def follow(self, remote: Remote, pods: Iterable[Seen], *, forward: bool) -> None:
        """Create, update and delete stand-ins to match the remote Pods.

        `forward`: whether the deletion of a stand-in by a user also deletes the remote Pod.
        """
        await self._load()
        there = {pod.metadata.name: pod for pod in pods}
        gone = [
            name for name, here in self._here.items() if not _is_same_pod(there.get(name), here)
        ]
        await self._remove(gone)
        await self._create([pod for name, pod in there.items() if name not in self._here])
        await self._update([pod for name, pod in there.items() if name in self._here])
        if forward:
            await self._forward_deletions(remote, there)

    async def remove_all(self) -> None:
        self._read = False
        await self._load()
        await self._remove(list(self._here))

    async def bring_events(self, remote: Remote, copy_uid: str) -> None:
        """Record the target's new Events on the local Job and stand-ins."""
        about_job = [(event, self.job) for event in remote.events_about(copy_uid)]
        about_pods = [
            (event, self._stand_in_document(name, here))
            for name, here in self._here.items()
            for event in remote.events_about(here.remote_uid)
        ]
        documents = [
            local_event(event, about, self.target) for event, about in (*about_job, *about_pods)
        ]
        namespace = self.job["metadata"]["namespace"]
        ops: list[Op] = [
            Create(EVENTS, namespace, msgspec.json.encode(document)) for document in documents
        ]
        again: list[Op] = []
        for document, result in zip(documents, await self._write(ops), strict=True):
            if isinstance(result, AlreadyExists):
                fields = ("count", "lastTimestamp", "message", "series")
                newer = {name: document[name] for name in fields if name in document}
                key = Key(EVENTS, namespace, document["metadata"]["name"])
                again.append(Patch(key, msgspec.json.encode(newer), "merge"))
            elif isinstance(result, ApiError):
                log.info("lost an event of %s: %s", self.target, result)
        await self._write(again)

    # --- the Pods ---------------------------------------------------------------------------

    async def _load(self) -> None:
        """Read the existing stand-ins, once."""
        if self._read:
            return
        metadata = self.job["metadata"]
        what = Selection(PODS, metadata["namespace"], f"{names.ORIGIN}={metadata['uid']}")
        before, self._here = self._here, {}
        token = ""
        while True:
            page = await self.client.list(what, limit=_BATCH, token=token)
            for document in page.documents:
                self._load_stand_in(msgspec.json.decode(document), before)
            token = page.continue_token
            if not token:
                break
        self._read = True

    def _load_stand_in(self, pod: Document, before: dict[str, _Here]) -> None:
        """Load an existing stand-in Pod."""
        metadata = pod["metadata"]
        if not names.target_of_node(pod.get("spec", {}).get("nodeName", "")):
            # The target is this very server: the Pod is a real one.
            return
        known = before.get(metadata["name"])
        same = known is not None and known.uid == metadata["uid"]
        self._here[metadata["name"]] = _Here(
            metadata["uid"],
            metadata.get("annotations", {}).get(names.REMOTE_UID, ""),
            pod.get("status", {}),
            "deletionTimestamp" in metadata,
            any(
                owner["uid"] == self.job["metadata"]["uid"]
                for owner in metadata.get("ownerReferences", ())
            ),
            known.shown if known is not None and same else "",
        )

    async def _remove(self, gone: list[str]) -> None:
        """Delete stand-ins whose remote Pods are gone. Raises ApiError."""
        ops: list[Op] = [
            Delete(self._key(name), grace_seconds=0, uid=self._here[name].uid) for name in gone
        ]
        for name, result in zip(gone, await self._write(ops), strict=True):
            if isinstance(result, ApiError) and not isinstance(result, NotFound):
                raise result
            self._here.pop(name, None)

    async def _create(self, pods: list[Seen]) -> None:
        """Create stand-ins; refusals are logged."""
        namespace = self.job["metadata"]["namespace"]
        ops: list[Op] = []
        for pod in pods:
            document = stand_in(self.job, pod.decoded(), self.target)
            ops.append(Create(PODS, namespace, msgspec.json.encode(document)))
        for pod, result in zip(pods, await self._write(ops), strict=True):
            if isinstance(result, Written):
                self._load_stand_in(msgspec.json.decode(result.document), {})
            elif isinstance(result, AlreadyExists):
                # A stand-in from before a crash is found by listing; a Pod of another owner is left
                # unchanged.
                log.info("cannot mirror pod %s: %s", pod.metadata.name, result)
                self._read = False
            else:
                log.warning("cannot mirror pod %s: %s", pod.metadata.name, result)

    async def _update(self, pods: list[Seen]) -> None:
        """Write the status of stand-ins whose remote Pods have changed; refusals are logged."""
        due: list[tuple[Seen, _Here, Document]] = []
        for pod in pods:
            here = self._here.get(pod.metadata.name)
            if here is None or here.shown == pod.metadata.resource_version:
                continue
            status = stand_in_status(pod.decoded())
            if all(here.status.get(name) == value for name, value in status.items()):
                here.shown = pod.metadata.resource_version
            else:
                due.append((pod, here, status))
        ops: list[Op] = []
        for pod, here, status in due:
            body = [
                {"op": "test", "path": "/metadata/uid", "value": here.uid},
                {"op": "add", "path": "/status", "value": status},
            ]
            key = self._key(pod.metadata.name)
            ops.append(Patch(key, msgspec.json.encode(body), "json", "status"))
        for (pod, here, status), result in zip(due, await self._write(ops), strict=True):
            if isinstance(result, Written):
                here.status, here.shown = status, pod.metadata.resource_version
            else:
                log.info("pod %s: %s", pod.metadata.name, result)
                self._read = False

    async def _forward_deletions(self, remote: Remote, there: dict[str, Seen]) -> None:
        """Delete the remote Pods of stand-ins that are being deleted."""
        for name, here in self._here.items():
            pod = there.get(name)
            if not here.deleting or pod is None or pod.metadata.deleting:
                continue
            try:
                await remote.write(Delete(Key(PODS, remote.namespace, name), uid=here.remote_uid))
            except ApiError as error:
                log.info("cannot delete pod %s on %s: %s", name, self.target, error)

    async def _write(self, ops: list[Op]) -> list[Written | ApiError]:
        """Execute the writes in batches and return their results."""
        results: list[Written | ApiError] = []
        for first in range(0, len(ops), _BATCH):
            results += await self.client.write_many(ops[first : first + _BATCH])
        return results

    def _key(self, name: str) -> Key:
        """Return the key of a stand-in."""
        return Key(PODS, self.job["metadata"]["namespace"], name)

    def _stand_in_document(self, name: str, here: _Here) -> Document:
        metadata = {
            "namespace": self.job["metadata"]["namespace"],
            "name": name,
            "uid": here.uid,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def _is_same_pod(pod: Seen | None, here: _Here) -> bool:
    return pod is not None and pod.metadata.uid == here.remote_uid
