"""Refresh of volumes generated from ConfigMaps, Secrets and Pod fields, while the Pod runs.

The sources of volumes are indexed by key, so that a change costs nothing unless a Pod of this node
uses it. As with the kubelet, deleting a source leaves the files unchanged.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onejob.informers.cache import Delta
from onejob.node.runtime import Runtime
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.tokens import refresh_after_seconds
from onejob.node.setup.volumes import VolumeProblem, is_refreshed, settings_in_volumes
from onejob.objects.pod_spec import NodePod

if TYPE_CHECKING:
    from onejob.objects.meta import Key

log = logging.getLogger(__name__)

#: Arguments: the Pod, and the reason and message of an event about it.
Warn = Callable[[NodePod, str, str], None]


class VolumeRefresh:
    """Refresh of the volumes of running Pods on changes, and of tokens before they expire."""

    def __init__(self, runtime: Runtime, warn: Warn) -> None:
        self._runtime = runtime
        self._warn = warn
        self._pods: dict[str, NodePod] = {}
        self._users: dict[Key, set[str]] = {}
        #: Pods whose sources have changed since they were followed: a container that was starting
        #: at that time may have received the older content.
        self._changed: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        #: Timers of Pods whose volumes contain tokens.
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def follow(self, pod: NodePod) -> None:
        """Follow the sources of a Pod of this node. Call before its first container starts."""
        if self._runtime.traits.runs_programs and pod.spec.volumes and is_refreshed(pod):
            self._pods[pod.uid] = pod
            for key in settings_in_volumes(pod):
                self._users.setdefault(key, set()).add(pod.uid)
            self._renew_tokens(pod)

    def forget(self, uid: str) -> None:
        """Stop refreshing the volumes of a Pod."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        for key in settings_in_volumes(pod):
            users = self._users.get(key, set())
            users.discard(uid)
            if not users:
                self._users.pop(key, None)
        self._changed.discard(uid)
        self._again.discard(uid)
        if (timer := self._timers.pop(uid, None)) is not None:
            timer.cancel()
        if (task := self._tasks.pop(uid, None)) is not None:
            task.cancel()

    def sources_changed(self, deltas: Sequence[Delta[Any]]) -> None:
        for delta in deltas:
            for uid in self._users.get(delta.key, ()):
                self._changed.add(uid)
                self.refresh(uid)

    def pod_changed(self, pod: NodePod) -> None:
        """Refresh volumes if labels or annotations have changed: the downward API exposes no other
        mutable fields."""
        before = self._pods.get(pod.uid)
        if before is None:
            return
        self._pods[pod.uid] = pod
        old, new = before.metadata, pod.metadata
        if (old.labels, old.annotations) != (new.labels, new.annotations):
            self._changed.add(pod.uid)
            self.refresh(pod.uid)

    def container_started(self, uid: str) -> None:
        if uid in self._changed:
            self.refresh(uid)

    def refresh(self, uid: str) -> None:
        """Update the Pod's volumes; one refresh at a time, repeated once if requested meanwhile."""
        if uid in self._tasks:
            self._again.add(uid)
        elif uid in self._pods:
            task = self._tasks[uid] = asyncio.create_task(self._refresh(uid))
            task.add_done_callback(lambda _: self._on_task_end(uid, task))

    def clock_jumped(self) -> None:
        """Renew all tokens: after a clock change they may have expired, or not be valid yet."""
        for uid, timer in list(self._timers.items()):
            timer.cancel()
            self._tokens_due(self._pods[uid])

    def _renew_tokens(self, pod: NodePod) -> None:
        """Schedule the renewal of tokens, repeatedly, in time before they expire."""
        seconds = refresh_after_seconds(pod)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timers[pod.uid] = loop.call_later(seconds, self._tokens_due, pod)

    def _tokens_due(self, pod: NodePod) -> None:
        self.refresh(pod.uid)
        self._renew_tokens(pod)

    def close(self) -> None:
        """Stop the refresh of all Pods."""
        for uid in list(self._pods):
            self.forget(uid)

    async def _refresh(self, uid: str) -> None:
        """Refresh the volumes of a Pod; a problem becomes an Event."""
        pod = self._pods[uid]
        try:
            await self._runtime.refresh_volumes(pod)
        except (ConfigProblem, VolumeProblem) as problem:
            self._warn(pod, "FailedMount", problem.message)

    def _on_task_end(self, uid: str, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: cannot refresh its volumes", uid, exc_info=error)
        if self._tasks.get(uid) is task:
            del self._tasks[uid]
            if uid in self._again:
                self._again.discard(uid)
                self.refresh(uid)
