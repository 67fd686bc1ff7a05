"""Bugs that Kubernetes fixed in 1.37, with the behaviour that each fix expects."""

import asyncio
import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.controllers.cronjob_sync import sync_cronjob
from onejob.objects.cronjob import read_cronjob
from onejob.objects.meta import CRONJOBS, JOBS, Key
from onejob.planning.cronjob.documents import SCHEDULED_AT_ANNOTATION
from tests import build
from tests.api.kinds.build import a_job as a_job_document
from tests.api.kinds.build import created, strategy, update
from tests.controllers.housekeeping import TEMPLATE, House, a_house
from tests.planning.build import NOON, a_job, a_pod, an_indexed_job, stamp, sync

JOB = strategy("jobs.batch")
STARTED = {"startTime": stamp(NOON - timedelta(minutes=5)), "active": 1, "ready": 1}
NOON_MINUTES = 29454480  # of 2026-01-01T12:00Z since 1970


def test_job_waiting_for_backoff_reports_its_running_pods_as_active() -> None:
    # kubernetes#139457: active was 0 while ready was 1, which the API server rejects.
    job = a_job(parallelism=2, completions=2, status=STARTED)
    pods = [a_pod("running", "R"), a_pod("failed", "F", ended_at=NOON, exit_code=1)]
    planned, accounting, _ = sync(job, pods)
    assert planned.creations == ()
    assert planned.look_again_at == NOON + timedelta(seconds=10)
    assert (accounting.status.active, accounting.status.ready) == (1, 1)


def test_job_waiting_for_backoff_of_an_index_reports_its_running_pods_as_active() -> None:
    # kubernetes#139457, the second of its two places: backoffLimitPerIndex.
    job = an_indexed_job(parallelism=2, completions=2, backoffLimitPerIndex=2, status=STARTED)
    pods = [
        a_pod("running", "R", index=0),
        a_pod("failed", "F", index=1, ended_at=NOON, exit_code=1),
    ]
    planned, accounting, _ = sync(job, pods)
    assert planned.creations == ()
    assert planned.look_again_at is not None
    assert (accounting.status.active, accounting.status.ready) == (1, 1)


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ({}, []),
        ({"active": 0}, []),
        # Started, and its suspension is not confirmed: its Pods may still run.
        ({"startTime": stamp(NOON)}, ["spec.template"]),
        ({"active": 1}, ["spec.template"]),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        {"nodeSelector": {"disk": "fast"}},
        {"containers": [{"resources": {"requests": {"cpu": "200m"}}}]},
    ],
)
def test_template_of_a_suspended_job_that_never_started_may_change(
    status: dict[str, Any], errors: list[str], change: dict[str, Any]
) -> None:
    # kubernetes#139287: such a Job has no condition Suspended until the controller sees it.
    stored = created(JOB, a_job_document(suspend=True))
    stored["status"] = status
    template = copy.deepcopy(stored["spec"]["template"])
    for container in change.get("containers", ()):
        template["spec"]["containers"][0].update(container)
    template["spec"].update({k: v for k, v in change.items() if k != "containers"})
    found = update(JOB, stored, template=template)[1]
    assert [error.partition(":")[0].removesuffix(".spec") for error in found] == errors


async def a_cronjob(house: House, namespace: str) -> dict[str, Any]:
    document = build.a_cronjob("tick", jobTemplate={"spec": {"template": TEMPLATE}})
    return await house.get(await house.create(CRONJOBS, document, namespace))


def a_job_of(uid: str, name: str) -> dict[str, Any]:
    """Return the Job that a CronJob `tick` with this UID starts at 12:01."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "tick",
        "uid": uid,
        "controller": True,
    }
    annotations = {SCHEDULED_AT_ANNOTATION: "2026-01-01T12:01:00Z"}
    return build.a_job(name, metadata={"ownerReferences": [owner], "annotations": annotations})


@pytest.mark.virtual_time
async def test_cronjob_lists_the_existing_job_of_its_slot_in_its_own_namespace(
    tmp_path: Path,
) -> None:
    # kubernetes#136920: the Job was looked up with an empty namespace, so the sync failed.
    async with a_house(tmp_path) as house:
        await house.create("namespaces", {"metadata": {"name": "team"}}, "")
        document = await a_cronjob(house, "team")
        name = f"tick-{NOON_MINUTES + 1}"
        await house.create(JOBS, a_job_of(document["metadata"]["uid"], name), "team")
        await asyncio.sleep(61)
        cronjob = read_cronjob(msgspec.json.encode(document))
        # The cache does not have the Job yet.
        synced = await sync_cronjob(house.client, cronjob, [], house.clock.now())
        assert synced.error is None
        assert synced.status is not None
        assert [(each.namespace, each.name) for each in synced.status.active] == [("team", name)]
        assert synced.status.last_schedule_time == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)


@pytest.mark.virtual_time
async def test_cronjob_ignores_the_jobs_of_an_earlier_cronjob_of_its_name(tmp_path: Path) -> None:
    # kubernetes#133313: Jobs were selected by the owner's name instead of its UID.
    async with a_house(tmp_path, "cronjobs") as house:
        await a_cronjob(house, "default")
        await house.create(JOBS, a_job_of("uid-of-the-earlier-one", "tick-orphan"))
        orphan = Key(JOBS, "default", "tick-orphan")
        await asyncio.sleep(30)
        assert await house.reasons() == []
        await house.finish(orphan)
        await asyncio.sleep(1)
        status = (await house.get(Key(CRONJOBS, "default", "tick"))).get("status", {})
        assert "lastSuccessfulTime" not in status
        assert "active" not in status
        await asyncio.sleep(600)
        assert await house.exists(orphan), "the history limit counts only the CronJob's own Jobs"
