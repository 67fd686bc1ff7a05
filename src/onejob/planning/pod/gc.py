"""Pod garbage collection: Pods to delete by force because no other component will."""

from collections import deque
from collections.abc import Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from onejob.metrics import RemovalReason
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.planning.mirror.names import target_of_node

#: Number of finished Pods kept before the oldest are removed.
DEFAULT_TERMINATED_LIMIT = 12500
#: Time a node must have been absent before its Pods are deleted.
QUARANTINE_SECONDS = 40.0

_NOT_ENDED: Final = ("Pending", "Running", "Unknown", "")
_EVER = datetime(1, 1, 1, tzinfo=UTC)


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Record of a Pod that has ended, reduced to the facts that garbage collection needs."""

    key: Key
    uid: str
    node: str
    evicted: bool
    created_at: datetime


def ended(key: Key, pod: Pod, known: Ended | None) -> Ended | None:
    """Return the record of an ended Pod; None if it is still running or already being deleted.

    `known` is the existing record under that name; it is returned as is if nothing changed, the
    common case.
    """
    metadata = pod.metadata
    if pod.status.phase in _NOT_ENDED or metadata.deletion_timestamp is not None:
        return None
    if (
        known is not None
        and known.uid == metadata.uid
        and known.node == pod.spec.node_name
        and known.evicted == (pod.status.reason == "Evicted")
    ):
        return known
    return Ended(
        key,
        metadata.uid,
        pod.spec.node_name,
        pod.status.reason == "Evicted",
        metadata.creation_timestamp or _EVER,
    )


class Removal(msgspec.Struct, frozen=True, gc=False):
    key: Key
    uid: str
    reason: RemovalReason
    #: True to set the phase to Failed first, so that controllers counting Pods observe an end.
    mark_failed: bool


#: Removal order: evicted Pods before all others, then the oldest.
_Age: TypeAlias = tuple[bool, datetime]


class EndedPods:
    """Ended Pods indexed by key and by age, which makes finding the oldest of 100,000 cheap."""

    def __init__(self) -> None:
        self._pods: dict[Key, Ended] = {}
        self._by_age: dict[_Age, dict[Key, Ended]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, key: Key) -> Ended | None:
        """Return the Pod; None if it is not included."""
        return self._pods.get(key)

    def observe(self, key: Key, pod: Pod) -> None:
        """Record the present state of a Pod under this name."""
        known = self._pods.get(key)
        if known is None and pod.status.phase in _NOT_ENDED:
            return
        now = ended(key, pod, known)
        if now is known:
            return
        # Stand-ins for remote Pods are not on any node, and are deleted together with the remote
        # Pods.
        if now is not None and not target_of_node(now.node):
            self.put(now)
        elif known is not None:
            self.drop(key)

    def put(self, pod: Ended) -> None:
        """Add or replace a Pod."""
        if pod.key in self._pods:
            self.drop(pod.key)
        self._pods[pod.key] = pod
        self._by_age.setdefault(_age(pod), {})[pod.key] = pod

    def drop(self, key: Key) -> None:
        """Remove a Pod; an unknown one is ignored."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        age = _age(pod)
        same_age = self._by_age[age]
        del same_age[key]
        if not same_age:
            del self._by_age[age]

    def keep_only(self, keys: Container[Key]) -> None:
        for key in [key for key in self._pods if key not in keys]:
            self.drop(key)

    def beyond(self, limit: int) -> Iterator[Removal]:
        """Yield the ended Pods beyond `limit`, in removal order; none if `limit` <= 0.

        The set is determined at the first step. Pods may be dropped during iteration, and each step
        is short.
        """
        excess = len(self._pods) - limit
        if limit <= 0 or excess <= 0:
            return
        oldest: deque[list[Ended]] = deque()
        found = 0
        for age in sorted(self._by_age):
            oldest.append(list(self._by_age[age].values()))
            found += len(oldest[-1])
            if found >= excess:
                break
        while oldest:
            # Free each group after use: freeing all of them at the end would block noticeably, too.
            pods = oldest.popleft()
            pods.sort(key=_name)
            for pod in pods[:excess]:
                yield Removal(pod.key, pod.uid, "terminated", mark_failed=False)
            excess -= len(pods)


def _age(pod: Ended) -> _Age:
    """Return the sort key by age: evicted Pods first."""
    return (not pod.evicted, pod.created_at)


def _name(pod: Ended) -> str:
    """Return the Pod's name."""
    return pod.key.name


def stuck(pods: Iterable[Pod], out_of_service_nodes: AbstractSet[str]) -> Iterator[Removal]:
    """Yield Pods being deleted for which no node will ever report a status."""
    for pod in pods:
        if not pod.metadata.deleting or _is_done(pod):
            continue
        if not pod.spec.node_name:
            yield _removal(pod, "unscheduled")
        elif pod.spec.node_name in out_of_service_nodes:
            yield _removal(pod, "out-of-service")


def stranded(
    pods: Iterable[Pod], ended_pods: Iterable[Ended], gone_nodes: AbstractSet[str]
) -> Iterator[Removal]:
    """Yield Pods bound to nodes that no longer exist."""
    for pod in pods:
        if pod.spec.node_name in gone_nodes and not pod.terminal:
            yield _removal(pod, "orphaned")
    for old in ended_pods:
        if old.node in gone_nodes:
            yield Removal(old.key, old.uid, "orphaned", mark_failed=False)


def _is_done(pod: Pod) -> bool:
    """Return whether the Pod's deletion is complete except for its finalizers."""
    return pod.terminal and pod.metadata.deletion_grace_period_seconds == 0


def _removal(pod: Pod, reason: RemovalReason) -> Removal:
    """Return the removal of a Pod; one that has not ended is marked as failed first."""
    return Removal(pod.key, pod.metadata.uid, reason, mark_failed=not pod.terminal)


class Quarantine:
    """Absent nodes and the time since when they are absent. A node that returns is removed."""

    def __init__(self) -> None:
        self._missed_since: dict[str, float] = {}

    def over(
        self, used: AbstractSet[str], present: AbstractSet[str], moment: float
    ) -> frozenset[str]:
        """Return the nodes in `used` that have been absent for at least `QUARANTINE_SECONDS`."""
        absent = used - present
        self._missed_since = {node: self._missed_since.get(node, moment) for node in absent}
        return frozenset(
            node
            for node, since in self._missed_since.items()
            if moment - since >= QUARANTINE_SECONDS
        )


def failed_status(removal: Removal, now: datetime) -> bytes:
    """Return a strategic merge patch for `/status` that fails a Pod without a reporting node."""
    status: dict[str, object] = {"phase": "Failed"}
    if removal.reason == "orphaned":
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": now.replace(microsecond=0),
        }
        status["conditions"] = [condition]
    return msgspec.json.encode({"metadata": {"uid": removal.uid}, "status": status})
