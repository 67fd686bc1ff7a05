"""Namespace controller: create each namespace's default objects, and empty deleted namespaces."""

from collections.abc import Iterable, Sequence

import msgspec

from onejob.client.base import Client, Create, Delete, Patch, Replace, Selection, Written
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.shared import AnyObject, SharedInformers
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, NAMESPACES, PODS, Key, Meta
from onejob.planning.namespaces import (
    ROOT_CA,
    SERVICE_ACCOUNT,
    Remains,
    deletion_conditions,
    finalized,
    has_other_finalizers,
    root_ca_map,
    root_ca_repair,
    service_account,
)
from onejob.wire.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry

_ACCOUNTS = "serviceaccounts"
_CONFIG_MAPS = "configmaps"
_PAGE = 500
#: Seconds until the next check whether deleted objects are gone: Pods need time to stop. Without
#: progress, finalizers of other controllers delay the deletion, and checks are rarer.
_LOOK_AGAIN_SECONDS = 1.0
_STUCK_SECONDS = 5.0

#: Controllers' objects before the objects they create, so that nothing is created anew, and Pods
#: before objects that they may still use; Events last, because all deletions cause Events.
_FIRST = (CRONJOBS, JOBS, PODS)


def content_of(kinds: Iterable[Kind]) -> Sequence[str]:
    """Return the resources that a namespace may contain, in the order of deletion."""
    others = (
        kind.resource
        for kind in kinds
        if kind.namespaced
        and {"list", "delete"} <= set(kind.verbs)
        and not kind.stored_as
        and kind.resource not in (*_FIRST, EVENTS)
    )
    return *_FIRST, *others, EVENTS


_read_metadata = msgspec.json.Decoder(AnyObject).decode


class NamespaceController:
    """Controller of namespaces."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        *,
        clock: Clock,
        root_ca: str,
        kinds: KindRegistry,
        workers: int = 5,
    ) -> None:
        """`root_ca` is the PEM certificate with which Pods verify this API server."""
        self._client = client
        self._clock = clock
        self._kinds = kinds
        self._root_ca = root_ca
        self._workers = workers
        self._queue: WorkQueue[str] = WorkQueue()
        informers.metadata(NAMESPACES).on_change(self._namespaces_changed)
        informers.metadata(_ACCOUNTS).on_change(self._contents_changed)
        informers.metadata(_CONFIG_MAPS).on_change(self._contents_changed)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle

    async def run(self) -> None:
        """Process the queue until cancelled."""
        await work(self._queue, self.sync, workers=self._workers, name="namespace")

    def _namespaces_changed(self, deltas: Sequence[Delta[AnyObject]]) -> None:
        for delta in deltas:
            # Ignores our own status writes.
            if delta.new is not None and _stage(delta.old) != _stage(delta.new):
                self._queue.add(delta.key.name)

    def _contents_changed(self, deltas: Sequence[Delta[AnyObject]]) -> None:
        for delta in deltas:
            if delta.key.name in (SERVICE_ACCOUNT, ROOT_CA) and delta.old is not None:
                self._queue.add(delta.key.namespace)

    async def sync(self, name: str) -> float | None:
        """Create the contents of a namespace, or delete them if it is being deleted.

        Returns the seconds after which to sync again, or None.
        """
        try:
            document = await self._client.get(Key(NAMESPACES, "", name))
        except NotFound:
            return None
        if not _read_metadata(document).metadata.deleting:
            await self._create_contents(name)
            return None
        remains = await self._empty(name)
        reported = await self._report_remains(document, remains)
        if not remains:
            await self._finalize(name, document)
            return None
        return _LOOK_AGAIN_SECONDS if reported else _STUCK_SECONDS

    # --- living ---------------------------------------------------------------------------

    async def _create_contents(self, namespace: str) -> None:
        """Create the default objects of a namespace, and repair its root CA if that has changed.
        Raises Retry."""
        results = await self._client.write_many(
            [
                Create(resource, namespace, document, replaces_damaged=True)
                for resource, document in (
                    (_ACCOUNTS, service_account(namespace)),
                    (_CONFIG_MAPS, root_ca_map(namespace, self._root_ca)),
                )
            ]
        )
        for result in results:
            # Forbidden: the deletion of the namespace has begun in the meantime.
            if isinstance(result, ApiError) and not isinstance(
                result, (AlreadyExists, Forbidden, NotFound)
            ):
                raise Retry(f"cannot create the contents of {namespace}: {result}")
        if isinstance(results[1], AlreadyExists):
            await self._repair_root_ca(Key(_CONFIG_MAPS, namespace, ROOT_CA))

    async def _repair_root_ca(self, key: Key) -> None:
        try:
            repair = root_ca_repair(await self._client.get(key), self._root_ca)
            if repair is not None:
                await self._client.write(Patch(key, repair, "json"))
        except NotFound:
            return

    # --- dying ----------------------------------------------------------------------------

    async def _empty(self, namespace: str) -> Remains:
        """Delete all objects in the namespace; return the remaining ones.

        While there are Pods, objects that they may still use are skipped. The result includes
        objects that are only waiting to stop.
        """
        remains = Remains()
        for resource in content_of(self._kinds.kinds):
            token = ""
            while True:
                what = Selection(resource, namespace)
                try:
                    page = await self._client.list(what, limit=_PAGE, token=token)
                except NotFound:
                    # The kind is no longer served.
                    break
                found = [_read_metadata(document).metadata for document in page.documents]
                await self._delete(resource, found, remains)
                token = page.continue_token
                if not token:
                    break
            if resource == PODS and remains.objects[PODS]:
                break
        return remains

    async def _delete(self, resource: str, found: Sequence[Meta], remains: Remains) -> None:
        """Delete objects of one kind; add those that still exist to `remains`."""
        for meta in found:
            if meta.deleting:
                remains.add(resource, meta.finalizers)
        living = [meta for meta in found if not meta.deleting]
        ops = [
            Delete(Key(resource, meta.namespace, meta.name), "Background", uid=meta.uid)
            for meta in living
        ]
        for meta, result in zip(living, await self._client.write_many(ops), strict=True):
            match result:
                case NotFound():
                    continue
                case Conflict():
                    # The name belongs to a new object, which is deleted next time.
                    remains.add(resource, ())
                case ApiError():
                    remains.add(resource, meta.finalizers)
                    remains.failures.append(str(result))
                case Written(document=document):
                    left = _read_metadata(document).metadata
                    if left.deleting:
                        remains.add(resource, left.finalizers)

    async def _report_remains(self, document: bytes, remains: Remains) -> bool:
        """Write conditions that report why the namespace remains.

        Return False if nothing changed.
        """
        if not remains and not has_other_finalizers(document):
            return False
        patch = deletion_conditions(document, remains, self._clock.now())
        if patch is None:
            return False
        try:
            name = _read_metadata(document).metadata.name
            await self._client.write(Patch(Key(NAMESPACES, "", name), patch, "merge", "status"))
        except NotFound:
            return False
        return True

    async def _finalize(self, name: str, document: bytes) -> None:
        """Remove the finalizer of an empty namespace."""
        try:
            await self._client.write(
                Replace(Key(NAMESPACES, "", name), finalized(document), "finalize")
            )
        except NotFound:
            return


def _stage(namespace: AnyObject | None) -> object:
    """Return the facts that decide about a namespace's needs.

    These are its identity, and whether it is being deleted.
    """
    return namespace and (namespace.metadata.uid, namespace.metadata.deleting)
