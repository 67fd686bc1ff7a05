"""Jobs that another controller manages."""

from tests.differential.documents import indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Side

_OTHER = "example.com/controller"


@scenario
async def nobody_acts_on_it(it: Side) -> None:
    await it.create("jobs", job(managedBy=_OTHER))
    await it.settle()
    await it.show_table("jobs")


@scenario
async def the_reserved_name_is_ours(it: Side) -> None:
    await it.create("jobs", job(managedBy="kubernetes.io/job-controller"))
    await it.settle()


@scenario
async def its_manager_reports(it: Side) -> None:
    await it.create("jobs", indexed(2, managedBy=_OTHER))
    now = it.now()
    condition = {"status": "True", "lastTransitionTime": now, "lastProbeTime": now}
    met = {**condition, "type": "SuccessCriteriaMet"}
    done = {**condition, "type": "Complete"}
    for status in (
        {"startTime": now, "active": 2, "ready": 1},
        {"active": 2, "ready": 3},
        {"active": 0, "ready": 0, "succeeded": 2, "completedIndexes": "0,1"},
        {"conditions": [done], "completionTime": now},
        {"conditions": [met, done], "completionTime": now},
        {"conditions": [met]},
        {"active": 1},
        {"startTime": None},
    ):
        await it.patch("jobs", "j", {"status": status}, subresource="status")
    await it.settle()


@scenario
async def it_is_deleted_and_its_time_passes(it: Side) -> None:
    await it.create("jobs", job(managedBy=_OTHER, ttlSecondsAfterFinished=3))
    now = it.now()
    condition = {"status": "True", "lastTransitionTime": now, "lastProbeTime": now}
    both = [{**condition, "type": kind} for kind in ("FailureTarget", "Failed")]
    await it.patch(
        "jobs", "j", {"status": {"startTime": now, "conditions": both}}, subresource="status"
    )
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def it_is_suspended(it: Side) -> None:
    await it.create("jobs", job(managedBy=_OTHER))
    await it.patch("jobs", "j", {"spec": {"suspend": True}})
    await it.settle()
