"""What the Job controller remembers of each Job between syncs, fed by what it sees of Pods.

Remembering Pods as they change, rather than listing them, makes a sync cost what changed.
Nothing here must survive a restart: it is rebuilt from the caches.
"""

from dataclasses import dataclass, field

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.future_times import NONE_NOTICED, Noticed
from onejob.planning.job.backoff import BackoffRecord, EarlierEnds
from onejob.planning.job.counting import Census
from onejob.planning.job.pod_facts import finish_time, is_tracked
from onejob.planning.job.pod_template import PodStamp


@dataclass(slots=True)
class Memory:
    census: Census = field(default_factory=Census)
    #: UIDs of Pods that the server said are gone, while the cache still shows them. Counted
    #: already, they would be counted again each time they are looked at.
    gone: set[str] = field(default_factory=set)
    #: UIDs of Pods that are new or whose labels changed: they may have to be let go.
    unclaimed: set[str] = field(default_factory=set)
    #: None before the first sync: it is to be rebuilt from what ended earlier.
    backoff: BackoffRecord | None = None
    earlier: EarlierEnds = field(default_factory=EarlierEnds)
    noticed: Noticed = NONE_NOTICED
    #: A terminal status was written, and the cache does not show it yet.
    finish_pending: bool = False
    #: The newest revisions written for the Job and for its Pods: do not plan on older caches.
    job_revision: int = 0
    pod_revision: int = 0
    #: The server may have Pods that the census lacks, at a revision unknown: the answer to a
    #: write was lost, or ended Pods matter that were not kept before.
    uncertain: bool = False
    #: How many Pods were last created at once without an error.
    trusted_batch: int = 1
    #: What makes the Job's Pods, and for what it was made: the generation of the Job, and
    #: whether its Pods are tracked.
    stamp: tuple[tuple[int, bool], PodStamp] | None = None

    def lose_writes(self) -> None:
        """What was written last was not kept: nothing that rests on it is true."""
        self.job_revision = self.pod_revision = 0
        self.finish_pending = False
        self.backoff = None
        self.uncertain = True

    def put(self, pod: Pod) -> bool:
        """Note a Pod as it is now. Returns whether that changes anything to be done or shown."""
        uid, census = pod.metadata.uid, self.census
        if uid in self.gone:
            return False
        known = census.get(uid)
        relabelled = known is None or known.metadata.labels != pod.metadata.labels
        if relabelled:
            self.unclaimed.add(uid)
        before = uid in census.ready, census.restarts_of(uid)
        census.put(pod)
        after = uid in census.ready, census.restarts_of(uid)
        return relabelled or not pod.active or before != after

    def note_spent(self, pod: Pod) -> None:
        """A Pod that has ended and is counted: needed for nothing but to tell how long the next
        one has to wait, and that only as long as it is not known."""
        if self.backoff is None:
            succeeded = pod.status.phase == "Succeeded"
            self.earlier.note(pod.metadata.uid, finish_time(pod), succeeded=succeeded)

    def recall_backoff(self, job: Job) -> BackoffRecord:
        """What is known of the Job's failures, from this life or an earlier one."""
        if self.backoff is None:
            uncounted = job.status.uncounted_terminated_pods
            for uid in (*uncounted.succeeded, *uncounted.failed) if uncounted else ():
                # Listed, so no news to the plan, but not spent either.
                if (pod := self.census.get(uid)) is not None and is_tracked(pod):
                    self.note_spent(pod)
            self.backoff = self.earlier.record(job)
            self.earlier = EarlierEnds()
        return self.backoff

    def drop(self, uid: str) -> None:
        """The Pod was seen to go, or concerns the Job no longer."""
        self.census.remove(uid)
        self.unclaimed.discard(uid)
        self.gone.discard(uid)

    def drop_unseen(self, uid: str) -> None:
        """The Pod is gone, but what the cache shows of it may be older for a while."""
        if self.census.get(uid) is not None:
            self.drop(uid)
            self.gone.add(uid)


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

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def met(self, job: Job, *, keep_spent: bool) -> None:
        """Its Pods may have been seen before it was. Ended ones were all kept for as long as
        nothing was known of it."""
        memory = self._by_uid.get(job.metadata.uid)
        if memory is None:
            return
        for uid, pod in list(memory.census.spent.items()):
            if not job.finished:
                memory.note_spent(pod)
            if not keep_spent:
                memory.drop(uid)

    def pod_changed(self, uid: str, pod: Pod, *, keep_spent: bool) -> None:
        """Note a Pod of the Job with this UID. What has ended and is counted is kept only if
        the Job may still act upon it."""
        spent = is_spent(pod)
        if spent:
            self.of(uid).note_spent(pod)
        if keep_spent or not spent:
            self.of(uid).put(pod)
        else:
            self.pod_gone(uid, pod, job_known=True)

    def pod_gone(self, uid: str, pod: Pod, *, job_known: bool) -> None:
        memory = self._by_uid.get(uid)
        if memory is None:
            return
        memory.drop(pod.metadata.uid)
        if not job_known and memory.census.empty:
            # The last Pod of a Job that is gone: nobody else would ever forget it.
            del self._by_uid[uid]


def is_spent(pod: Pod) -> bool:
    """Ended and accounted for."""
    return pod.terminal and not is_tracked(pod)
