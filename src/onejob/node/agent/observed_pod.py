"""A Pod as delivered by the watch: the shared partial view, and the full document to decode on
demand."""

from msgspec import Struct

from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import NodePod, read_node_pod


class ObservedPod(Struct, frozen=True, gc=False):
    view: Pod
    document: bytes

    @property
    def key(self) -> Key:
        return self.view.key

    @property
    def uid(self) -> str:
        return self.view.metadata.uid

    @property
    def revision(self) -> int:
        return self.view.metadata.revision

    @property
    def node_name(self) -> str:
        return self.view.spec.node_name

    @property
    def terminal(self) -> bool:
        """Whether the Pod has ended."""
        return self.view.status.phase in ("Succeeded", "Failed")

    @property
    def deleting(self) -> bool:
        """Whether the Pod is being deleted."""
        return self.view.metadata.deletion_timestamp is not None

    @property
    def grace_seconds(self) -> int:
        """Remaining grace period in seconds; above 0 only for a Pod being deleted that may still
        run."""
        return self.view.metadata.deletion_grace_period_seconds or 0

    def read(self) -> NodePod:
        """Return the decoded Pod. Raises ValueError if it is invalid."""
        return read_node_pod(self.document)
