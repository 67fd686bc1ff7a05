"""TTL backlog: a great many finished Jobs that expire at the same moment."""

import asyncio
import logging
import tempfile
import time
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from onejob.benchmarks.limits import insert, synced_log
from onejob.benchmarks.plane import NAMESPACE, a_job, a_plane, run_like_a_server
from onejob.benchmarks.results import Measurement, percentile
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb
from onejob.client.base import Client, Create, Op, Patch, Selection, WatchEvent
from onejob.clock import SystemClock
from onejob.objects.meta import JOBS, PODS, Key
from onejob.wire.errors import ApiError

_OLD = "old-"
_TTL = timedelta(hours=1)
_BATCH = 500


def expiring_jobs(*, jobs: int, pods: int) -> Measurement:
    """Measure the time until the last of `jobs` expired Jobs is deleted.

    `pods` of the Jobs still have a Pod (Pod GC keeps no more than some thousands). Also measures
    the latency of one-Pod Jobs meanwhile.
    """
    return run_like_a_server(_expiring_jobs(jobs, pods))


def bare_deletions(*, jobs: int, at_once: int) -> Measurement:
    """Measure the writes of foreground deletion without an API: the limit.

    Each Job is read, written once more with its deletionTimestamp, and deleted; one synced commit
    for each `at_once` of them.
    """
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        return _bare_deletions(Path(folder), jobs, at_once)


async def _expiring_jobs(jobs: int, pods: int) -> Measurement:
    clock = _LeapingClock()
    async with a_plane(clock=clock) as measured:
        client = measured.client
        await fill(client, clock, jobs, pods)
        follower = _Follower(client, jobs)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follower.run(measured.plane.store.revision))
            cpu, start = cpu_seconds(), time.perf_counter()
            clock.leap(_TTL)
            # A Job that expired before all others, so that the controller reads the advanced clock.
            await _write(client, [_creation("poke", ttl_seconds=0)])
            await _write(client, [_ending("poke", clock.now() - 2 * _TTL)])
            latencies: list[float] = []
            while not follower.all_gone.is_set():
                latencies.append(await _one_job(client, follower, f"fresh-{len(latencies)}"))
            seconds = follower.gone_at - start
            cpu = cpu_seconds() - cpu
            following.cancel()
    milliseconds = [latency * 1e3 for latency in latencies]
    return Measurement(
        {
            "seconds": seconds,
            "Jobs deleted/s": jobs / seconds,
            "CPU per Job, µs": cpu / jobs * 1e6,
            "peak RSS, MB": peak_rss_mb(),
            "fresh Jobs meanwhile": len(latencies),
            "fresh Job p50, ms": percentile(milliseconds, 50),
            "fresh Job p99, ms": percentile(milliseconds, 99),
        }
    )


class _LeapingClock(SystemClock):
    """System clock that can be set forward."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self._ahead

    def leap(self, by: timedelta) -> None:
        self._ahead += by


class _Follower:
    """Watch of Jobs that detects the deletion of old Jobs and the completion of fresh ones."""

    def __init__(self, client: Client, old: int) -> None:
        self._client = client
        self._left = old
        self._fresh: dict[str, asyncio.Future[None]] = {}
        self.all_gone = asyncio.Event()
        self.gone_at = 0.0

    async def run(self, after: int) -> None:
        async with aclosing(self._client.watch(Selection(JOBS), after=after)) as batches:
            async for batch in batches:
                for event in batch:
                    self._process_event(event)

    def complete(self, name: str) -> "asyncio.Future[None]":
        return self._fresh.setdefault(name, asyncio.get_running_loop().create_future())

    def _process_event(self, event: WatchEvent) -> None:
        name = event.key.name
        if name.startswith(_OLD):
            self._left -= event.type == "DELETED"
            if not self._left and not self.all_gone.is_set():
                self.gone_at = time.perf_counter()
                self.all_gone.set()
        # Searched in the raw bytes: decoding would burden the measured event loop.
        elif name in self._fresh and b'"type":"Complete"' in event.document:
            self._fresh.pop(name).set_result(None)


async def _one_job(client: Client, follower: _Follower, name: str) -> float:
    start = time.perf_counter()
    complete = follower.complete(name)
    await client.write(a_job(name, completions=1, parallelism=1))
    await complete
    return time.perf_counter() - start


async def fill(client: Client, clock: SystemClock, jobs: int, pods: int) -> None:
    """Create finished Jobs, the first `pods` of them with a finished Pod each."""
    # Suppress the log message per Job that another controller manages it.
    logging.getLogger("onejob.controllers.job_events").setLevel(logging.ERROR)
    uids: list[str] = []
    for first in range(0, jobs, _BATCH):
        names = [f"{_OLD}{number}" for number in range(first, min(first + _BATCH, jobs))]
        ttl_seconds = int(_TTL.total_seconds())
        uids += await _write(client, [_creation(name, ttl_seconds) for name in names])
        await _write(client, [_ending(name, clock.now()) for name in names])
    revision = (await client.list(Selection(PODS), limit=1)).revision
    for first in range(0, pods, _BATCH):
        numbers = range(first, min(first + _BATCH, pods))
        await _write(client, [_pod(f"{_OLD}{number}", uids[number]) for number in numbers])
    await _all_ended(client, pods, revision)


async def _write(client: Client, ops: Sequence[Op]) -> list[str]:
    """Write all operations and return the UIDs of the objects. Raises the first ApiError."""
    uids = []
    for result in await client.write_many(ops):
        if isinstance(result, ApiError):
            raise result
        uids.append(msgspec.json.decode(result.document)["metadata"]["uid"])
    return uids


async def _all_ended(client: Client, pods: int, after: int) -> None:
    ended: set[str] = set()
    if not pods:
        return
    async with aclosing(client.watch(Selection(PODS), after=after)) as batches:
        async for batch in batches:
            ended.update(e.key.name for e in batch if b'"phase":"Succeeded"' in e.document)
            if len(ended) == pods:
                return


_POD_SPEC = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "none", "command": ["/bin/true"]}],
}


def _creation(name: str, ttl_seconds: int) -> Create:
    """Return the creation of a Job that appears finished without running.

    `managedBy` makes the Job controller ignore it.
    """
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "managedBy": "onejob.dev/bench",
            "ttlSecondsAfterFinished": ttl_seconds,
            "template": {"spec": _POD_SPEC},
        },
    }
    return Create(JOBS, NAMESPACE, msgspec.json.encode(document))


def _ending(name: str, at: datetime) -> Patch:
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": stamp, "lastTransitionTime": stamp}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"conditions": conditions, "startTime": stamp, "completionTime": stamp, "succeeded": 1}
    body = msgspec.json.encode({"status": status})
    return Patch(Key(JOBS, NAMESPACE, name), body, "merge", "status")


def _pod(job: str, uid: str) -> Create:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": job, "ownerReferences": [owner]},
        "spec": _POD_SPEC,
    }
    return Create(PODS, NAMESPACE, msgspec.json.encode(document))


def _bare_deletions(folder: Path, jobs: int, at_once: int) -> Measurement:
    connection = synced_log(folder / "log.db")
    connection.execute("CREATE INDEX log_name ON log (name)")
    value = msgspec.json.encode(_FINISHED_JOB)
    for first in range(0, jobs, _BATCH):
        numbers = range(first, min(first + _BATCH, jobs))
        insert(connection, [(number, f"{_OLD}{number}", value) for number in numbers])
    cpu, start = cpu_seconds(), time.perf_counter()
    for first in range(0, jobs, at_once):
        numbers = range(first, min(first + at_once, jobs))
        rows = [(jobs + n, f"{_OLD}{n}", _backdated(connection, f"{_OLD}{n}")) for n in numbers]
        insert(connection, rows)
        places = ",".join("?" * len(rows))
        connection.execute(f"DELETE FROM log WHERE name IN ({places})", [row[1] for row in rows])
    seconds = time.perf_counter() - start
    cpu = cpu_seconds() - cpu
    connection.close()
    return Measurement(
        {
            "seconds": seconds,
            "Jobs deleted/s": jobs / seconds,
            "CPU per Job, µs": cpu / jobs * 1e6,
            "peak RSS, MB": peak_rss_mb(),
        }
    )


def _backdated(connection: Any, name: str) -> bytes:
    (value,) = connection.execute("SELECT value FROM log WHERE name = ?", (name,)).fetchone()
    document = msgspec.json.decode(value)
    document["metadata"]["deletionTimestamp"] = "2026-01-01T13:00:00Z"
    return msgspec.json.encode(document)


#: Typical Job after defaulting, finished.
_FINISHED_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "old",
        "namespace": "default",
        "uid": "a3f1c2d4-5b6e-4f70-8a91-b2c3d4e5f607",
        "creationTimestamp": "2026-01-01T12:00:00Z",
        "generation": 1,
    },
    "spec": {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "a3f1c2d4"}},
        "template": {"spec": _POD_SPEC},
        "ttlSecondsAfterFinished": 3600,
    },
    "status": {
        "conditions": [{"type": "Complete", "status": "True"}],
        "startTime": "2026-01-01T12:00:00Z",
        "completionTime": "2026-01-01T12:00:00Z",
        "succeeded": 1,
    },
}
