"""Lower bounds of the cost: bare loops without an API, a planner or a node."""

import asyncio
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from onejob.benchmarks.plane import run_like_a_server
from onejob.benchmarks.results import Cost, Measurement, percentile
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb

_FINALIZER = "batch.kubernetes.io/job-tracking"


def bare_pod_lives(*, completions: int, parallelism: int, writes: int = 4) -> Measurement:
    """Measure bare Pod life cycles: four JSON documents written per Pod.

    Two typed watchers decode each document. The writes are created, running, succeeded and freed
    (finalizer removed); one synced SQLite commit serves all pending writes. With three `writes`,
    Pods skip the running phase.
    """
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        return run_like_a_server(
            _bare_pod_lives(Path(folder), completions, parallelism, _NEXT_PHASES[writes])
        )


def five_commits(*, turns: int) -> Measurement:
    """Measure five sequential commits: a one-Pod Job waits for at least five."""
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        connection = synced_log(Path(folder) / "log.db")
        value = msgspec.json.encode(_POD)
        latencies: list[float] = []
        for turn in range(turns):
            start = time.perf_counter()
            for commit in range(5):
                insert(connection, [(turn * 5 + commit, "pod", value)])
            latencies.append((time.perf_counter() - start) * 1e3)
        connection.close()
    return Measurement({"p50, ms": percentile(latencies, 50), "p99, ms": percentile(latencies, 99)})


def synced_log(path: Path) -> apsw.Connection:
    """Open a table whose every commit waits for the disk, like the store's."""
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", 8_192)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("wal_autocheckpoint", 2_000)
    connection.execute("CREATE TABLE log (revision INTEGER PRIMARY KEY, name TEXT, value BLOB)")
    return connection


Row = tuple[int, str, bytes]


def insert(connection: apsw.Connection, rows: Sequence[Row]) -> None:
    """Insert rows in one statement, one commit: between statements, threads contend for the GIL."""
    places = ",".join(["(?,?,?)"] * len(rows))
    connection.execute(f"INSERT INTO log VALUES {places}", [cell for row in rows for cell in row])


class _Metadata(msgspec.Struct):
    name: str
    finalizers: tuple[str, ...] = ()


class _Status(msgspec.Struct):
    phase: str = ""


class _View(msgspec.Struct):
    metadata: _Metadata
    status: _Status


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_read = msgspec.json.Decoder(_View).decode


#: Phase transitions, by the number of writes per Pod.
_NEXT_PHASES: Mapping[int, Mapping[str, str]] = {
    4: {"Pending": "Running", "Running": "Succeeded"},
    3: {"Pending": "Succeeded"},
}


class _BareLoop:
    def __init__(
        self, path: Path, completions: int, parallelism: int, next_phases: Mapping[str, str]
    ) -> None:
        self._next_phases = next_phases
        self._loop = asyncio.get_running_loop()
        self._connection = synced_log(path)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self._thread.start()
        self._values: dict[str, bytes] = {}
        self._rows: list[Row] = []
        self._revision = 0
        self._committing = False
        self._flush_due = False
        self._to_create = completions
        self._to_free = completions
        self.done = self._loop.create_future()
        for _ in range(min(parallelism, completions)):
            self._create()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    def _commit(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _create(self) -> None:
        if self._to_create:
            self._to_create -= 1
            name = f"pod-{self._to_create}"
            self._write(name, {**_POD, "metadata": {**_POD["metadata"], "name": name}})

    def _write(self, name: str, document: dict[str, Any]) -> None:
        self._revision += 1
        document["metadata"]["resourceVersion"] = str(self._revision)
        value = self._values[name] = _encode(document)
        self._rows.append((self._revision, name, value))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due and not self._committing:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        rows, self._rows = self._rows, []
        self._committing = True

        def job() -> None:
            insert(self._connection, rows)
            self._loop.call_soon_threadsafe(self._publish, rows)

        self._jobs.put(job)

    def _publish(self, rows: Sequence[Row]) -> None:
        self._committing = False
        if self._rows:
            self._flush_soon()
        for _, name, value in rows:
            self._controller_step(name, _read(value))
        for _, name, value in rows:
            self._node_step(name, _read(value))

    def _controller_step(self, name: str, pod: _View) -> None:
        if pod.status.phase != "Succeeded":
            return
        if pod.metadata.finalizers:
            document = _decode(self._values[name])
            document["metadata"]["finalizers"] = []
            self._write(name, document)
            self._create()
        else:
            del self._values[name]
            self._to_free -= 1
            if not self._to_free:
                self.done.set_result(None)

    def _node_step(self, name: str, pod: _View) -> None:
        phase = self._next_phases.get(pod.status.phase)
        if phase is not None:
            document = _decode(self._values[name])
            document["status"] = {**document["status"], "phase": phase}
            self._write(name, document)


async def _bare_pod_lives(
    folder: Path, completions: int, parallelism: int, next_phases: Mapping[str, str]
) -> Measurement:
    cpu, start = cpu_seconds(), time.perf_counter()
    bare = _BareLoop(folder / "log.db", completions, parallelism, next_phases)
    await bare.done
    seconds = time.perf_counter() - start
    cost = Cost(completions, cpu_seconds() - cpu, peak_rss_mb())
    bare.close()
    return Measurement({"pods/s": completions / seconds, "seconds": seconds}, cost)


#: Typical Pod of a Job after defaulting and running.
_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "",
        "generateName": "giant-",
        "namespace": "default",
        "uid": "a3f1c2d4-5b6e-4f70-8a91-b2c3d4e5f607",
        "creationTimestamp": "2026-01-01T12:00:00Z",
        "labels": {
            "batch.kubernetes.io/controller-uid": "1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809",
            "batch.kubernetes.io/job-name": "giant",
            "controller-uid": "1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809",
            "job-name": "giant",
        },
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "giant",
                "uid": "1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": [_FINALIZER],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["/bin/true"],
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "nodeName": "node",
        "serviceAccountName": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    },
    "status": {
        "phase": "Pending",
        "qosClass": "BestEffort",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
            for kind in ("PodScheduled", "Initialized", "Ready", "ContainersReady")
        ],
    },
}
