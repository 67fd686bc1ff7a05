"""Upstream's end-to-end specs for CronJob. Most wait for the minutes of the real clock."""

import asyncio
from contextlib import aclosing
from datetime import datetime, timedelta

import pytest

from onejob.clock import SystemClock
from onejob.wire.errors import Invalid, NotFound
from tests.e2e.specs.api import (
    CRONJOBS,
    EVENTS,
    JOBS,
    PODS,
    Api,
    Document,
    throughout,
    until,
)
from tests.e2e.specs.cronjob import (
    CRONJOB_SECONDS,
    SLEEP,
    a_cronjob,
    active_jobs,
    finished_jobs,
    jobs_when,
    remove,
    unfinished_jobs,
    until_active,
)
from tests.e2e.specs.job import delete_and_await_collection
from tests.e2e.specs.running import Runs, Spec, Suite

suite = Suite(level="baseline")


@suite.it("should schedule multiple jobs concurrently", slow=True)
async def _(api: Api, namespace: str) -> None:
    await api.create(CRONJOBS, namespace, a_cronjob("concurrent", *SLEEP))
    await until_active(api, namespace, "concurrent", 2)
    assert len(unfinished_jobs(await api.items(JOBS, namespace))) >= 2
    await remove(api, namespace, "concurrent")


@suite.it("should not schedule jobs when suspended [Slow]", slow=True)
async def _(api: Api, namespace: str) -> None:
    await api.create(CRONJOBS, namespace, a_cronjob("suspended", *SLEEP, suspend=True))

    async def active() -> list[str]:
        return await active_jobs(api, namespace, "suspended")

    await throughout("suspended", active, lambda names: not names, seconds=CRONJOB_SECONDS)
    assert await api.items(JOBS, namespace) == []
    await remove(api, namespace, "suspended")


async def _one_is_active(api: Api, namespace: str, cronjob: Document) -> str:
    """Create a CronJob and return the name of its only Job."""
    name = cronjob["metadata"]["name"]
    await api.create(CRONJOBS, namespace, cronjob)
    await until_active(api, namespace, name, 1)
    (active,) = await active_jobs(api, namespace, name)
    (job,) = unfinished_jobs(await api.items(JOBS, namespace))
    assert job["metadata"]["name"] == active
    return active


@suite.it("should not schedule new jobs when ForbidConcurrent [Slow]", slow=True)
async def _(api: Api, namespace: str) -> None:
    first = await _one_is_active(api, namespace, a_cronjob("forbid", *SLEEP, policy="Forbid"))

    async def active() -> list[str]:
        return await active_jobs(api, namespace, "forbid")

    # Long enough for three more slots; the first Job takes five minutes.
    await throughout("alone", active, lambda names: names == [first], seconds=185)
    assert len(await api.items(JOBS, namespace)) == 1
    await remove(api, namespace, "forbid")


@suite.it("should replace jobs when ReplaceConcurrent", slow=True)
async def _(api: Api, namespace: str) -> None:
    first = await _one_is_active(api, namespace, a_cronjob("replace", *SLEEP, policy="Replace"))

    def replaced(jobs: list[Document]) -> bool:
        alive = [job for job in jobs if "deletionTimestamp" not in job["metadata"]]
        assert len(alive) <= 1, alive
        return bool(alive) and alive[0]["metadata"]["name"] != first

    await jobs_when(api, namespace, "the next in place of the first", replaced)
    await remove(api, namespace, "replace")


@suite.it("should be able to schedule after more than 100 missed schedule", slow=True)
async def _(api: Api, namespace: str) -> None:
    cronjob = a_cronjob("concurrent", *SLEEP, policy="Forbid")
    long_ago = SystemClock().now() - timedelta(days=99)
    cronjob["metadata"]["creationTimestamp"] = _text(long_ago)
    cronjob["status"]["lastScheduleTime"] = _text(long_ago + timedelta(days=1))
    created = await api.create(CRONJOBS, namespace, cronjob)
    assert created["metadata"]["creationTimestamp"] != _text(long_ago)
    assert created["status"] == {}
    await until_active(api, namespace, "concurrent", 1)
    assert unfinished_jobs(await api.items(JOBS, namespace))
    await remove(api, namespace, "concurrent")


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@suite.it("should not emit unexpected warnings", slow=True)
async def _(api: Api, namespace: str) -> None:
    await api.create(CRONJOBS, namespace, a_cronjob("concurrent"))
    await jobs_when(api, namespace, "two", lambda jobs: len(jobs) >= 2)
    await jobs_when(api, namespace, "one finished", finished_jobs)
    reasons = await _reasons(api, namespace, "concurrent")
    assert "SuccessfulCreate" in reasons
    assert not reasons & {"MissingJob", "UnexpectedJob"}
    await remove(api, namespace, "concurrent")


async def _reasons(api: Api, namespace: str, name: str) -> set[str]:
    """Return the reasons of events about a CronJob, selected as upstream's client does."""
    uid = (await api.get(CRONJOBS, namespace, name))["metadata"]["uid"]
    about = {"name": name, "namespace": namespace, "kind": "CronJob", "uid": uid}
    terms = (f"involvedObject.{field}={value}" for field, value in about.items())
    events = await api.items(EVENTS, namespace, fieldSelector=",".join(terms))
    return {event["reason"] for event in events}


@suite.it("should set the cronjob-scheduled-timestamp annotation on a job", slow=True)
async def _(api: Api, namespace: str) -> None:
    await api.create(CRONJOBS, namespace, a_cronjob("concurrent"))
    jobs = await jobs_when(api, namespace, "one", bool)
    metadata = jobs[0]["metadata"]
    text = metadata["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    at = datetime.fromisoformat(text)
    assert text == _text(at)
    assert metadata["name"] == f"concurrent-{int(at.timestamp()) // 60}"
    await remove(api, namespace, "concurrent")


@suite.it("should remove from active list jobs that have been deleted", slow=True)
async def _(api: Api, namespace: str) -> None:
    job = await _one_is_active(api, namespace, a_cronjob("forbid", *SLEEP, policy="Forbid"))
    await delete_and_await_collection(api, namespace, job)
    assert not await api.exists(JOBS, namespace, job)

    async def active() -> list[str]:
        return await active_jobs(api, namespace, "forbid")

    await until("its removal", active, lambda names: job not in names, seconds=CRONJOB_SECONDS)

    async def reasons() -> set[str]:
        return await _reasons(api, namespace, "forbid")

    await until("an event", reasons, lambda found: "MissingJob" in found, seconds=30)
    await remove(api, namespace, "forbid")


async def _keeps_one_of_history(api: Api, namespace: str, cronjob: Document) -> None:
    await api.create(CRONJOBS, namespace, cronjob)
    first = finished_jobs(await jobs_when(api, namespace, "a finished one", finished_jobs))
    assert len(first) == 1
    metadata = first[0]["metadata"]

    def is_gone(jobs: list[Document]) -> bool:
        return metadata["name"] not in [job["metadata"]["name"] for job in finished_jobs(jobs)]

    await jobs_when(api, namespace, "without the first", is_gone)

    async def pods() -> list[Document]:
        return await api.items(PODS, namespace, labelSelector=f"controller-uid={metadata['uid']}")

    await until("no pods of it", pods, lambda found: not found, seconds=CRONJOB_SECONDS)
    assert len(finished_jobs(await api.items(JOBS, namespace))) == 1
    await remove(api, namespace, cronjob["metadata"]["name"])


@suite.it("should delete successful finished jobs with limit of one successful job", slow=True)
async def _(api: Api, namespace: str) -> None:
    limits = {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}
    cronjob = a_cronjob("successful-jobs-history-limit", "/bin/true")
    cronjob["spec"] |= limits
    await _keeps_one_of_history(api, namespace, cronjob)


@suite.it("should delete failed finished jobs with limit of one job", slow=True)
async def _(api: Api, namespace: str) -> None:
    limits = {"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 1}
    cronjob = a_cronjob("failed-jobs-history-limit", "/bin/false")
    cronjob["spec"] |= limits
    await _keeps_one_of_history(api, namespace, cronjob)


@suite.it("should support timezone")
async def _(api: Api, namespace: str) -> None:
    cronjob = a_cronjob("cronjob-with-timezone", "/bin/false", timeZone="bad-time-zone")
    with pytest.raises(Invalid, match="unknown time zone bad-time-zone"):
        await api.create(CRONJOBS, namespace, cronjob)


@suite.it("should support CronJob API operations")
async def _(api: Api, namespace: str) -> None:
    cronjob = a_cronjob("test-api", "/bin/true", schedule="* */1 * * ?")
    cronjob["spec"] |= {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}
    cronjob["metadata"]["labels"] = {"special-label": namespace}
    selector = f"special-label={namespace}"
    created = await api.create(CRONJOBS, namespace, cronjob)
    got = await api.get(CRONJOBS, namespace, "test-api")
    assert got["metadata"]["uid"] == created["metadata"]["uid"]
    listed = await api.listing(CRONJOBS, namespace, labelSelector=selector)
    assert len(listed["items"]) == 1
    assert len(await api.items(CRONJOBS, "", labelSelector=selector)) == 1

    since = listed["metadata"]["resourceVersion"]
    query = {"labelSelector": selector, "resourceVersion": since}
    async with (
        aclosing(api.watch(CRONJOBS, namespace, **query)) as here,
        aclosing(api.watch(CRONJOBS, "", **query)) as everywhere,
    ):
        body: Document = {"metadata": {"annotations": {"patched": "true"}}}
        patched = await api.patch(CRONJOBS, namespace, "test-api", body, type="merge")
        assert patched["metadata"]["annotations"]["patched"] == "true"
        assert _version(patched) > _version(created)
        updated = await api.change(CRONJOBS, namespace, "test-api", _mark_updated)
        assert updated["metadata"]["annotations"]["updated"] == "true"
        for watch in (here, everywhere):
            async with asyncio.timeout(30):
                event, seen = await anext(watch)
            assert event == "MODIFIED"
            assert seen["kind"] == "CronJob"
            assert seen["metadata"]["annotations"]["patched"] == "true"

    await _status_operations(api, namespace, created["metadata"]["uid"])

    cronjob["metadata"]["name"] = "for-removal"
    await api.create(CRONJOBS, namespace, cronjob)
    await api.delete(CRONJOBS, namespace, "for-removal")
    with pytest.raises(NotFound):
        await api.get(CRONJOBS, namespace, "for-removal")
    await api.delete_collection(CRONJOBS, namespace, selector)
    assert await api.items(CRONJOBS, namespace, labelSelector=selector) == []


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _mark_updated(document: Document) -> None:
    document["metadata"]["annotations"]["updated"] = "true"


async def _status_operations(api: Api, namespace: str, uid: str) -> None:
    first = _text(SystemClock().now())
    patched = await api.patch(
        *(CRONJOBS, namespace, "test-api"),
        {
            "metadata": {"annotations": {"patchedstatus": "true"}},
            "status": {"lastScheduleTime": first},
        },
        type="merge",
        subresource="status",
    )
    assert patched["status"]["lastScheduleTime"] == first
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"

    second = _text(SystemClock().now())
    read = await api.get(CRONJOBS, namespace, "test-api")
    read["status"]["lastScheduleTime"] = second
    updated = await api.replace(CRONJOBS, read, "status")
    assert updated["status"]["lastScheduleTime"] == second
    whole = await api.get(CRONJOBS, namespace, "test-api", "status")
    assert whole["metadata"]["uid"] == uid


@pytest.mark.parametrize("spec", suite.parameters())
def test_cronjob(spec: Spec, runs: Runs) -> None:
    runs.result(spec)
