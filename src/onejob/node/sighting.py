"""A Pod at a glance: enough to tell whether it concerns this node, cheap for those that do not."""

import logging
from datetime import datetime

import msgspec

from onejob.objects.meta import PODS, Key, View
from onejob.objects.pod_spec import NodePod, read_node_pod

log = logging.getLogger(__name__)


class _Meta(View, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class _Spec(View, frozen=True):
    node_name: str = ""


class _Status(View, frozen=True):
    phase: str = ""


class _Head(View, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Sighting:
    """`document` is the Pod as it came, for those who look closer."""

    __slots__ = (
        "deleting", "document", "grace_seconds", "key", "node_name", "revision", "terminal", "uid",
    )  # fmt: skip

    def __init__(self, head: _Head, document: bytes) -> None:
        meta = head.metadata
        self.key = Key(PODS, meta.namespace, meta.name)
        self.uid = meta.uid
        self.revision = int(meta.resource_version or 0)
        self.node_name = head.spec.node_name
        self.terminal = head.status.phase in ("Succeeded", "Failed")
        self.deleting = meta.deletion_timestamp is not None
        #: Above 0 for a Pod that is being deleted and may still run.
        self.grace_seconds = meta.deletion_grace_period_seconds or 0
        self.document = document

    def pod(self) -> NodePod | None:
        """The whole Pod; None if it makes no sense, which is logged."""
        try:
            return read_node_pod(self.document)
        except ValueError as error:
            log.error("%s: this Pod cannot be read: %s", self.key, error)
            return None


_decode = msgspec.json.Decoder(_Head).decode


def read_sighting(document: bytes) -> Sighting:
    return Sighting(_decode(document), document)
