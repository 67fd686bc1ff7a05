"""Job of a hundred thousand completions, watched from start to end: `make big-job`.

Every version of its status is checked: the number and size of its uncounted Pods, and that no
counter decreases. A Job of one Pod is submitted while it runs.
"""

import asyncio
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onejob.client.base import Selection
from onejob.control_plane import ControlPlane
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, Key
from onejob.virtual_time import run_virtual
from tests.job.terms import a_plane, create_job

UIDS_MAY_TAKE_BYTES = 20_000
MEMORY_MAY_GROW_MB = 600


@dataclass
class Witness:
    """Observations of the big Job and of the small one."""

    statuses: int = 0
    most_uids: int = 0
    most_uid_bytes: int = 0
    falls: int = 0
    #: Commits, mostly for the big Job, while the small one was running.
    turns_of_small: int = 0
    most_cached_pods: int = 0
    last: Job | None = None
    small_started: bool = False
    small_finished: bool = False

    def see(self, job: Job) -> None:
        self.statuses += 1
        uncounted = job.status.uncounted_terminated_pods
        uids = (*uncounted.succeeded, *uncounted.failed) if uncounted else ()
        self.most_uids = max(self.most_uids, len(uids))
        # Each is encoded with its quotes and a comma.
        self.most_uid_bytes = max(self.most_uid_bytes, sum(len(uid) + 3 for uid in uids))
        if self.last is not None:
            self.falls += job.status.succeeded < self.last.status.succeeded
        self.last = job


async def run_big_job(folder: Path, *, completions: int, parallelism: int, mode: str) -> Witness:
    async with a_plane(folder) as plane:
        witness = Witness()
        big = await create_job(
            plane,
            "big",
            completions=completions,
            parallelism=parallelism,
            completionMode=mode,
        )
        await _watch(plane, big, witness, completions)
        return witness


async def _watch(plane: ControlPlane, big: Key, witness: Witness, completions: int) -> None:
    async for batch in plane.client.watch(Selection(JOBS), after=0):
        for event in batch:
            if event.type == "BOOKMARK":
                continue
            job = read_job(event.document)
            if event.key == big:
                witness.see(job)
            elif job.finished and not witness.small_finished:
                witness.small_finished = True
                witness.turns_of_small = plane.store.commits - witness.turns_of_small
        cached = len(plane.informers.pods.cache)
        witness.most_cached_pods = max(witness.most_cached_pods, cached)
        done = witness.last.status.succeeded if witness.last is not None else 0
        if done >= completions // 4 and not witness.small_started:
            witness.small_started = True
            witness.turns_of_small = plane.store.commits
            await create_job(plane, "small")
        if witness.last is not None and witness.last.finished and witness.small_finished:
            # The cleanup after the end must still fit into memory and into the store.
            await asyncio.sleep(60)
            return


def problems(witness: Witness, completions: int, parallelism: int) -> list[str]:
    found: list[Any] = []
    job = witness.last
    if job is None or not job.condition_is_true("Complete"):
        found.append("it did not complete")
    elif (job.status.succeeded, job.status.failed, job.status.active) != (completions, 0, 0):
        found.append(f"its counters are {job.status}")
    elif job.indexed and job.status.completed_indexes != f"0-{completions - 1}":
        found.append(f"its indexes are {job.status.completed_indexes}")
    if witness.most_uids > 500 or witness.most_uid_bytes > UIDS_MAY_TAKE_BYTES:
        found.append(f"a status listed {witness.most_uids} UIDs")
    if witness.falls:
        found.append(f"a counter fell {witness.falls} times")
    if not witness.small_finished:
        found.append("the small Job did not finish")
    if witness.most_cached_pods > 4 * parallelism + 1000:
        found.append(f"{witness.most_cached_pods} Pods were kept in memory")
    return found


def main() -> int:
    completions = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    parallelism = min(500, completions)
    failed = 0
    for mode in ("NonIndexed", "Indexed"):
        before, started = _memory_mb(), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="onejob-big-") as folder:
            witness = run_virtual(
                run_big_job(
                    Path(folder), completions=completions, parallelism=parallelism, mode=mode
                )
            )
        grown = _memory_mb() - before
        wrong = problems(witness, completions, parallelism)
        if grown > MEMORY_MAY_GROW_MB:
            wrong.append(f"memory grew by {grown} MB")
        failed += bool(wrong)
        print(
            f"{mode}: {completions} completions in {time.monotonic() - started:.0f} s, "
            f"{witness.statuses} statuses, at most {witness.most_uids} UIDs "
            f"({witness.most_uid_bytes} bytes) in one, at most {witness.most_cached_pods} Pods "
            f"cached, memory +{grown} MB, small Job done within {witness.turns_of_small} commits: "
            f"{'; '.join(wrong) or 'as it should be'}",
            flush=True,
        )
    return 1 if failed else 0


def _memory_mb() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.exit(main())
