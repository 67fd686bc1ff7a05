"""Bugs of Kubernetes that were fixed in 1.37."""

import asyncio
from datetime import UTC, datetime

from tests.build import a_cronjob
from tests.differential.documents import indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Document, Side

_SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: The slot that is awaited must not begin while the scenario prepares it.
_SECONDS_TO_PREPARE = 5


def _counts(it: Side, seen: Document) -> None:
    status = seen["status"]
    it.show("counts", {name: status.get(name) for name in ("active", "ready", "failed")})


def _has_failed_one(seen: Document) -> bool:
    return seen["status"].get("failed") == 1 and not seen["status"].get("uncountedTerminatedPods")


@scenario
async def a_running_pod_is_active_during_the_back_off(it: Side) -> None:
    """kubernetes#139457: active was 0 while ready was 1, which the API server rejects."""
    await it.create("jobs", job(parallelism=2, completions=2))
    first, second = await it.pods("j", 2)
    await it.start([first, second])
    await it.until("jobs", "j", lambda seen: seen["status"].get("ready") == 2)
    await it.end([second], 1)
    _counts(it, await it.until("jobs", "j", _has_failed_one))


@scenario
async def a_running_pod_is_active_during_the_back_off_of_an_index(it: Side) -> None:
    """kubernetes#139457, the second of its two places."""
    await it.create("jobs", indexed(2, backoffLimitPerIndex=2))
    first, second = await it.pods("j", 2)
    await it.start([first, second])
    await it.until("jobs", "j", lambda seen: seen["status"].get("ready") == 2)
    await it.end([second], 1)
    _counts(it, await it.until("jobs", "j", _has_failed_one))


@scenario
async def the_template_of_a_suspended_job_changes_at_once(it: Side) -> None:
    """kubernetes#139287: the Job has no condition Suspended until the controller sees it."""
    template = {"spec": {"nodeSelector": {"disk": "fast"}}}
    for number in range(3):
        await it.create("jobs", job(f"j{number}", suspend=True))
        await it.patch("jobs", f"j{number}", {"spec": {"template": template}})
    await it.create("jobs", job("running"))
    (pod,) = await it.pods("running", 1)
    await it.start([pod])
    await it.until("jobs", "running", lambda seen: seen["status"].get("ready") == 1)
    await it.patch("jobs", "running", {"spec": {"template": template}})


async def _minute(it: Side) -> int:
    """Return the number of the next minute, once it is far enough away to prepare for it."""
    if int(it.now()[17:19]) > 60 - _SECONDS_TO_PREPARE:
        await asyncio.sleep(_SECONDS_TO_PREPARE)
    return int(datetime.fromisoformat(it.now()).timestamp()) // 60 + 1


def _owned(uid: str, name: str, minute: int) -> Document:
    document = job(name)
    at = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": uid}
    document["metadata"] |= {
        "ownerReferences": [{**owner, "controller": True}],
        "annotations": {_SCHEDULED_AT: at},
    }
    return document


@scenario
async def a_job_of_the_slot_exists_already(it: Side) -> None:
    """kubernetes#136920: the Job was looked up with an empty namespace, so the sync failed."""
    cron = await it.create("cronjobs", a_cronjob())
    minute = await _minute(it)
    name = f"c-{minute}"
    it.hide(name, "c-SLOT")
    await it.create("jobs", _owned(cron["metadata"]["uid"], name, minute))
    seen = await it.until("cronjobs", "c", lambda one: "lastScheduleTime" in one.get("status", {}))
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    it.show("active", [each["name"] for each in seen["status"].get("active", ())])
    it.show("jobs", len(await it.items("jobs")))


@scenario
async def a_job_of_an_earlier_cronjob_of_the_name_is_ignored(it: Side) -> None:
    """kubernetes#133313: Jobs were selected by the owner's name instead of its UID."""
    await it.create("cronjobs", a_cronjob(schedule="0 0 1 1 *"))
    await it.create("jobs", _owned("uid-of-the-earlier-one", "orphan", 0))
    await asyncio.sleep(_SECONDS_TO_PREPARE)
    # The garbage collector deletes it, because its owner does not exist.
    await it.until_gone("jobs", "orphan")
    it.show("status", (await it.get("cronjobs", "c")).get("status") or {})
