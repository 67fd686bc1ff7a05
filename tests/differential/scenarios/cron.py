"""CronJobs. Schedules are of every minute, so these wait for the next one."""

from tests.differential.documents import cronjob, job
from tests.differential.registry import scenario
from tests.differential.side import Document, Side


def _ran(cron: Document) -> bool:
    return "lastScheduleTime" in cron.get("status", {})


@scenario
async def the_next_minute_comes(it: Side) -> None:
    await it.create("cronjobs", cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.settle()
    await it.show_table("cronjobs")


@scenario
async def its_job_ends(it: Side) -> None:
    await it.create("cronjobs", cronjob())
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
    document = cronjob(failedJobsHistoryLimit=0)
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
    await it.create("cronjobs", cronjob(suspend=True))
    await it.settle()
    await it.show_table("cronjobs")


@scenario
async def its_job_is_deleted(it: Side) -> None:
    await it.create("cronjobs", cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.patch("cronjobs", "c", {"spec": {"suspend": True}})
    (made,) = await it.items("jobs")
    await it.delete("jobs", made["metadata"]["name"], propagationPolicy="Background")
    await it.until("cronjobs", "c", lambda cron: "active" not in cron["status"])
    await it.settle()


@scenario
async def deleted_with_its_jobs(it: Side) -> None:
    await it.create("cronjobs", cronjob())
    await it.until("cronjobs", "c", _ran)
    await it.delete("cronjobs", "c", propagationPolicy="Background", whole=True)
    await it.until_gone("cronjobs", "c")
    await it.settle()


@scenario
async def a_job_made_by_hand(it: Side) -> None:
    """As `kubectl create job --from=cronjob/c` makes one."""
    cron = await it.create("cronjobs", cronjob(suspend=True))
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
    await it.create("cronjobs", cronjob(suspend=True))
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
    await it.create("cronjobs", cronjob(schedule="0 0 31 2 *"))
    await it.settle()


@scenario
async def the_second_waits_for_the_first(it: Side) -> None:
    await it.create("cronjobs", cronjob(concurrencyPolicy="Forbid"))
    await it.until("cronjobs", "c", _ran)
    await it.settle("the first runs")
