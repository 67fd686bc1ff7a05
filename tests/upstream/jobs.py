"""Jobs on a real API server, and comparison of their counters with the Pods that ran."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from onejob.client.base import Client, Selection
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.pod_facts import is_tracked
from onejob.wire.errors import ApiError
from tests.build import a_job, creation
from tests.upstream.cluster import Upstream
from tests.upstream.kubelet import Ledger
from tests.upstream.replicas import APISERVER_FLAGS

MANAGER = "onejob.dev/job-controller"


@contextmanager
def a_real_cluster() -> Iterator[Upstream]:
    with (
        TemporaryDirectory(prefix="onejob-upstream-") as folder,
        Upstream(Path(folder) / "cluster", apiserver_flags=APISERVER_FLAGS) as cluster,
    ):
        yield cluster


def client_of(cluster: Upstream) -> HttpClient:
    return HttpClient(load_kubeconfig(cluster.kubeconfig, SystemClock()), rng=Random())


async def create_job(client: Client, name: str, *, manager: str = MANAGER, **spec: Any) -> Key:
    annotations = {"onejob.dev/backoff-seconds": "0"}
    if manager:
        spec["managedBy"] = manager
    await client.write(creation(a_job(name, metadata={"annotations": annotations}, **spec)))
    return Key(JOBS, "default", name)


async def read(client: Client, key: Key) -> Job | None:
    """Return the Job; None while the server is unavailable."""
    try:
        return read_job(await client.get(key))
    except ApiError:
        return None


async def until_finished(client: Client, key: Key, *, within: float, every: float = 0.2) -> Job:
    async with asyncio.timeout(within):
        while True:
            job = await read(client, key)
            if job is not None and job.finished:
                return job
            await asyncio.sleep(every)


@dataclass(frozen=True)
class Verdict:
    wrong: list[str]
    summary: str


async def judge(client: Client, job: Job, ledger: Ledger) -> Verdict:
    """Compare a Job's status with its Pods' outcomes, once no Pod waits to be counted."""
    async with asyncio.timeout(60):
        while True:
            listing = await client.list(Selection(PODS, "default"))
            pods = [read_pod(document) for document in listing.documents]
            pods = [
                p for p in pods if (o := p.metadata.controller_ref) and o.uid == job.metadata.uid
            ]
            if not any(is_tracked(pod) for pod in pods):
                break
            await asyncio.sleep(0.5)
    status = job.status
    wrong: list[str] = []
    again = [index for index, count in ledger.successes.items() if index[1] and count > 1]
    facts: dict[str, tuple[object, object]] = {
        "condition": (job.condition_is_true("Complete"), True),
        "succeeded": (status.succeeded, job.spec.completions),
        "Pods that succeeded": (len(ledger.succeeded), status.succeeded),
        "Pods that failed": (len(ledger.failed), status.failed),
        "indexes that ran twice at once": (ledger.doubles, []),
        "indexes that succeeded twice": (again, []),
        "uncounted Pods": (_uncounted(job), []),
    }
    for name, (found, wanted) in facts.items():
        if found != wanted:
            wrong.append(f"{name}: {found}, not {wanted}")
    summary = f"succeeded {status.succeeded}, failed {status.failed}, Pods {len(pods)}"
    return Verdict(wrong, summary)


def _owner(pod: Pod) -> str:
    owner = pod.metadata.controller_ref
    return owner.uid if owner is not None else ""


def _uncounted(job: Job) -> list[str]:
    left = job.status.uncounted_terminated_pods
    return [*left.succeeded, *left.failed] if left is not None else []
