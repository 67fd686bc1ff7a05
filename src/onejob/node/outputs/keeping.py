"""Quota and retention of outputs: fail Pods that write too much, remove those of deleted Pods.

A directory is measured at least every second while its Pod runs. Outputs of existing Pods are never
removed; those of deleted Pods are when they are too old, or when they are too many, oldest first.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from onejob.client.base import Client, Patch
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.node.options import OutputRetention
from onejob.node.outputs.archive import used_bytes
from onejob.node.outputs.folders import DELETED, FILES, FOLDER, KeptOutput, kept_outputs
from onejob.node.removal import remove_trees
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod
from onejob.planning.pod.outputs import quota_patch
from onejob.wire.errors import ApiError
from onejob.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

#: Seconds between two measurements: together with the time that one takes, less than a second.
_MEASURE_SECONDS = 0.5
#: Seconds between checks for expired outputs, in addition to one after each deletion.
_LOOK_SECONDS = 3600.0


class OutputKeeper:
    """Quota and retention of the outputs of one node.

    Requirements: `opened` is called for each Pod that gets a directory, and `pods_changed` with all
    changes of Pods.
    """

    def __init__(
        self, data_dir: Path, clock: Clock, retention: OutputRetention, client: Client
    ) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._retention = retention
        self._client = client
        #: Namespace and name of the Pods whose outputs exist and that exist themselves, by UID.
        self._known: dict[str, tuple[str, str]] = {}
        #: Those of them that may still write.
        self._writing: set[str] = set()
        self._wake = asyncio.Event()
        self._prune_due = asyncio.Event()
        self._thread: WorkerThreads | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: While the first Pods are listed: the known ones that exist.
        self._seen: set[str] | None = None

    def inherit(self) -> None:
        """Take over the outputs of an earlier run of the server. Call before `pods_changed`."""
        self._seen = set()
        for kept in kept_outputs(self._data_dir):
            if not (kept.folder / DELETED).exists():
                self._known[kept.record.uid] = (kept.record.namespace, kept.record.name)
        self._writing.update(self._known)

    def start(self) -> None:
        """Begin to measure and prune. Call once all existing Pods were passed to `pods_changed`."""
        if self._seen is not None:
            seen, self._seen = self._seen, None
            for uid in self._known.keys() - seen:
                self._deleted(uid)
        self._thread = WorkerThreads(1, "outputs")
        self._tasks = [
            asyncio.create_task(self._measure_all(self._thread)),
            asyncio.create_task(self._prune_all(self._thread)),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.shutdown)

    def opened(self, namespace: str, name: str, uid: str) -> None:
        """Watch the directory of a Pod that is about to start."""
        self._known[uid] = namespace, name
        self._writing.add(uid)
        if self._seen is not None:
            self._seen.add(uid)
        self._wake.set()

    def pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        known = self._known
        if not known:
            return
        for delta in deltas:
            pod = delta.new or delta.old
            if pod is None or (uid := pod.metadata.uid) not in known:
                continue
            if delta.new is None:
                self._deleted(uid)
                continue
            if self._seen is not None:
                self._seen.add(uid)
            if pod.terminal:
                self._writing.discard(uid)

    def _deleted(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._writing.discard(uid)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(self._data_dir / FOLDER / uid / DELETED, flags, 0o600))
        except OSError as error:
            # The next start notices that the Pod is gone.
            log.warning("outputs of a deleted pod: %s", error)
        self._prune_due.set()

    # --- quota ----------------------------------------------------------------------------

    async def _measure_all(self, thread: WorkerThreads) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._writing:
                self._wake.clear()
                await self._wake.wait()
            over = await loop.run_in_executor(thread, self._find_over, list(self._writing))
            for uid in over:
                await self._exceeded(uid)
            await asyncio.sleep(_MEASURE_SECONDS)

    def _find_over(self, uids: Sequence[str]) -> list[str]:
        limit = self._retention.quota_bytes
        over = []
        for uid in uids:
            folder = self._data_dir / FOLDER / uid
            try:
                used = used_bytes(str(folder / FILES), limit)
                # Progress is a few lines: a file that outgrows the quota is an output, too.
                used = max(used, os.lstat(folder / "progress").st_size)
            except OSError:
                continue
            if used > limit:
                over.append(uid)
        return over

    async def _exceeded(self, uid: str) -> None:
        if uid not in self._writing:
            return
        namespace, name = self._known[uid]
        limit = self._retention.quota_bytes
        message = f"its outputs exceed the quota of {limit} bytes (--output-quota)"
        try:
            await self._fail(Key(PODS, namespace, name), uid, message)
        except (ApiError, OSError) as error:
            # The next measurement repeats it.
            log.info("pod %s/%s: %s, but cannot be failed: %s", namespace, name, message, error)
        else:
            self._writing.discard(uid)

    async def _fail(self, key: Key, uid: str, message: str) -> None:
        """Fail a Pod through its status; the node agent then stops its containers.

        Raises ApiError.
        """
        document = msgspec.json.decode(await self._client.get(key))
        ended = document.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if document["metadata"]["uid"] == uid and not ended:
            patch = quota_patch(document, message, self._clock.now())
            await self._client.write(Patch(key, patch, "strategic", "status"))

    # --- retention ------------------------------------------------------------------------

    async def _prune_all(self, thread: WorkerThreads) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._prune_due.clear()
            try:
                await loop.run_in_executor(thread, self._prune)
            except OSError as error:
                log.warning("outputs: %s", error)
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._prune_due.wait()
            except TimeoutError:
                continue

    def _prune(self) -> None:
        retention = self._retention
        found: list[tuple[float, KeptOutput]] = []
        for kept in kept_outputs(self._data_dir):
            try:
                found.append(((kept.folder / DELETED).stat().st_mtime, kept))
            except OSError:
                # Its Pod exists.
                continue
        found.sort(key=lambda pair: (pair[0], pair[1].record.uid))
        sizes = [_size(kept, retention.quota_bytes) for _, kept in found]
        oldest, total = self._clock.now().timestamp() - retention.seconds, sum(sizes)
        gone = []
        for (deleted_at, kept), size in zip(found, sizes, strict=True):
            if deleted_at >= oldest and total <= retention.size_bytes:
                break
            total -= size
            gone.append(str(kept.folder))
        remove_trees(gone)


def _size(kept: KeptOutput, limit: int) -> int:
    try:
        return used_bytes(kept.files, limit)
    except OSError:
        return 0
