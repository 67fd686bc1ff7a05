"""Suspending, resuming, and updates of suspended Jobs."""

from typing import Any

from tests.differential.documents import CONTAINER, indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Side


def _spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


@scenario
async def created_suspended(it: Side) -> None:
    await it.create("jobs", job(suspend=True))
    await it.settle()
    await it.show_table("jobs")


@scenario
async def suspended_and_resumed(it: Side) -> None:
    await it.create("jobs", job(suspend=True))
    await it.settle("suspended")
    await it.patch("jobs", "j", _spec(suspend=False))
    await it.settle("resumed")


@scenario
async def suspended_while_running(it: Side) -> None:
    await it.create("jobs", job(parallelism=2, completions=2))
    pods = await it.pods("j", 2)
    await it.start(pods[:1])
    await it.patch("jobs", "j", _spec(suspend=True))
    await it.settle("being suspended")
    await it.reap()
    await it.settle("suspended")
    await it.patch("jobs", "j", _spec(suspend=False))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods)
    await it.settle()


@scenario
async def suspended_after_some_succeeded(it: Side) -> None:
    await it.create("jobs", indexed(3))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[:1])
    await it.until("jobs", "j", lambda job: job["status"].get("succeeded") == 1)
    await it.patch("jobs", "j", _spec(suspend=True))
    await it.settle("being suspended")
    await it.reap()
    await it.settle()


@scenario
async def a_finished_job_is_suspended(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods)
    await it.until("jobs", "j", lambda job: "completionTime" in job["status"])
    await it.patch("jobs", "j", _spec(suspend=True))
    await it.settle()


@scenario
async def the_template_changes_while_suspended(it: Side) -> None:
    await it.create("jobs", job(suspend=True))
    await it.settle("suspended")
    for change in (
        {"metadata": {"labels": {"tier": "x"}, "annotations": {"a": "b"}}},
        {"spec": {"nodeSelector": {"disk": "fast"}}},
        {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
        {"spec": {"schedulingGates": [{"name": "example.com/wait"}]}},
        {"spec": {"restartPolicy": "OnFailure"}},
        {"spec": {"containers": [{**CONTAINER, "image": "other"}]}},
        {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "1"}}}]}},
    ):
        await it.patch("jobs", "j", _spec(template=change), whole=True)


@scenario
async def the_template_changes_while_running(it: Side) -> None:
    await it.create("jobs", job())
    await it.pods("j", 1)
    for change in (
        {"metadata": {"labels": {"tier": "x"}}},
        {"spec": {"nodeSelector": {"disk": "fast"}}},
        {"spec": {"containers": [{**CONTAINER, "image": "other"}]}},
        {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "1"}}}]}},
    ):
        await it.patch("jobs", "j", _spec(template=change))


@scenario
async def suspended_within_a_deadline(it: Side) -> None:
    await it.create("jobs", job(suspend=True, activeDeadlineSeconds=4))
    await it.settle("suspended")
    await it.patch("jobs", "j", _spec(suspend=False))
    await it.pods("j", 1)
    await it.until("jobs", "j", lambda job: job["status"].get("failed") == 1)
    await it.settle()
