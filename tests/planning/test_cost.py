"""Cost of a sync: proportional to the changes, not to the size of the Job.

Counted in accesses to Pods, not time.
"""

from collections import Counter
from typing import Any

import pytest

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.counting import JobPods
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Observed
from onejob.planning.job.planner import plan_job
from tests.planning.build import NOON, a_job, a_pod, an_indexed_job, carried_out, stamp

PARALLELISM = 300
STARTED = {"startTime": stamp(NOON), "active": PARALLELISM, "ready": PARALLELISM, "terminating": 0}


class Looks:
    """Counter of accesses to Pods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: Counter[str] = Counter()
        for name in ("metadata", "status", "spec"):
            monkeypatch.setattr(Pod, name, self._counting(getattr(Pod, name), name))

    def _counting(self, member: Any, name: str) -> property:
        def look(pod: Pod) -> Any:
            self.count[name] += 1
            return member.__get__(pod, Pod)

        return property(look)

    @property
    def total(self) -> int:
        return self.count.total()


def running_job(mode: str, completions: int) -> tuple[Job, JobPods]:
    """Return a Job almost half done, at full parallelism, with one Pod that has just succeeded."""
    indexed = mode == "Indexed"
    done = completions // 2
    status = dict(STARTED)
    if indexed:
        status |= {"completedIndexes": f"0-{done - 1}", "succeeded": done}
        job = an_indexed_job(completions=completions, parallelism=PARALLELISM, status=status)
    else:
        status |= {"succeeded": done}
        job = a_job(completions=completions, parallelism=PARALLELISM, status=status)
    pods = [a_pod(f"p{n}", "R", index=done + n if indexed else None) for n in range(PARALLELISM)]
    census = JobPods(pods)
    census.put(a_pod("p7", "S", index=done + 7 if indexed else None, ended_at=NOON))
    return job, census


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_sync_looks_only_at_the_pods_that_ended(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    for completions in (1_000, 100_000):
        job, census = running_job(mode, completions)
        with monkeypatch.context() as patch:
            counter = Looks(patch)
            plan = plan_job(job, census, Observed(), NOON, Settings())
            accounting = carried_out(plan)
            looks.append(counter.total)
        assert [removal.name for removal in accounting.removals] == ["p7"]
        assert len(plan.creations) == 1
        assert accounting.status.active == PARALLELISM
    assert looks[0] == looks[1], "the cost depends on the size of the Job"
    assert 0 < looks[0] < 60, f"{looks[0]} looks for one Pod of {PARALLELISM} that ended"


def test_a_kept_census_equals_one_made_anew() -> None:
    census = JobPods()
    for phase in "PRSF":
        for deleting in (False, True):
            for tracked in (True, False):
                for index in (None, 1):
                    pod = a_pod("p", phase, index=index, deleting=deleting, tracked=tracked)
                    census.put(pod)
                    anew = JobPods([pod])
                    for group in ("active", "ending", "ended", "accounted", "ready"):
                        assert getattr(census, group) == getattr(anew, group)
                    assert census.active_by_index == anew.active_by_index
    census.remove("p")
    census.remove("never seen")
    assert list(census) == []
    assert census.active_by_index == {}
