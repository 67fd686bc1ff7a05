"""Every version of every object that matters, in the order in which they were stored."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, JOBS, NAMESPACES, PODS, Key, Meta, View
from onejob.objects.pod import Pod, read_pod
from onejob.store.base import Change, StoreClosed, StoreFailed
from onejob.store.log import LogStore


class Namespace(View, frozen=True):
    metadata: Meta = Meta()


Subject: TypeAlias = Job | Pod | CronJob | Namespace

READ: Mapping[str, Callable[[bytes], Subject]] = {
    JOBS: read_job,
    PODS: read_pod,
    CRONJOBS: read_cronjob,
    NAMESPACES: msgspec.json.Decoder(Namespace).decode,
}


@dataclass(frozen=True)
class Version:
    """An object as it was stored at a revision, or as it was when it went."""

    revision: int
    key: Key
    subject: Subject
    gone: bool
    at: float


@dataclass
class History:
    """Follows each process of the control plane in turn. What a crash left on disk, and nobody
    was shown, is shown by the next process."""

    versions: list[Version] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: Writes that somebody was told are safe: revisions, with their resource where it is known.
    _acknowledged: dict[int, str] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def acknowledge(self, resource: str, revision: int) -> None:
        self._acknowledged[revision] = resource

    def check_restart(self, revision: int) -> None:
        """A new process found this revision on disk, and has not written anything yet."""
        for lost in [known for known in self._acknowledged if known > revision]:
            resource = self._acknowledged.pop(lost)
            self.problems.append(f"an acknowledged write of {resource} is lost after a crash")

    def follow(self, store: LogStore) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._follow(store, resource)) for resource in READ]

    def in_order(self) -> list[Version]:
        return sorted(self.versions, key=lambda version: version.revision)

    def lost_writes(self) -> list[str]:
        """Acknowledged, and never seen by anybody."""
        stored = {version.revision for version in self.versions}
        return [
            f"an acknowledged write of {resource} (revision {revision}) was never stored"
            for revision, resource in self._acknowledged.items()
            if revision not in stored and resource in READ
        ]

    async def _follow(self, store: LogStore, resource: str) -> None:
        # The next life follows the store that it opens.
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
