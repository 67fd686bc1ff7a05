"""Full disk at any moment of a Job: lost writes are repeated, and nothing happens twice."""

from pathlib import Path

import pytest

from onejob.virtual_time import run_virtual
from tests.client.write_series_support import FailingCommitter
from tests.scripted_cluster import a_cluster


async def live(folder: Path, mode: str, failing: range) -> tuple[int, int, int]:
    """Return the numbers of succeeded Pods, failed Pods and commits.

    Commits in `failing` fail, counted from the creation of the Job on.
    """
    committer = FailingCommitter()
    async with a_cluster(folder, committer=committer) as cluster:
        job = await cluster.create_job(
            completions=6, parallelism=3, completionMode=mode, backoffSeconds=0
        )
        first = committer.commits
        committer.fails_at = {first + number for number in failing}
        fails = iter((1, 0, 1))
        codes: dict[str, int] = {}
        node = cluster.start_node(lambda pod: codes.setdefault(pod.metadata.uid, next(fails, 0)))
        controller = await cluster.start_job_controller()
        finished = await cluster.until_finished(job)
        await controller.stop()
        assert finished.condition_is_true("Complete")
        assert finished.status.failed == node.failed
        return finished.status.succeeded, finished.status.failed, committer.commits - first


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_counters_are_exact_whichever_commits_fail(tmp_path: Path, mode: str) -> None:
    succeeded, failed, commits = run_virtual(live(tmp_path, mode, range(0)))
    assert (succeeded, failed) == (6, 2)
    assert commits > 10
    for position in range(1, commits):
        for length in (1, 2):
            failing = range(position, position + length)
            folder = tmp_path / f"{position}-{length}"
            folder.mkdir()
            assert run_virtual(live(folder, mode, failing))[:2] == (6, 2), failing
