"""Operation counters: unlike times, they are the same on every machine.

Writes are revisions of the store, commits are transactions on its disk, syncs are reconciles of the
Job controller, decodes and encodes are calls of the JSON codec, and calls are calls of any
function, Python's built-ins included.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from onejob.control_plane import ControlPlane
from onejob.store.base import StoreError
from onejob.store.writer import Committer, Done, Job

_CALLS = frozenset(("call", "c_call"))
_CODEC = "msgspec"
_OPERATIONS = {
    "decode": "decodes",
    "json_decode": "decodes",
    "encode": "encodes",
    "json_encode": "encodes",
}


class CountingCommitter:
    """Committer wrapper that counts commits; other jobs are maintenance of the database file."""

    def __init__(self, inner: Committer) -> None:
        self.commits = 0
        self.revision: Callable[[], int] = int
        self._inner = inner

    def submit(self, job: Job, done: Done) -> None:
        def count(error: StoreError | None) -> None:
            before = self.revision()
            done(error)
            # Only a commit makes revisions visible.
            self.commits += self.revision() > before

        self._inner.submit(job, count)

    def stop(self) -> None:
        self._inner.stop()


def operations(plane: ControlPlane, committer: CountingCommitter) -> Counter[str]:
    """Return the counts since the start of the control plane."""
    return Counter(
        writes=plane.store.revision,
        commits=committer.commits,
        syncs=sum(_values(plane, "job_controller_job_syncs_total")),
    )


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items()}


@contextmanager
def counting_calls() -> Iterator[Counter[str]]:
    """Count the calls of this thread, and the JSON codec's among them.

    Slow: not for timed code.
    """
    counts: Counter[str] = Counter(decodes=0, encodes=0, calls=0)

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event in _CALLS:
            counts["calls"] += 1
        if event == "c_call" and (operation := _OPERATIONS.get(called.__name__)):
            # The module of a function; the codec type's module for a method.
            owner = called.__self__
            home = getattr(owner, "__name__", type(owner).__module__)
            if home.startswith(_CODEC):
                counts[operation] += 1

    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(None)


def _values(plane: ControlPlane, metric: str) -> Iterator[int]:
    for line in plane.metrics.exposition().splitlines():
        if line.startswith(metric + "{"):
            yield int(line.rpartition(" ")[2])
