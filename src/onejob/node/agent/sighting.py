"""A Pod as the watch shows it: the view that everybody shares, and the document to look closer."""

import logging
from typing import NamedTuple

from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import NodePod, read_node_pod

log = logging.getLogger(__name__)


class Sighting(NamedTuple):
    seen: Pod
    document: bytes

    @property
    def key(self) -> Key:
        return self.seen.key

    @property
    def uid(self) -> str:
        return self.seen.metadata.uid

    @property
    def revision(self) -> int:
        return self.seen.metadata.revision

    @property
    def terminal(self) -> bool:
        return self.seen.terminal

    @property
    def deleting(self) -> bool:
        return self.seen.metadata.deletion_timestamp is not None

    @property
    def grace_seconds(self) -> int:
        """Above 0 for a Pod that is being deleted and may still run."""
        return self.seen.metadata.deletion_grace_period_seconds or 0

    def pod(self) -> NodePod | None:
        """The whole Pod; None if it makes no sense, which is logged."""
        try:
            return read_node_pod(self.document)
        except ValueError as error:
            log.error("%s: this Pod cannot be read: %s", self.key, error)
            return None
