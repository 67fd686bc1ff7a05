"""What the Job controller remembers of each Job between syncs, fed by what it sees of Pods.

Remembering Pods as they change, rather than listing them, makes a sync cost what changed.
Nothing here must survive a restart: it is rebuilt from the caches.
"""

from dataclasses import dataclass, field

from onejob.objects.pod import Pod
from onejob.planning.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.counting import Census
from onejob.planning.plan import Note
from onejob.planning.pod_facts import is_tracked


@dataclass(slots=True)
class Memory:
    census: Census = field(default_factory=Census)
    backoff: BackoffRecord = NO_FAILURES
    #: A terminal status was written, and the cache does not show it yet.
    finish_pending: bool = False
    #: The newest revisions written for the Job and for its Pods: do not plan on older caches.
    job_revision: int = 0
    pod_revision: int = 0
    #: The answer to a write of a Pod was lost: it may have happened, at a revision unknown.
    uncertain: bool = False
    #: How many Pods were last created at once without an error.
    trusted_batch: int = 1
    #: What the last plan said about itself, for `onejob why`.
    notes: tuple[Note, ...] = ()


class Memories:
    """Memories by Job UID; a namesake that is created later starts with none."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Memory] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def of(self, uid: str) -> Memory:
        memory = self._by_uid.get(uid)
        if memory is None:
            memory = self._by_uid[uid] = Memory()
        return memory

    def known(self, uid: str) -> Memory | None:
        return self._by_uid.get(uid)

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def pod_changed(self, uid: str, pod: Pod, *, keep_spent: bool) -> None:
        """Note a Pod of the Job with this UID. What has ended and is counted is kept only if
        the Job may still act upon it."""
        if keep_spent or not is_spent(pod):
            self.of(uid).census.put(pod)
        else:
            self.pod_gone(uid, pod)

    def pod_gone(self, uid: str, pod: Pod) -> None:
        memory = self._by_uid.get(uid)
        if memory is not None:
            memory.census.remove(pod.metadata.uid)


def is_spent(pod: Pod) -> bool:
    """Ended and accounted for."""
    return pod.terminal and not is_tracked(pod)
