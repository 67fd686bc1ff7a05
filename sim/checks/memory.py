"""onejob.dev/oom-memory-factor: Pods carry how often those before them ran out of memory."""

from dataclasses import dataclass, field

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import completion_index
from sim.checks.problems import Problems

CHECK = "no lack of memory is forgotten"
_FACTOR, _RETRIES = "onejob.dev/oom-memory-factor", "onejob.dev/oom-retries"


@dataclass
class MemoryCheck:
    """Of Indexed Jobs: the Pods of an index come one after the other."""

    problems: Problems
    #: By Job and index, the Pods that are there, by UID.
    _pods: dict[tuple[str, int], dict[str, Pod]] = field(default_factory=dict)
    #: By Job and index, the Pods that ever ran out of memory.
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
        # One that is deleted is replaced before it has ended, so nobody may know how it will end.
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
