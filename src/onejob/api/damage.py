"""Stored documents that cannot be read: which they are, and what is said about them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from onejob.objects.cronjob import read_cronjob
from onejob.objects.job import read_job
from onejob.objects.meta import CRONJOBS, JOBS, PODS, Key
from onejob.objects.pod import read_pod
from onejob.objects.pod_spec import read_node_pod
from onejob.store.base import DamagedDocument
from onejob.wire.errors import ApiError
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import Target


class _Metadata(msgspec.Struct):
    name: str
    uid: str
    resourceVersion: str
    namespace: str = ""


class _Document(msgspec.Struct):
    kind: str
    apiVersion: str
    metadata: _Metadata


_read_any = msgspec.json.Decoder(_Document).decode

#: What controllers and the node agent read each kind with.
_READERS: Final[Mapping[str, tuple[Callable[[bytes], Any], ...]]] = {
    JOBS: (read_job,),
    CRONJOBS: (read_cronjob,),
    PODS: (read_pod, read_node_pod),
}


class StorageReadError(ApiError):
    """Upstream's reason for what is stored but cannot be decoded."""

    code, reason = 500, "StorageReadError"


def is_readable(key: Key, document: bytes) -> bool:
    """Whether the document is whole, is the one of that key, and all readers understand it."""
    try:
        # Readers skip what they do not need, and do not look whether that is UTF-8.
        document.decode()
        found = _read_any(document).metadata
        for read in _READERS.get(key.resource, ()):
            read(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return False
    return (found.namespace, found.name) == (key.namespace, key.name)


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
