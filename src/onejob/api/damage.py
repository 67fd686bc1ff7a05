"""Stored documents that cannot be read: which they are, and what is said about them."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, JOBS, PODS, Key, View
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import read_node_pod
from onejob.store.base import DamagedDocument
from onejob.wire.errors import ApiError
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import Target


class _Metadata(View, frozen=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    namespace: str = ""


class _Named(View, frozen=True):
    metadata: _Metadata = _Metadata()


#: What controllers read each kind with; of the others, only that they are what they should be.
_VIEWS: Final[Mapping[str, type[View]]] = {JOBS: Job, CRONJOBS: CronJob, PODS: Pod}


#: Two pages of the lists for which they are kept. More would be of lists that others ask for, and
#: push what is needed out of the processor's cache.
_MOST_KEPT: Final = 400


@cache
def _reader(view: type[View]) -> Callable[[bytes], Any]:
    """Reads a view and what every document must have, in one go: a server that starts may have a
    hundred thousand to judge."""
    required = [("kind", str), ("api_version", str)]
    whole = msgspec.defstruct("Whole", required, bases=(view,), frozen=True, kw_only=True)
    return msgspec.json.Decoder(whole).decode


class StorageReadError(ApiError):
    """Upstream's reason for what is stored but cannot be decoded."""

    code, reason = 500, "StorageReadError"


def is_readable(key: Key, document: bytes) -> bool:
    """Whether the document is whole, is the one of that key, and all readers understand it."""
    return _judged(key, document) is not None


class Judge:
    """Judges documents as `is_readable` does. What it decoded for that can be kept for a while, for
    those who read the same documents next: after a start, informers read all there are."""

    def __init__(self) -> None:
        #: By the identity of the document, which is kept with its view. None: nothing is kept.
        self._kept: dict[int, tuple[bytes, Any]] | None = None

    def keep_views(self, keep: bool) -> None:
        self._kept = {} if keep else None

    def is_readable(self, key: Key, document: bytes) -> bool:
        view = _judged(key, document)
        kept = self._kept
        if view is not None and kept is not None and key.resource in _VIEWS:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[id(document)] = (document, view)
        return view is not None

    def take_view(self, document: bytes) -> Any:
        """What this very document was decoded to, once; None if that is not known. It has all that
        the view of its kind has, and more."""
        if not self._kept:
            return None
        found = self._kept.pop(id(document), None)
        return None if found is None else found[1]


def _judged(key: Key, document: bytes) -> Any:
    """The view of the document; None if it cannot be read."""
    try:
        # Readers skip what they do not need, and do not look whether that is UTF-8.
        document.decode()
        resource, namespace, name = key
        view = _reader(_VIEWS.get(resource, _Named))(document)
        if resource == PODS:
            # The node agent reads more of them.
            read_node_pod(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
    found = view.metadata
    if found.name == name and found.namespace == namespace and found.uid and found.resource_version:
        return view
    return None


def storage_read_error(error: DamagedDocument, kinds: KindRegistry) -> StorageReadError:
    key, kind = error.key, kinds.by_resource[error.key.resource]
    root = f"/apis/{kind.group}" if kind.group else "/api"
    place = f"/namespaces/{key.namespace}" if kind.namespaced else ""
    path = f"{root}/{kind.version}{place}/{kind.plural}/{key.name}"
    return StorageReadError(
        f'{kind.resource} "{key.name}" is stored, but cannot be read (revision {error.revision}); '
        f"restore a copy of the store, or delete the object: kubectl delete --raw "
        f"'{path}?ignoreStoreReadErrorWithClusterBreakingPotential=true'",
        details={"name": key.name, "kind": kind.plural},
    )


def placeholder(target: Target, revision: int) -> bytes:
    """What stands for an object that nobody can read, in the answer to its deletion."""
    metadata = {"name": target.name, "uid": "", "resourceVersion": str(revision)}
    if target.namespace:
        metadata["namespace"] = target.namespace
    kind = target.kind
    return msgspec.json.encode(
        {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    )
