"""Scheduling: select waiting Pods for a node, by priority, as long as resources are available.

Amounts are plain numbers (CPU in millicores, memory in bytes, everything else in units), so that
this module does not depend on the notation of quantities.
"""

import heapq
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field

from onejob.objects.pod_spec import NodePodSpec, NodeRequirement, NodeTerm, Toleration

Amounts = Mapping[str, int]

#: Creation time of Pods that have none.
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Taint(Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = "NoSchedule"


class NodeView(Struct, frozen=True):
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    #: Upper bound of the Pods' summed requests; `pods` is the number of Pods.
    allocatable: Amounts = field(default_factory=dict)


class Candidate(Struct, frozen=True):
    """A Pod that is waiting for a node."""

    uid: str
    spec: NodePodSpec
    demand: Amounts
    created_at: datetime

    @property
    def rank(self) -> tuple[int, datetime, str]:
        """Sort key: highest priority first, then oldest first."""
        return -self.spec.priority, self.created_at, self.uid


class SchedulingQueue:
    """Pods waiting for resources, queued by resource demand.

    Pods of one Job have the same demand, so finding the next Pod that fits takes one check per
    distinct demand.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Candidate] = {}
        self._lines: dict[Need, list[tuple[tuple[int, datetime, str], Candidate]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    def add(self, candidate: Candidate) -> None:
        """Add a Pod or replace its earlier version."""
        if self._waiting.get(candidate.uid) == candidate:
            return
        self._waiting[candidate.uid] = candidate
        line = self._lines.setdefault(need_of(candidate), [])
        heapq.heappush(line, (candidate.rank, candidate))

    def drop(self, uid: str) -> None:
        """Remove a Pod; an unknown one is ignored."""
        self._waiting.pop(uid, None)

    def take(self, free: dict[str, int]) -> list[Candidate]:
        """Remove and return the Pods that fit now, in order, subtracting their demand from `free`.

        A Pod that does not fit does not block a smaller one behind it.
        """
        taken: list[Candidate] = []
        while True:
            heads = [
                head
                for need in list(self._lines)
                if _are_free(need, free) and (head := self._head(need)) is not None
            ]
            if not heads:
                return taken
            first = min(heads, key=lambda candidate: candidate.rank)
            for name, amount in first.demand.items():
                free[name] = free.get(name, 0) - amount
            del self._waiting[first.uid]
            taken.append(first)

    def _head(self, need: "Need") -> Candidate | None:
        """Return the first Pod with this need; None, and forget the need, if there is none."""
        line = self._lines[need]
        while line:
            candidate = line[0][1]
            if self._waiting.get(candidate.uid) is candidate:
                return candidate
            heapq.heappop(line)
        del self._lines[need]
        return None


Need = tuple[tuple[str, int], ...]


def need_of(candidate: Candidate) -> Need:
    """Return the nonzero resource demand in canonical order.

    Pods with equal demand share a queue.
    """
    return tuple(sorted(item for item in candidate.demand.items() if item[1]))


def _are_free(need: Need, free: Amounts) -> bool:
    return all(amount <= free.get(name, 0) for name, amount in need)


def room_left(node: NodeView, used: Amounts) -> dict[str, int]:
    return {name: amount - used.get(name, 0) for name, amount in node.allocatable.items()}


def misfit(candidate: Candidate, node: NodeView) -> str:
    """Return why an empty node could not run this Pod, in the scheduler's wording; else ""."""
    spec = candidate.spec
    if node.unschedulable and not tolerates(
        spec.tolerations, Taint("node.kubernetes.io/unschedulable")
    ):
        return _unschedulable_text("1 node(s) were unschedulable")
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerates(spec.tolerations, taint):
            return _unschedulable_text(
                f"1 node(s) had untolerated taint(s) {{{taint.key}: {taint.value}}}"
            )
    if not _matches_selector(spec, node):
        return _unschedulable_text("1 node(s) didn't match Pod's node affinity/selector")
    return shortage(candidate, node.allocatable)


def shortage(candidate: Candidate, free: Amounts) -> str:
    """Return the insufficient resources, in the scheduler's wording; "" if the Pod fits."""
    lacking = sorted(
        "1 Too many pods" if name == "pods" else f"1 Insufficient {name}"
        for name, amount in candidate.demand.items()
        if amount > free.get(name, 0)
    )
    return _unschedulable_text(", ".join(lacking)) if lacking else ""


def _unschedulable_text(why: str) -> str:
    return f"0/1 nodes are available: {why}."


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Return whether one of the tolerations matches the taint."""
    for toleration in tolerations:
        if toleration.effect not in ("", taint.effect):
            continue
        if toleration.key and toleration.key != taint.key:
            continue
        if toleration.operator == "Exists":
            return True
        # An empty key matches every key, but only with operator Exists.
        if toleration.key and toleration.value == taint.value:
            return True
    return False


def pod_demand(
    containers: Sequence[Amounts],
    init_containers: Sequence[tuple[Amounts, bool]],
    overhead: Amounts,
) -> dict[str, int]:
    """Return a Pod's peak resource demand.

    Sidecars keep running; other init containers run one after the other before the regular
    containers. The flag in `init_containers` marks sidecars.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for amounts, sidecar in init_containers:
        if sidecar:
            _add(sidecars, amounts)
        else:
            _raise_to(peak, _sum(sidecars, amounts))
    steady = dict(sidecars)
    for amounts in containers:
        _add(steady, amounts)
    _raise_to(peak, steady)
    _add(peak, overhead)
    peak["pods"] = 1
    return peak


def _matches_selector(spec: NodePodSpec, node: NodeView) -> bool:
    """Return whether the node matches nodeSelector and required node affinity."""
    for name, value in spec.node_selector.items():
        if node.labels.get(name) != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(_term_matches(term, node) for term in affinity.required.node_selector_terms)


def _term_matches(term: NodeTerm, node: NodeView) -> bool:
    """Return whether the node meets all requirements; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_matches(r, node.labels) for r in term.match_expressions) and all(
        _matches(r, fields) for r in term.match_fields
    )


def _matches(requirement: NodeRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether the labels meet the requirement."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(requirement.values) != 1:
                return False
            try:
                mine, theirs = int(value), int(requirement.values[0])
            except ValueError:
                return False
            return mine > theirs if requirement.operator == "Gt" else mine < theirs
        case _:
            return False


def _add(total: dict[str, int], amounts: Amounts) -> None:
    """Add amounts to the total, in place."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _sum(a: Amounts, b: Amounts) -> dict[str, int]:
    """Return the sum of two amounts."""
    total = dict(a)
    _add(total, b)
    return total


def _raise_to(peak: dict[str, int], amounts: Amounts) -> None:
    """Raise each amount of the peak to at least the given one, in place."""
    for name, amount in amounts.items():
        peak[name] = max(peak.get(name, 0), amount)
