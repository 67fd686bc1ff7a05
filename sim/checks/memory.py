"""Invariants of onejob.dev/oom-memory-factor: Pods carry the number of OOM kills before them."""

from dataclasses import dataclass, field

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import completion_index
from sim.checks.problems import Problems

CHECK = "no lack of memory is forgotten"
_FACTOR, _RETRIES = "onejob.dev/oom-memory-factor", "onejob.dev/oom-retries"


@dataclass
class MemoryCheck:
    """Check of Indexed Jobs, where the Pods of an index succeed each other."""

    problems: Problems
    #: Existing Pods by UID, per Job and index.
    _pods: dict[tuple[str, int], dict[str, Pod]] = field(default_factory=dict)
    #: UIDs of all Pods that ran out of memory, per Job and index.
    _killed: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def see_pod(self, job: Job, pod: Pod, *, gone: bool) -> None:
        index, uid = completion_index(pod), pod.metadata.uid
        if index is None or _FACTOR not in job.metadata.annotations:
            return
        place = job.metadata.uid, index
        siblings = self._pods.setdefault(place, {})
        killed = self._killed.setdefault(place, set())
        if uid not in siblings and not gone:
            self._see_created(pod, list(siblings.values()), len(killed))
        if _ran_out(pod):
            killed.add(uid)
        if gone:
            siblings.pop(uid, None)
        else:
            siblings[uid] = pod

    def _see_created(self, pod: Pod, siblings: list[Pod], killed: int) -> None:
        # A deleted Pod is replaced before it has ended, when its outcome is not yet known.
        known = [_retries(one) + _ran_out(one) for one in siblings if not one.metadata.deleting]
        least, carried = max(known, default=0), _retries(pod)
        if not least <= carried <= killed:
            text = f"carries {carried} of {killed}, at least {least} are known"
            self.problems.add(CHECK, f"Pod {pod.metadata.namespace}/{pod.metadata.name}: {text}")


def _retries(pod: Pod) -> int:
    return int(pod.metadata.annotations.get(_RETRIES, "0"))


def _ran_out(pod: Pod) -> bool:
    ends = (status.state.terminated for status in pod.status.container_statuses)
    return pod.phase == "Failed" and any(end and end.reason == "OOMKilled" for end in ends)
