"""CustomResourceDefinition controller: accept definitions and have their kinds served.

It also deletes the objects of deleted definitions. It is part of the API server, as upstream, and
runs regardless of the selected controllers.
"""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from onejob.client.base import Client, Delete, Patch, Selection, Written
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.shared import AnyObject
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.meta import Key
from onejob.planning.custom_resources import (
    is_true,
    names_in_use,
    planned_status,
    with_condition,
)
from onejob.wire.errors import ApiError, Conflict, NotFound
from onejob.wire.kinds import KINDS, MEASURED_KINDS

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_PAGE = 500
_LOOK_AGAIN_SECONDS = 1.0
_BUILT_IN = frozenset(kind.resource for kind in (*KINDS, *MEASURED_KINDS))

_read_any = msgspec.json.Decoder(AnyObject).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

log = logging.getLogger(__name__)


class Installer(Protocol):
    """Registry of served custom kinds: `onejob.api.crd.serving.Definitions`."""

    def install(self, doc: dict[str, Any], *, terminating: bool = False) -> None:
        """Serve the kinds of a definition. Raises ValueError if a name is taken.

        `terminating`: objects can be read and deleted, but not created.
        """

    def remove(self, name: str) -> None:
        """Stop serving the kinds of a definition; one that is not served is ignored."""


class DefinitionController:
    """Controller of definitions, with an informer of its own that caches none of them."""

    def __init__(self, client: Client, installer: "InstallerSource", *, clock: Clock) -> None:
        self._client = client
        self._installer = installer
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue()
        self.informer: Informer[AnyObject] = Informer(
            client,
            Selection(DEFINITIONS),
            _read_any,
            lambda view: Key(DEFINITIONS, "", view.metadata.name),
            keep=lambda view: False,
        )
        self.informer.on_change(self._changed)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle

    async def run(self) -> None:
        """Process the queue until cancelled. The caller also runs `informer`."""
        await work(self._queue, self.sync, workers=1, name="customresourcedefinition")

    def _changed(self, deltas: Sequence[Delta[AnyObject]]) -> None:
        """Queue the changed definitions."""
        for delta in deltas:
            self._queue.add(delta.key.name)

    async def sync(self, name: str) -> float | None:
        """Update the status of a definition and serve its kinds, or delete its objects if it is
        being deleted.

        Returns the seconds after which to sync again, or None.
        """
        try:
            doc = _decode(await self._client.get(Key(DEFINITIONS, "", name)))
        except NotFound:
            self._installer().remove(name)
            await self._reconsider_others(name)
            return None
        if "deletionTimestamp" in doc["metadata"]:
            return await self._delete_instances(doc)
        others = [other for other in await self._all() if other["metadata"]["name"] != name]
        in_use = names_in_use(doc["spec"]["group"], others, (*KINDS, *MEASURED_KINDS))
        status = planned_status(doc, in_use, self._clock.now())
        if is_true({"status": status}, "Established"):
            # Serve the kind before its status reports it as established.
            self._install({**doc, "status": status})
        if status != doc.get("status"):
            await self._write_status(doc, status)
        return None

    def _install(self, doc: dict[str, Any], *, terminating: bool = False) -> None:
        """Serve the kinds of a definition; an error is logged."""
        try:
            self._installer().install(doc, terminating=terminating)
        except ValueError as error:
            # Its names were free a moment ago, so this is a bug; it must not affect the other
            # definitions.
            log.error("cannot serve %s: %s", doc["metadata"]["name"], error)

    async def _write_status(self, doc: dict[str, Any], status: dict[str, Any]) -> None:
        """Write the status; a definition that was deleted or replaced is left alone."""
        metadata = {"uid": doc["metadata"]["uid"]}
        patch = msgspec.json.encode({"metadata": metadata, "status": status})
        key = Key(DEFINITIONS, "", doc["metadata"]["name"])
        try:
            await self._client.write(Patch(key, patch, "merge", "status"))
        except (NotFound, Conflict):
            # Deleted or replaced meanwhile: a change event follows.
            return

    async def _all(self) -> list[dict[str, Any]]:
        """Return all definitions."""
        page = await self._client.list(Selection(DEFINITIONS))
        return [_decode(document) for document in page.documents]

    async def _reconsider_others(self, name: str) -> None:
        """Queue the other definitions of the group: names that were taken may be free now."""
        group = name.partition(".")[2]
        for other in await self._all():
            if other["spec"]["group"] == group:
                self._queue.add(other["metadata"]["name"])

    # --- deletion -------------------------------------------------------------------------

    async def _delete_instances(self, doc: dict[str, Any]) -> float | None:
        """Delete the custom resources of a definition that is being deleted, then release it.

        Returns the seconds after which to sync again while some are left, else None.
        """
        name = doc["metadata"]["name"]
        if _CLEANUP not in doc["metadata"].get("finalizers", ()):
            return None
        if is_true(doc, "Established"):
            self._install(doc, terminating=True)
        # A definition with the name of a built-in resource has no objects of its own.
        left = 0 if name in _BUILT_IN else await self._delete_objects(name)
        reason, text = (
            ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
            if left
            else ("InstanceDeletionCompleted", "removed all instances")
        )
        status = doc.get("status") or {}
        conditions = status.get("conditions") or ()
        state = "True" if left else "False"
        now = self._clock.now()
        changed = with_condition(conditions, "Terminating", state, reason, text, now)
        if changed != list(conditions):
            await self._write_status(doc, {**status, "conditions": changed})
        if left:
            return _LOOK_AGAIN_SECONDS
        await self._release(doc)
        return None

    async def _delete_objects(self, name: str) -> int:
        """Delete all objects; return the number that still exist."""
        left = 0
        token = ""
        while True:
            try:
                page = await self._client.list(Selection(name), limit=_PAGE, token=token)
            except NotFound:
                return 0
            found = [_read_any(document).metadata for document in page.documents]
            ops = [
                Delete(Key(name, meta.namespace, meta.name), "Background", uid=meta.uid)
                for meta in found
                if not meta.deleting
            ]
            left += sum(meta.deleting for meta in found)
            for result in await self._client.write_many(ops):
                match result:
                    case NotFound():
                        continue
                    case ApiError():
                        log.warning("%s: %s", name, result)
                        left += 1
                    case Written(document=document):
                        left += _read_any(document).metadata.deleting
            token = page.continue_token
            if not token:
                return left

    async def _release(self, doc: dict[str, Any]) -> None:
        """Remove our finalizer from a definition, so that it is deleted."""
        key = Key(DEFINITIONS, "", doc["metadata"]["name"])
        try:
            newest = _decode(await self._client.get(key))
            kept = [name for name in newest["metadata"].get("finalizers", ()) if name != _CLEANUP]
            metadata = {
                "uid": doc["metadata"]["uid"],
                "resourceVersion": newest["metadata"]["resourceVersion"],
                "finalizers": kept,
            }
            patch = msgspec.json.encode({"metadata": metadata})
            await self._client.write(Patch(key, patch, "merge"))
        except NotFound:
            return


class InstallerSource(Protocol):
    """Lazy factory of the installer.

    It is called for the first definition: most servers never need one.
    """

    def __call__(self) -> Installer: ...
