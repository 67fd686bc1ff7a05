"""State that the Job controller keeps of a Job between syncs."""

import pytest

from onejob.controllers.job_state import JobState
from onejob.planning.job.counting import count_pods
from tests.planning.build import a_job, a_pod


@pytest.mark.edge_case(23)
def test_a_pod_whose_finalizer_was_removed_is_not_counted_twice() -> None:
    job = a_job(completions=5, status={"succeeded": 1})
    state = JobState()
    pod = a_pod("done", "S")
    state.put(pod)
    assert count_pods(job, state.census).succeeded == 2
    # The server reported that the Pod is gone: its finalizer was the last.
    state.drop_before_cache(pod.metadata.uid)
    assert not state.put(pod), "the cache shows it still"
    assert count_pods(job, state.census).succeeded == 1
    # The cache shows its deletion: the UID need not be kept any longer.
    state.drop(pod.metadata.uid)
    assert not state.gone
