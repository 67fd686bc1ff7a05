"""Gang scheduling: the Pods of a PodGroup start together, or none does. Pure.

A gang needs `minCount` Pods with a place. Placed Pods count until they are deleted, also after
their end, so the replacement of a failed Pod does not wait for a second quorum.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from msgspec import Struct

from onejob.planning.pod.placement import (
    Amounts,
    Candidate,
    NodeView,
    Rank,
    SchedulingQueue,
    shortage,
)

#: Namespace and name of a PodGroup.
Group: TypeAlias = tuple[str, str]

#: `minCount` of a PodGroup with the policy "basic": its Pods start one by one.
NO_QUORUM: Final = 0
#: Part of the reason why a gang waits in vain.
TOO_LARGE: Final = "the node can never run more than"


class Gang(Struct, frozen=True):
    #: Minimum number of placed Pods; None until the PodGroup exists.
    min_count: int | None
    #: Number of Pods that have a place.
    placed: int
    #: Pods to place, in order.
    waiting: Sequence[Candidate]

    @property
    def lacking(self) -> int:
        """Return how many Pods have to be placed at once. Requires that the PodGroup exists."""
        return max((self.min_count or NO_QUORUM) - self.placed, 0)


def members_to_place(gang: Gang, free: Amounts) -> list[Candidate]:
    """Return the waiting Pods that start now: enough for the quorum and all others that fit; or
    none."""
    if gang.min_count is None:
        return []
    chosen = _fitting(gang, dict(free))
    return chosen if len(chosen) >= gang.lacking else []


def gang_problem(name: str, gang: Gang, free: Amounts, capacity: Amounts) -> str:
    """Return why the gang does not start, in the scheduler's form; "" if it can."""
    if gang.min_count is None:
        return f'0/1 nodes are available: waiting for the PodGroup "{name}" to exist.'
    if gang.lacking == 0:
        return ""
    there = gang.placed + len(gang.waiting)
    start = f'0/1 nodes are available: the gang "{name}" needs {gang.min_count} Pods at once, but'
    if there < gang.min_count:
        return f"{start} only {there} exist that fit the node."
    fitting = gang.placed + len(_fitting(gang, dict(free)))
    if fitting >= gang.min_count:
        return ""
    most = gang.placed + len(_fitting(gang, dict(capacity)))
    if most < gang.min_count:
        return f"{start} {TOO_LARGE} {most}."
    return f"{start} there is room for {fitting}."


def _fitting(gang: Gang, free: dict[str, int]) -> list[Candidate]:
    """Return the waiting Pods that fit together, in order; an incomplete list once the quorum is
    out of reach."""
    chosen: list[Candidate] = []
    spare = len(gang.waiting) - gang.lacking
    for candidate in gang.waiting:
        if shortage(candidate, free):
            spare -= 1
            if spare < 0 < gang.lacking:
                return chosen
            continue
        chosen.append(candidate)
        subtract(candidate.demand, free)
    return chosen


def subtract(demand: Amounts, free: dict[str, int]) -> None:
    for name, amount in demand.items():
        free[name] = free.get(name, 0) - amount


class GangQueue(SchedulingQueue):
    """Queue of waiting Pods in which the Pods of a PodGroup wait for their gang.

    A gang has the rank of its first Pod. Gangs with placed Pods that lack their quorum come first
    of all: they were interrupted while they were bound. A gang that does not fit does not block
    others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._min_counts: dict[Group, int] = {}
        self._members: dict[Group, dict[str, Candidate]] = {}
        self._group_of: dict[str, Group] = {}
        self._placed: dict[Group, set[str]] = {}
        #: Sorted members, until a member is added or dropped.
        self._ordered: dict[Group, list[Candidate]] = {}

    def __len__(self) -> int:
        return super().__len__() + len(self._group_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._group_of or super().__contains__(uid)

    def set_groups(self, min_counts: Mapping[Group, int]) -> None:
        """Replace the existing PodGroups and the quorum of each."""
        self._min_counts = dict(min_counts)

    def note_placed(self, group: Group, uid: str) -> None:
        """Count a Pod that has a node."""
        self._placed.setdefault(group, set()).add(uid)

    def forget_placed(self, group: Group, uid: str) -> None:
        """Stop counting a deleted Pod."""
        uids = self._placed.get(group)
        if uids is not None:
            uids.discard(uid)
            if not uids:
                del self._placed[group]

    def add(self, candidate: Candidate) -> None:
        group = group_of(candidate)
        if group is None:
            super().add(candidate)
            return
        # It has no node, so an earlier attempt to bind it has failed.
        self.forget_placed(group, candidate.uid)
        self._group_of[candidate.uid] = group
        self._members.setdefault(group, {})[candidate.uid] = candidate
        self._ordered.pop(group, None)

    def drop(self, uid: str) -> None:
        group = self._group_of.pop(uid, None)
        if group is None:
            super().drop(uid)
            return
        self._ordered.pop(group, None)
        members = self._members[group]
        del members[uid]
        if not members:
            del self._members[group]

    def take(self, free: dict[str, int], before: Rank | None = None) -> list[Candidate]:
        taken: list[Candidate] = []
        for group in sorted(self._members, key=self._order):
            gang = self._gang(group)
            if not gang.placed:
                taken += super().take(free, gang.waiting[0].rank)
            for candidate in members_to_place(gang, free):
                subtract(candidate.demand, free)
                self.drop(candidate.uid)
                self.note_placed(group, candidate.uid)
                taken.append(candidate)
        return taken + super().take(free, before)

    def explanation(self, node: NodeView, free: Amounts) -> Callable[[Candidate], str]:
        explain_single = super().explanation(node, free)

        @cache
        def explain_gang(group: Group) -> str:
            return gang_problem(group[1], self._gang(group), free, node.allocatable)

        def explain(candidate: Candidate) -> str:
            group = group_of(candidate)
            of_gang = "" if group is None else explain_gang(group)
            return of_gang or explain_single(candidate)

        return explain

    def _gang(self, group: Group) -> Gang:
        ordered = self._ordered.get(group)
        if ordered is None:
            members = self._members.get(group, {}).values()
            ordered = sorted(members, key=lambda candidate: candidate.rank)
            self._ordered[group] = ordered
        placed = len(self._placed.get(group, ()))
        return Gang(self._min_counts.get(group), placed, ordered)

    def _order(self, group: Group) -> tuple[bool, Rank]:
        """Return the sort key: interrupted gangs first, then by rank."""
        gang = self._gang(group)
        interrupted = bool(gang.placed and gang.min_count is not None and gang.lacking)
        return not interrupted, gang.waiting[0].rank


def group_of(candidate: Candidate) -> Group | None:
    group = candidate.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return None
    return candidate.namespace, group.pod_group_name
