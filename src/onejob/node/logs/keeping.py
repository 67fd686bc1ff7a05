"""Retention of the logs of deleted Pods, limited by age and total size.

<data dir>/kept-logs/<milliseconds>-<uid>/pod.json     the Pod that they belong to
<data dir>/kept-logs/<milliseconds>-<uid>/logs/        the files from the Pod's folder

The number is the time of the Pod's deletion, so that names sort by age.
"""

import asyncio
import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.node.options import LogRetention
from onejob.node.removal import remove_trees
from onejob.objects.pod import Pod
from onejob.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

FOLDER = "kept-logs"
_RECORD = "pod.json"
_LOGS = "logs"
#: Seconds between checks for expired logs, in addition to one after each deletion.
_LOOK_SECONDS = 3600.0


class KeptPod(msgspec.Struct, frozen=True, rename="camel"):
    """Pod whose logs are kept."""

    namespace: str
    name: str
    uid: str
    deleted_at: datetime
    labels: dict[str, str] = {}
    #: Kind and name of its controller; empty if it had none.
    owner_kind: str = ""
    owner_name: str = ""


class KeptLogs:
    """Archive of deleted Pods' logs. It must receive changes before the runtime, which removes a
    deleted Pod's folder."""

    def __init__(self, data_dir: Path, clock: Clock, retention: LogRetention) -> None:
        self._data_dir = data_dir
        self._folder = data_dir / FOLDER
        self._clock = clock
        self._retention = retention
        #: A single thread, so that its totals match the disk.
        self._thread = WorkerThreads(1, "kept-logs")
        self._sizes: deque[tuple[str, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure the existing logs, and check for expired ones periodically."""
        self._thread.submit(self._log_errors, self._measure_all)
        self._prune_periodically()

    def pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            if delta.new is None and delta.old is not None and delta.old.spec.node_name:
                self._archive(delta.old)

    async def close(self) -> None:
        """Stop removing logs, after the removal in progress."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    def _prune_periodically(self) -> None:
        self._thread.submit(self._log_errors, self._prune)
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._prune_periodically)

    def _archive(self, pod: Pod) -> None:
        """Archive the logs of a deleted Pod, if there are any: a few system calls, made
        synchronously before its folder is removed."""
        metadata = pod.metadata
        source = f"{self._data_dir}/pods/{metadata.uid}/{_LOGS}"
        try:
            # A container may have replaced the folder by a link; that is not kept.
            if not stat.S_ISDIR(os.lstat(source).st_mode):
                return
            now = self._clock.now()
            name = f"{int(now.timestamp() * 1000):014}-{metadata.uid}"
            target = self._folder / name
            self._folder.mkdir(0o700, exist_ok=True)
            target.mkdir(0o700)
            (target / _RECORD).write_bytes(msgspec.json.encode(_record(pod, now)))
            os.rename(source, target / _LOGS)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot keep logs of pod %s: %s", metadata.name, error)
            return
        self._thread.submit(self._log_errors, lambda: self._add_size(name))

    def _log_errors(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            log.warning("kept logs: %s", error)

    # --- in the worker thread

    def _measure_all(self) -> None:
        self._sizes = deque(
            (name, _size(self._folder / name)) for name in _list_folder(self._folder)
        )

    def _add_size(self, name: str) -> None:
        if all(name != known for known, _ in self._sizes):
            self._sizes.append((name, _size(self._folder / name)))
        self._prune()

    def _prune(self) -> None:
        """Remove the oldest logs beyond the limits, and set a timer for the next."""
        oldest = self._clock.now().timestamp() - self._retention.seconds
        total = sum(size for _, size in self._sizes)
        gone: list[str] = []
        while self._sizes:
            name, size = self._sizes[0]
            if _deleted_at(name) >= oldest and total <= self._retention.size_bytes:
                break
            self._sizes.popleft()
            total -= size
            gone.append(str(self._folder / name))
        remove_trees(gone)


def kept_pods(data_dir: Path) -> Iterator[tuple[KeptPod, Path]]:
    """Yield the archived Pods below a data directory, oldest first, with their folders. Unreadable
    entries are skipped."""
    folder = data_dir / FOLDER
    for name in _list_folder(folder):
        try:
            record = (folder / name / _RECORD).read_bytes()
            yield msgspec.json.decode(record, type=KeptPod), folder / name
        except (OSError, msgspec.DecodeError):
            continue


def kept_attempts(folder: Path) -> dict[str, list[Path]]:
    """Return the logs in an archived Pod's folder by container: one per attempt, in order."""
    found: dict[str, list[Path]] = {}
    for container in sorted(_list_folder(folder / _LOGS)):
        place = folder / _LOGS / container
        if not stat.S_ISDIR(place.lstat().st_mode):
            continue
        numbers = {int(name.split(".")[0]) for name in os.listdir(place) if name[:1].isdigit()}
        found[container] = [place / f"{number}.log" for number in sorted(numbers)]
    return found


def _record(pod: Pod, now: datetime) -> KeptPod:
    """Return the record of a deleted Pod."""
    metadata = pod.metadata
    owner = metadata.controller_ref
    return KeptPod(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        now,
        metadata.labels,
        "" if owner is None else owner.kind,
        "" if owner is None else owner.name,
    )


def _list_folder(folder: Path) -> list[str]:
    """Return the sorted entries of a folder; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _deleted_at(name: str) -> float:
    """Return the deletion time in the name, in Unix seconds; 0 for names of other origin."""
    number = name.partition("-")[0]
    return int(number) / 1000 if number.isdigit() and len(number) < 16 else 0.0


def _size(folder: Path) -> int:
    """Return the total size of the files in a folder."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return total
