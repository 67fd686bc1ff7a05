"""Upstream's end-to-end spec for the time to live of finished Jobs."""

from datetime import datetime, timedelta

import pytest

from tests.e2e.specs.api import JOBS, Api, Document, until
from tests.e2e.specs.job import (
    JOB_SECONDS,
    a_job,
    condition,
    finished,
    job_when,
    no_pods,
    pods_of,
)
from tests.e2e.specs.running import Runs, Spec, Suite

suite = Suite(level="baseline")

FINALIZER = "k8s.io/dummy-finalizer"


@suite.it("job should be deleted once it finishes after TTL seconds", slow=True)
async def _(api: Api, namespace: str) -> None:
    name = "rand-non-local"
    toss = "exit $(( $RANDOM / 16384 ))"
    one: Document = {"parallelism": 1, "completions": 1, "backoffLimit": 2}
    job = a_job(name, toss, ttlSecondsAfterFinished=10, **one)
    job["metadata"]["finalizers"] = [FINALIZER]
    await api.create(JOBS, namespace, job)
    await job_when(api, namespace, name, "its end", finished)
    assert await pods_of(api, namespace, name)

    deleting = await job_when(
        api, namespace, name, "deletion", lambda seen: "deletionTimestamp" in seen["metadata"]
    )
    end = condition(deleting, "Complete") or condition(deleting, "Failed") or {}
    finished_at = _time(end["lastTransitionTime"])
    deleted_at = _time(deleting["metadata"]["deletionTimestamp"])
    assert deleted_at >= finished_at + timedelta(seconds=10)

    def release(document: Document) -> None:
        document["metadata"]["finalizers"].remove(FINALIZER)

    await api.change(JOBS, namespace, name, release)

    async def there() -> bool:
        return await api.exists(JOBS, namespace, name)

    await until("its job to go", there, lambda is_there: not is_there, seconds=JOB_SECONDS)
    await no_pods(api, namespace, name)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize("spec", suite.parameters())
def test_ttl_after_finished(spec: Spec, runs: Runs) -> None:
    runs.result(spec)
