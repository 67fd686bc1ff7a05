"""Backoff across restarts: a new control plane waits as long as the old one would have."""

import asyncio
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Delete, Patch, Selection
from onejob.objects.meta import PODS
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.pod_facts import finish_time
from onejob.planning.names import INDEX_ANNOTATION
from onejob.virtual_time import run_virtual
from tests.job.terms import a_plane, a_term, create_job, template

pytestmark = pytest.mark.virtual_time


def fails(pod: Pod) -> int:
    return 1


def created(pod: Pod) -> datetime:
    assert pod.metadata.creation_timestamp is not None
    return pod.metadata.creation_timestamp


def waits_between(pods: list[Pod]) -> list[float]:
    """Return the seconds from the end of each Pod to the creation of the next."""
    return [
        (created(after) - finish_time(before)).total_seconds()
        for before, after in pairwise(sorted(pods, key=created))
    ]


@pytest.mark.parametrize("restart_after", [2.0, 15.0, 50.0, 100.0])
async def test_a_restart_does_not_shorten_the_wait_before_a_retry(
    tmp_path: Path, restart_after: float
) -> None:
    async with a_term(tmp_path, script=fails) as term:
        await term.cluster.create_job(backoffLimit=6)
        await asyncio.sleep(restart_after)
    async with a_term(tmp_path, script=fails) as term:
        await asyncio.sleep(400 - restart_after)
        waits = waits_between(await term.pods_of("job"))
    # Times of Pods are truncated to seconds, so a wait may read as one more.
    assert [round(wait, -1) for wait in waits] == [10, 20, 40, 80, 160]


async def test_ten_restarts_in_a_row_start_no_pod_early(tmp_path: Path) -> None:
    for number in range(10):
        async with a_term(tmp_path, script=fails) as term:
            if number == 0:
                await term.cluster.create_job(backoffSeconds=100)
            await asyncio.sleep(5)
            pods = await term.pods_of("job")
    assert len(pods) == 1


async def test_failures_before_the_last_success_are_forgiven_after_a_restart_too(
    tmp_path: Path,
) -> None:
    """Fails twice, succeeds once, fails once: the next wait is that of a first failure."""
    codes = iter([1, 1, 0, 1])

    def script(pod: Pod) -> int | None:
        return next(codes, None)

    async with a_term(tmp_path, script=script) as term:
        await term.cluster.create_job(completions=2, parallelism=1)
        await asyncio.sleep(41)
    async with a_term(tmp_path, script=script) as term:
        await asyncio.sleep(60)
        waits = waits_between(await term.pods_of("job"))
    assert [round(wait, -1) for wait in waits] == [10, 20, 0, 10]


async def test_pods_that_were_listed_but_not_freed_count_once_after_a_restart(
    tmp_path: Path,
) -> None:
    """The UID is in the status, and the Pod still has the finalizer."""
    async with a_term(tmp_path, script=fails) as term:
        key = await term.cluster.create_job()
        await asyncio.sleep(0.5)
        await term.controller.stop()
        await asyncio.sleep(1)
        (pod,) = await term.pods_of("job")
        assert pod.terminal
        listed = {"uncountedTerminatedPods": {"failed": [pod.metadata.uid]}}
        body = msgspec.json.encode({"status": listed})
        await term.cluster.client.write(Patch(key, body, "merge", "status"))
    async with a_term(tmp_path, script=fails) as term:
        await asyncio.sleep(60)
        waits = waits_between(await term.pods_of("job"))
    assert [round(wait, -1) for wait in waits] == [10, 20]


async def test_a_limit_of_kept_pods_does_not_shorten_the_wait_after_a_restart(
    tmp_path: Path,
) -> None:
    """Only the last failed Pod exists, but the status has the number of failures."""
    async with a_term(tmp_path, script=fails) as term:
        await term.cluster.create_job(failedPodsLimit=1)
        await asyncio.sleep(80)  # after the 4th failure
        (last,) = [pod for pod in await term.pods_of("job") if pod.terminal]
    async with a_term(tmp_path, script=fails) as term:
        await asyncio.sleep(100)
        newest = max(map(created, await term.pods_of("job")))
        assert round((newest - finish_time(last)).total_seconds(), -1) == 80


async def test_a_restart_does_not_shorten_the_wait_of_an_index(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimitPerIndex": 5,
    }

    def script(pod: Pod) -> int | None:
        return 1 if pod.metadata.annotations[INDEX_ANNOTATION] == "1" else None

    async with a_term(tmp_path, script=script) as term:
        await term.cluster.create_job(**spec)
        await asyncio.sleep(15)
    async with a_term(tmp_path, script=script) as term:
        await asyncio.sleep(80)
        waits = waits_between(
            [
                pod
                for pod in await term.pods_of("job")
                if pod.metadata.annotations[INDEX_ANNOTATION] == "1"
            ]
        )
    assert [round(wait, -1) for wait in waits] == [10, 20, 40]


async def test_a_job_without_any_trace_of_its_failed_pods_retries_at_once(tmp_path: Path) -> None:
    """The times of their ends are unknown."""
    async with a_term(tmp_path, script=fails) as term:
        await term.cluster.create_job(backoffSeconds=1000)
        await asyncio.sleep(5)
        (pod,) = await term.pods_of("job")
    async with a_term(tmp_path, script=fails) as term:
        await term.controller.stop()
        await term.cluster.client.write(Delete(pod.key, grace_seconds=0))
    async with a_term(tmp_path, script=fails) as term:
        await asyncio.sleep(5)
        assert len(await term.pods_of("job")) == 1


@pytest.mark.parametrize("restart_after", [5.0, 25.0])
def test_a_restart_does_not_shorten_the_wait_of_a_crashing_container(
    tmp_path: Path, restart_after: float
) -> None:
    async def restarts(folder: Path, restart_after: float | None) -> list[int]:
        seen: list[int] = []

        async def look(plane: Any, seconds: float) -> None:
            for _ in range(int(seconds)):
                await asyncio.sleep(1)
                listing = await plane.client.list(Selection(PODS))
                (pod,) = map(read_pod, listing.documents)
                seen.append(sum(s.restart_count for s in pod.status.container_statuses))

        spec = template(**{"onejob.dev/simulated-exit-code": "1"})
        spec["spec"]["restartPolicy"] = "OnFailure"
        async with a_plane(folder) as plane:
            await create_job(plane, template=spec)
            await look(plane, restart_after or 100)
        if restart_after is not None:
            async with a_plane(folder) as plane:
                await look(plane, 100 - restart_after)
        return seen

    async def main(name: str, after: float | None) -> list[int]:
        return await restarts(tmp_path / name, after)

    undisturbed = run_virtual(main("a", None))
    assert run_virtual(main("b", restart_after)) == undisturbed
    assert undisturbed[-1] == 4, "at 0, 10, 30 and 70 s"
