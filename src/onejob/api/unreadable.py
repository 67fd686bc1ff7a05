"""Detection and reporting of damaged stored documents."""

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


#: Views that controllers decode. Documents of other kinds are only checked for basic metadata.
_VIEWS: Final[Mapping[str, type[View]]] = {JOBS: Job, CRONJOBS: CronJob, PODS: Pod}


#: Maximum number of kept views: two pages of the lists for which they are kept. More would belong
#: to lists of other readers, and evict useful data from the processor's cache.
_MAX_KEPT_VIEWS: Final = 400


@cache
def _reader(view: type[View]) -> Callable[[bytes], Any]:
    """Return a decoder for a view plus the fields that every document must have.

    A single pass matters: a starting server may have a hundred thousand documents to check.
    """
    required = [("kind", str), ("api_version", str)]
    whole = msgspec.defstruct("Whole", required, bases=(view,), frozen=True, kw_only=True)
    return msgspec.json.Decoder(whole).decode


class StorageReadError(ApiError):
    """Upstream's error for a stored object that cannot be decoded."""

    code, reason = 500, "StorageReadError"


def is_readable(key: Key, document: bytes) -> bool:
    """Return whether the document is complete, belongs to its key, and can be decoded by all
    readers."""
    return _judged(key, document) is not None


class ReadabilityChecker:
    """Readability check like `is_readable` that can also keep the decoded views.

    The views serve the next reader of the same documents: after a start, informers read all of
    them.
    """

    def __init__(self) -> None:
        #: Document and view, by the identity of the document. None: views are not kept.
        self._kept: dict[int, tuple[bytes, Any]] | None = None

    def keep_views(self, keep: bool) -> None:
        self._kept = {} if keep else None

    def is_readable(self, key: Key, document: bytes) -> bool:
        view = _judged(key, document)
        kept = self._kept
        if view is not None and kept is not None and key.resource in _VIEWS:
            if len(kept) >= _MAX_KEPT_VIEWS:
                kept.clear()
            kept[id(document)] = (document, view)
        return view is not None

    def take_view(self, document: bytes) -> Any:
        """Return and release the view of this very document; None if it was not kept.

        It has all attributes of its kind's view, and more.
        """
        if not self._kept:
            return None
        found = self._kept.pop(id(document), None)
        return None if found is None else found[1]


def _judged(key: Key, document: bytes) -> Any:
    """Return the view of the document; None if it cannot be read."""
    try:
        # Decoders skip fields that they do not need, without checking that these are UTF-8.
        document.decode()
        resource, namespace, name = key
        view = _reader(_VIEWS.get(resource, _Named))(document)
        if resource == PODS:
            # The node agent reads further fields of Pods.
            read_node_pod(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
    found = view.metadata
    if found.name == name and found.namespace == namespace and found.uid and found.resource_version:
        return view
    return None


def storage_read_error(error: DamagedDocument, kinds: KindRegistry) -> StorageReadError:
    """Return the error of a damaged object, with advice on its deletion."""
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
    """Return the document that represents an unreadable object in the response to its deletion."""
    metadata = {"name": target.name, "uid": "", "resourceVersion": str(revision)}
    if target.namespace:
        metadata["namespace"] = target.namespace
    kind = target.kind
    return msgspec.json.encode(
        {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    )
