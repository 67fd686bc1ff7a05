"""CronJobs. Schedules are of every minute, so these wait for the next one."""

from tests.build import a_cronjob
from tests.differential.documents import job
from tests.differential.registry import scenario
from tests.differential.side import Document, Side


def _ran(cron: Document) -> bool:
    return "lastScheduleTime" in cron.get("status", {})


@scenario
async def the_next_minute_comes(it: Side) -> None:
    await it.create("cronjobs", a_cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.settle()
    await it.show_table("cronjobs")


@scenario
async def its_job_ends(it: Side) -> None:
    await it.create("cronjobs", a_cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    (made,) = await it.items("jobs")
    pods = await it.pods(made["metadata"]["name"], 1)
    await it.start(pods)
    await it.end(pods)
    await it.until("cronjobs", "c", lambda cron: "lastSuccessfulTime" in cron["status"])
    await it.settle()


@scenario
async def its_job_fails(it: Side) -> None:
    document = a_cronjob(failedJobsHistoryLimit=0)
    document["spec"]["jobTemplate"]["spec"]["backoffLimit"] = 0
    await it.create("cronjobs", document)
    await it.until("cronjobs", "c", _ran)
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    (made,) = await it.items("jobs")
    pods = await it.pods(made["metadata"]["name"], 1)
    await it.start(pods)
    await it.end(pods, 1)
    await it.until("cronjobs", "c", lambda cron: "active" not in cron["status"])
    await it.settle()


@scenario
async def suspended(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(suspend=True))
    await it.settle()
    await it.show_table("cronjobs")


@scenario
async def its_job_is_deleted(it: Side) -> None:
    await it.create("cronjobs", a_cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    (made,) = await it.items("jobs")
    await it.delete("jobs", made["metadata"]["name"], propagationPolicy="Background")
    await it.until("cronjobs", "c", lambda cron: "active" not in cron["status"])
    await it.settle()


@scenario
async def deleted_with_its_jobs(it: Side) -> None:
    await it.create("cronjobs", a_cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.delete("cronjobs", "c", propagationPolicy="Background", whole=True)
    await it.until_gone("cronjobs", "c")
    await it.settle()


@scenario
async def a_job_made_by_hand(it: Side) -> None:
    """As `kubectl create job --from=cronjob/c` makes one."""
    cron = await it.create("cronjobs", a_cronjob(suspend=True))
    document = job("by-hand")
    document["metadata"] |= {
        "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "name": "c",
                "uid": cron["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    await it.create("jobs", document)
    pods = await it.pods("by-hand", 1)
    await it.start(pods)
    await it.settle("running")
    await it.end(pods)
    await it.settle()


@scenario
async def what_may_change(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(suspend=True))
    for change in (
        {"schedule": "*/5 * * * *"},
        {"schedule": "nonsense"},
        {"timeZone": "Europe/Berlin"},
        {"timeZone": "Nowhere"},
        {"concurrencyPolicy": "Forbid"},
        {"successfulJobsHistoryLimit": 0},
        {"jobTemplate": {"spec": {"parallelism": 4}}},
        {"jobTemplate": {"spec": {"parallelism": -4}}},
        {"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}},
    ):
        await it.patch("cronjobs", "c", {"spec": change})


@scenario
async def a_month_that_never_comes(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(schedule="0 0 31 2 *"))
    await it.settle()


@scenario
async def the_second_waits_for_the_first(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(concurrencyPolicy="Forbid"))
    await it.until("cronjobs", "c", _ran)
    await it.settle("the first runs")


def _made_by_hand(cron: Document, name: str) -> Document:
    document = job(name)
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "c",
        "uid": cron["metadata"]["uid"],
        "controller": True,
    }
    document["metadata"]["ownerReferences"] = [owner]
    return document


@scenario
async def history_is_cut(it: Side) -> None:
    document = a_cronjob(suspend=True, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    cron = await it.create("cronjobs", document)
    for name in ("first", "second"):
        await it.create("jobs", _made_by_hand(cron, name))
        pods = await it.pods(name, 1)
        await it.start(pods)
        await it.end(pods)
        await it.until("jobs", name, lambda job: "completionTime" in job["status"])
    await it.until_gone("jobs", "first")
    await it.settle()


@scenario
async def the_second_replaces_the_first(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(concurrencyPolicy="Replace"))
    await it.until("cronjobs", "c", _ran)
    (first,) = await it.items("jobs")
    await it.until_gone("jobs", first["metadata"]["name"])
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    await it.settle()


@scenario
async def the_second_runs_beside_the_first(it: Side) -> None:
    await it.create("cronjobs", a_cronjob())
    await it.until("cronjobs", "c", lambda cron: len(cron["status"].get("active", ())) == 2)
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    await it.settle()


@scenario
async def in_a_time_zone(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(timeZone="Asia/Tokyo", startingDeadlineSeconds=30))
    await it.until("cronjobs", "c", _ran)
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    made = await it.items("jobs")
    it.show("annotations", [one["metadata"].get("annotations") for one in made])
    it.show("labels", [one["metadata"].get("labels") for one in made])
    await it.settle()
    await it.show_table("cronjobs")
