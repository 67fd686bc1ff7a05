"""PodGroups and their placed Pods, for the scheduler of a node (GenericWorkload)."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from onejob.client.base import Client, Selection
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import PODS, Key, Meta, View
from onejob.objects.pod_spec import SchedulingGroup
from onejob.planning.pod.gang import NO_QUORUM, GangQueue, Group

POD_GROUPS: Final = "podgroups.scheduling.k8s.io"


class _GangPolicy(View, frozen=True):
    min_count: int = 1


class _SchedulingPolicy(View, frozen=True):
    gang: _GangPolicy | None = None


class _PodGroupSpec(View, frozen=True):
    scheduling_policy: _SchedulingPolicy = _SchedulingPolicy()


class _PodGroup(View, frozen=True):
    metadata: Meta = Meta()
    spec: _PodGroupSpec = _PodGroupSpec()


class _MemberSpec(View, frozen=True):
    node_name: str = ""
    scheduling_group: SchedulingGroup | None = None


class _Member(View, frozen=True):
    metadata: Meta = Meta()
    spec: _MemberSpec = _MemberSpec()

    @property
    def group(self) -> Group | None:
        group = self.spec.scheduling_group
        return None if group is None else (self.metadata.namespace, group.pod_group_name)


class GangSource:
    """Queue of waiting Pods whose gangs follow the API.

    Which Pods have a place is derived from the stored Pods alone, so a gang that was interrupted
    by a crash while it was bound is completed.
    """

    def __init__(self, client: Client) -> None:
        self.queue = GangQueue()
        self._groups: Informer[_PodGroup] = Informer(
            client,
            Selection(POD_GROUPS, ""),
            msgspec.json.Decoder(_PodGroup).decode,
            lambda group: Key(POD_GROUPS, group.metadata.namespace, group.metadata.name),
        )
        self._pods: Informer[_Member] = Informer(
            client,
            Selection(PODS, ""),
            msgspec.json.Decoder(_Member).decode,
            lambda pod: Key(PODS, pod.metadata.namespace, pod.metadata.name),
            keep=lambda pod: pod.spec.scheduling_group is not None,
        )
        self._groups.on_change(self._groups_changed)
        self._pods.on_change(self._pods_changed)
        self._handler: Callable[[], None] = lambda: None

    @property
    def parts(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the background tasks to run."""
        return (self._groups.run, self._pods.run)

    async def synced(self) -> None:
        """Wait until all existing PodGroups and Pods are accounted for."""
        await self._groups.synced()
        await self._pods.synced()

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call `handler` when waiting gangs may have become complete."""
        self._handler = handler

    def _groups_changed(self, deltas: Sequence[Delta[_PodGroup]]) -> None:
        self.queue.set_groups(
            {
                (group.metadata.namespace, group.metadata.name): _quorum(group)
                for group in self._groups.cache
            }
        )
        self._handler()

    def _pods_changed(self, deltas: Sequence[Delta[_Member]]) -> None:
        changed = False
        for delta in deltas:
            pod = delta.new or delta.old
            if pod is None or pod.group is None:
                continue
            if delta.new is None:
                self.queue.forget_placed(pod.group, pod.metadata.uid)
            elif pod.spec.node_name:
                self.queue.note_placed(pod.group, pod.metadata.uid)
            changed = True
        if changed:
            self._handler()


def _quorum(group: _PodGroup) -> int:
    gang = group.spec.scheduling_policy.gang
    return NO_QUORUM if gang is None else gang.min_count
