"""History of a world: every stored version of the checked objects, in revision order."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, JOBS, NAMESPACES, PODS, WORKFLOWS, Key, Meta, View
from onejob.objects.pod import Pod, read_pod
from onejob.objects.workflow import Workflow, read_workflow
from onejob.store.base import Change, StoreClosed, StoreFailed
from onejob.store.log import LogStore


class Namespace(View, frozen=True):
    """View of a Namespace."""

    metadata: Meta = Meta()


Subject: TypeAlias = Job | Pod | CronJob | Workflow | Namespace

READ: Mapping[str, Callable[[bytes], Subject]] = {
    JOBS: read_job,
    PODS: read_pod,
    CRONJOBS: read_cronjob,
    WORKFLOWS: read_workflow,
    NAMESPACES: msgspec.json.Decoder(Namespace).decode,
}


@dataclass(frozen=True)
class Version:
    """An object as stored at a revision; for a deletion, its last state."""

    revision: int
    key: Key
    subject: Subject
    gone: bool
    at: float


@dataclass
class History:
    """Recorder that watches the store of each process of the control plane in turn.

    The next process also reports writes that were on disk at a crash without having been watched.
    """

    versions: list[Version] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: Resource of each write acknowledged as durable, by revision; empty where it is unknown.
    _acknowledged: dict[int, str] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def acknowledge(self, resource: str, revision: int) -> None:
        self._acknowledged[revision] = resource

    def check_restart(self, revision: int) -> None:
        """Report acknowledged writes newer than `revision`, the last one on disk, as lost."""
        for lost in [known for known in self._acknowledged if known > revision]:
            resource = self._acknowledged.pop(lost)
            self.problems.append(f"an acknowledged write of {resource} is lost after a crash")

    def follow(self, store: LogStore) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._follow(store, resource)) for resource in READ]

    def in_order(self) -> list[Version]:
        return sorted(self.versions, key=lambda version: version.revision)

    def lost_writes(self) -> list[str]:
        """Return a problem for each acknowledged write that no watch ever reported."""
        stored = {version.revision for version in self.versions}
        return [
            f"an acknowledged write of {resource} (revision {revision}) was never stored"
            for revision, resource in self._acknowledged.items()
            if revision not in stored and resource in READ
        ]

    async def _follow(self, store: LogStore, resource: str) -> None:
        # The next process follows its own store.
        with suppress(StoreFailed, StoreClosed):
            async for batch in store.watch(resource, after=self._seen.get(resource, 0)):
                for change in batch:
                    self._note(change)

    def _note(self, change: Change) -> None:
        document = change.value if change.value is not None else change.previous
        assert document is not None, "nothing is damaged here"
        self._seen[change.key.resource] = change.revision
        self.versions.append(
            Version(
                change.revision,
                change.key,
                READ[change.key.resource](document),
                change.value is None,
                asyncio.get_running_loop().time(),
            )
        )
