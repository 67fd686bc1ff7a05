"""Job controller killed after every single write: the counters are exact every time."""

from pathlib import Path

import pytest

from onejob.objects.pod import Pod
from onejob.virtual_time import run_virtual
from tests.scripted_cluster import CountingClient, Script, a_cluster

POD_COUNT = 20


def every_fifth_fails() -> Script:
    seen: dict[str, int] = {}

    def script(pod: Pod) -> int:
        number = seen.setdefault(pod.metadata.uid, len(seen))
        return 1 if number % 5 == 4 else 0

    return script


async def _run(folder: Path, dies_after: int | None, mode: str) -> int:
    """Run the Job to its end, with one crash of the controller. Return its number of writes."""
    async with a_cluster(folder) as cluster:
        node = cluster.start_node(every_fifth_fails())
        first = CountingClient(cluster.client, dies_after=dies_after)
        controller = await cluster.start_job_controller(first)
        key = await cluster.create_job(
            completions=POD_COUNT,
            parallelism=7,
            backoffLimit=1000,
            completionMode=mode,
            annotations={"onejob.dev/backoff-seconds": "0"},
        )
        if dies_after is not None:
            await first.dead.wait()
            await controller.stop()
            controller = await cluster.start_job_controller()
        job = await cluster.until_finished(key)
        await controller.stop()
        assert job.condition_is_true("Complete")
        assert job.status.succeeded == POD_COUNT == node.succeeded
        assert job.status.failed == node.failed
        assert len(node.started) == node.succeeded + node.failed
        return first.ops


@pytest.mark.parametrize("mode", ["Indexed", pytest.param("NonIndexed", marks=pytest.mark.nightly)])
def test_no_crash_loses_or_double_counts_a_pod(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    writes = run_virtual(_run(folder, None, mode))
    assert writes > 3 * POD_COUNT, "each Pod is created, listed and freed"
    for position in range(1, writes):
        folder = tmp_path / str(position)
        folder.mkdir()
        run_virtual(_run(folder, position, mode))
