"""Random creation, change, disruption and deletion of Jobs on a server that is killed.

A Job that is then left alone comes to an end that its counters account for, and nothing of a
deleted namespace is left: no object, no process.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from onejob.wire.errors import NotFound
from tests.e2e.serving import Server, a_server
from tests.e2e.specs.api import JOBS, NAMESPACES, PODS, Api, Document, until
from tests.e2e.specs.job import (
    a_job,
    condition,
    finished,
    is_at_rest,
    job_when,
    pod_spec,
    pods_of,
    suspend,
)

NAMESPACE = "churn"
ROUNDS, WORKERS, ROUND_SECONDS = 4, 8, 5.0

SCRIPTS = (
    "exit 0",
    "exit 1",
    "sleep 0.5",
    "exit $(( $RANDOM / 16384 ))",
    "trap 'sleep 0.3; exit 0' TERM; sleep 2 & wait",
    "trap 'exit 5' TERM; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done",
    "trap '' TERM; sleep 2",
)
#: Fields of a Job's spec, each used or not.
VARIATIONS: tuple[Document, ...] = (
    {"completionMode": "Indexed"},
    {"completionMode": "Indexed", "backoffLimitPerIndex": 1},
    {"activeDeadlineSeconds": 2},
    {"podReplacementPolicy": "Failed"},
    {"suspend": True},
)


@pytest.mark.slow_spec
@pytest.mark.parametrize("seed", [1, 2])
def test_every_job_ends_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    mark = f"churn-{secrets.token_hex(8)}"
    with a_server(tmp_path / "state") as server:
        asyncio.run(_churn(server, Random(seed), mark))
    assert _processes(mark) == []


async def _churn(server: Server, rng: Random, mark: str) -> None:
    left: list[str] = []
    async with Api(server.kubeconfig) as api:
        await api.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    for round_number in range(ROUNDS):
        async with Api(server.kubeconfig) as api:
            workers = [
                asyncio.create_task(_work(api, rng, f"r{round_number}-w{worker}", mark, left))
                for worker in range(WORKERS)
            ]
            _, working = await asyncio.wait(workers, timeout=ROUND_SECONDS)
            for task in working:
                task.cancel()
            for end in await asyncio.gather(*workers, return_exceptions=True):
                assert isinstance(end, asyncio.CancelledError), end
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    async with Api(server.kubeconfig) as api:
        await asyncio.gather(*(_accounted(api, name) for name in left))
        await _removed(api)


async def _work(api: Api, rng: Random, prefix: str, mark: str, left: list[str]) -> None:
    """Act until cancelled; `left` gets the names of the Jobs that shall come to an end."""
    number = 0
    while True:
        number += 1
        name = f"{prefix}-{number}"
        job = _any_job(rng, name, mark)
        await api.create(JOBS, NAMESPACE, job)
        fate = rng.choice(("", "", "Background", "Foreground", "Orphan"))
        if not fate:
            left.append(name)
        for _ in range(rng.randint(0, 5)):
            await asyncio.sleep(rng.random() * 0.6)
            try:
                await rng.choice(DISTURBANCES)(api, rng, name)
            except NotFound:
                continue
        if fate:
            await api.delete(JOBS, NAMESPACE, name, propagationPolicy=fate)


def _any_job(rng: Random, name: str, mark: str) -> Document:
    spec: Document = {
        "parallelism": rng.randint(1, 4),
        "completions": rng.randint(1, 4),
        "backoffLimit": rng.randint(0, 3),
        "backoffSeconds": rng.randint(0, 1),
    }
    for variation in rng.sample(VARIATIONS, rng.randint(0, 2)):
        spec |= variation
    job = a_job(name, f": {mark}; {rng.choice(SCRIPTS)}", **spec)
    pod_spec(job)["terminationGracePeriodSeconds"] = rng.choice((1, 2, 5))
    pod_spec(job)["restartPolicy"] = rng.choice(("Never", "Never", "OnFailure"))
    return job


async def _suspend(api: Api, rng: Random, name: str) -> None:
    await suspend(api, NAMESPACE, name, rng.random() < 0.5)


async def _scale(api: Api, rng: Random, name: str) -> None:
    body = {"spec": {"parallelism": rng.randint(0, 5)}}
    await api.patch(JOBS, NAMESPACE, name, body, type="merge")


async def _delete_a_pod(api: Api, rng: Random, name: str) -> None:
    pods = await pods_of(api, NAMESPACE, name)
    if pods:
        grace = rng.choice(({}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 1}))
        await api.delete(PODS, NAMESPACE, rng.choice(pods)["metadata"]["name"], **grace)


async def _evict_a_pod(api: Api, rng: Random, name: str) -> None:
    pods = await pods_of(api, NAMESPACE, name)
    if pods:
        await api.evict(NAMESPACE, rng.choice(pods)["metadata"]["name"])


DISTURBANCES: tuple[Callable[[Api, Random, str], Awaitable[None]], ...] = (
    _suspend,
    _scale,
    _delete_a_pod,
    _evict_a_pod,
)


async def _accounted(api: Api, name: str) -> None:
    """Wait for the Job's end, and check that its status and its Pods agree."""
    await suspend(api, NAMESPACE, name, False)
    await api.patch(JOBS, NAMESPACE, name, {"spec": {"parallelism": 2}}, type="merge")
    job = await job_when(api, NAMESPACE, name, "its end", finished, seconds=120)
    assert is_at_rest(job), job
    status = job["status"]
    assert status["uncountedTerminatedPods"] == {}
    if condition(job, "Complete"):
        assert status["succeeded"] == job["spec"]["completions"]

    async def loose_pods() -> list[Document]:
        return [pod for pod in await pods_of(api, NAMESPACE, name) if not _is_settled(pod)]

    await until("its pods to settle", loose_pods, lambda pods: not pods, seconds=60)


def _is_settled(pod: Document) -> bool:
    ended = pod["status"]["phase"] in ("Succeeded", "Failed")
    return ended and not {"finalizers", "deletionTimestamp"} & pod["metadata"].keys()


async def _removed(api: Api) -> None:
    await api.delete(NAMESPACES, "", NAMESPACE)

    async def there() -> bool:
        return await api.exists(NAMESPACES, "", NAMESPACE)

    await until("the namespace to go", there, lambda is_there: not is_there, seconds=60)


def _processes(mark: str) -> list[str]:
    """Return the commands of all processes on this machine that contain the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if mark.encode() in command:
            found.append(command.decode(errors="replace"))
    return found
