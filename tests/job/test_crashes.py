"""Controller killed after every write, in many scenarios: the outcome is the same as without.

`tests/controllers/test_job_crashes.py` does so for plain Jobs of fifty Pods.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Delete, Patch
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import completion_index
from onejob.virtual_time import run_virtual
from tests.scripted_cluster import Cluster, CountingClient, Script, a_cluster

Deed = Callable[[Cluster, Key], Awaitable[None]]


@dataclass(frozen=True)
class Life:
    spec: dict[str, Any]
    #: Returns a fresh script for each run.
    script: Callable[[], Script]
    #: Actions of users, by second.
    deeds: dict[float, Deed] = field(default_factory=dict)
    runs_seconds: float = 1.0
    #: Status fields that may differ. Pods are deleted before the verdict that stops them is
    #: written, as upstream does it; a controller restarted in between finds Pods deleted by an
    #: unknown client, and these have failed.
    blurred: tuple[str, ...] = ()


def by_index(*codes: int | None) -> Callable[[], Script]:
    """Return a script with the exit code of the Pods of each index; None: they never end."""

    def script(pod: Pod) -> int | None:
        index = completion_index(pod)
        assert index is not None
        return codes[index]

    return lambda: script


def always(code: int | None) -> Callable[[], Script]:
    return lambda: lambda pod: code


def edit(**spec: Any) -> Deed:
    async def deed(cluster: Cluster, job: Key) -> None:
        await cluster.client.write(Patch(job, msgspec.json.encode({"spec": spec}), "merge"))

    return deed


async def kill_a_pod(cluster: Cluster, job: Key) -> None:
    pods = sorted(await cluster.pods(), key=lambda pod: pod.metadata.name)
    victim = next(pod for pod in pods if pod.active)
    await cluster.client.write(Delete(victim.key))


INDEXED = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
FAIL_JOB = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
IGNORE = {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]}

LIVES = {
    "a success policy is met": Life(
        {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        by_index(0, None, None, None),
        blurred=("failed",),
    ),
    "a failure policy fails the Job": Life(
        {**INDEXED, "podFailurePolicy": FAIL_JOB}, by_index(None, 42, None, None)
    ),
    "an index fails": Life(
        {**INDEXED, "backoffLimitPerIndex": 1, "backoffSeconds": 1}, by_index(0, 0, 1, 0)
    ),
    "too many indexes fail": Life(
        {**INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1},
        by_index(1, None, 1, None),
        blurred=("failedIndexes",),
    ),
    "the deadline passes": Life(
        {"completions": 4, "parallelism": 3, "activeDeadlineSeconds": 5}, always(None)
    ),
    "the limit is exceeded": Life(
        {"completions": 4, "parallelism": 1, "backoffLimit": 1, "backoffSeconds": 1}, always(1)
    ),
    "it is suspended and resumed": Life(
        {"completions": 4, "parallelism": 4},
        always(0),
        {2.0: edit(suspend=True), 10.0: edit(suspend=False)},
        runs_seconds=5.0,
    ),
    "it is scaled down": Life(
        {"completions": 6, "parallelism": 6}, always(0), {2.0: edit(parallelism=2)}, 5.0
    ),
    "it loses indexes": Life(INDEXED, always(0), {2.0: edit(parallelism=2, completions=2)}, 5.0),
    "a Pod is deleted by somebody": Life(
        {"completions": 3, "parallelism": 3, "podReplacementPolicy": "Failed", "backoffSeconds": 0},
        always(0),
        {2.0: kill_a_pod},
        5.0,
    ),
    "a work queue runs dry": Life({"parallelism": 3}, always(0)),
}


def outcome(job: Job) -> dict[str, Any]:
    status = job.status
    return {
        "conditions": {(c.type, c.status, c.reason) for c in status.conditions},
        "succeeded": status.succeeded,
        "failed": status.failed,
        "completedIndexes": status.completed_indexes,
        "failedIndexes": status.failed_indexes,
        "active": status.active,
        "terminating": status.terminating,
    }


async def tell(life: Life, folder: Path, dies_after: int | None) -> tuple[dict[str, Any], int]:
    """Return the outcome and the number of writes."""
    async with a_cluster(folder) as cluster:
        node = cluster.start_node(life.script())
        node.runs_seconds = life.runs_seconds
        client = CountingClient(cluster.client, dies_after=dies_after)
        controller = await cluster.start_job_controller(client)
        key = await cluster.create_job(**life.spec)
        others = asyncio.create_task(_do_deeds(life, cluster, key))
        if dies_after is not None:
            await client.dead.wait()
            await controller.stop()
            controller = await cluster.start_job_controller()
        job = await cluster.until_finished(key)
        await others
        await asyncio.sleep(120)
        await controller.stop()
        assert not any(pod.metadata.finalizers for pod in await cluster.pods())
        assert all(pod.terminal for pod in await cluster.pods())
        return outcome(job), client.ops


async def _do_deeds(life: Life, cluster: Cluster, job: Key) -> None:
    now = 0.0
    for at, deed in life.deeds.items():
        await asyncio.sleep(at - now)
        await deed(cluster, job)
        now = at


@pytest.mark.parametrize("name", LIVES)
def test_job_ends_the_same_wherever_the_controller_crashes(tmp_path: Path, name: str) -> None:
    life = LIVES[name]

    def told(dies_after: int | None) -> tuple[dict[str, Any], int]:
        folder = tmp_path / str(dies_after)
        folder.mkdir()
        return run_virtual(tell(life, folder, dies_after))

    expected, writes = told(None)
    assert writes > 5
    for position in range(1, writes):
        ended, _ = told(position)
        for what in expected:
            if what not in life.blurred:
                assert ended[what] == expected[what], f"{what}, after write {position}"
