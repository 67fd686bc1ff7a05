"""Mutable fields of Jobs, and resizing of elastic Jobs."""

from typing import Any

from tests.differential.documents import indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Side


def _spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


@scenario
async def more_parallelism(it: Side) -> None:
    await it.create("jobs", job(parallelism=1, completions=4))
    await it.pods("j", 1)
    await it.patch("jobs", "j", _spec(parallelism=3))
    await it.settle()


@scenario
async def less_parallelism(it: Side) -> None:
    await it.create("jobs", job(parallelism=3, completions=4))
    pods = await it.pods("j", 3)
    await it.start(pods[:1])
    await it.patch("jobs", "j", _spec(parallelism=1))
    await it.settle()


@scenario
async def no_parallelism_any_more(it: Side) -> None:
    await it.create("jobs", job(parallelism=2, completions=2))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.patch("jobs", "j", _spec(parallelism=0))
    await it.settle("being scaled down")
    await it.reap()
    await it.settle()


@scenario
async def an_elastic_job_grows(it: Side) -> None:
    await it.create("jobs", indexed(2))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[1:])
    await it.until("jobs", "j", lambda job: job["status"].get("succeeded") == 1)
    await it.patch("jobs", "j", _spec(completions=4, parallelism=4))
    await it.settle()


@scenario
async def an_elastic_job_shrinks_below_what_succeeded(it: Side) -> None:
    await it.create("jobs", indexed(4))
    pods = await it.pods("j", 4)
    await it.start(pods)
    await it.end([pods[0], pods[3]])
    await it.until("jobs", "j", lambda job: job["status"].get("succeeded") == 2)
    await it.patch("jobs", "j", _spec(completions=1, parallelism=1))
    await it.settle("shrunk")
    await it.reap()
    await it.settle()


@scenario
async def completions_change_alone(it: Side) -> None:
    await it.create("jobs", indexed(2, suspend=True))
    await it.patch("jobs", "j", _spec(completions=3))
    await it.patch("jobs", "j", _spec(completions=3, parallelism=2))
    await it.patch("jobs", "j", _spec(completions=None))


@scenario
async def completions_of_another_mode(it: Side) -> None:
    await it.create("jobs", job(completions=2, parallelism=2, suspend=True))
    await it.patch("jobs", "j", _spec(completions=3, parallelism=3))


@scenario
async def fields_that_stay_as_they_are(it: Side) -> None:
    await it.create("jobs", indexed(2, suspend=True, backoffLimitPerIndex=1))
    for change in (
        _spec(completionMode="NonIndexed"),
        _spec(selector={"matchLabels": {"a": "b"}}),
        _spec(manualSelector=True),
        _spec(podFailurePolicy={"rules": []}),
        _spec(backoffLimitPerIndex=2),
        _spec(backoffLimitPerIndex=None),
        _spec(managedBy="example.com/x"),
        _spec(podReplacementPolicy="TerminatingOrFailed"),
        _spec(successPolicy={"rules": [{"succeededCount": 1}]}),
        _spec(maxFailedIndexes=3),
        _spec(maxFailedIndexes=1),
        _spec(backoffLimit=1),
        _spec(activeDeadlineSeconds=100),
        _spec(ttlSecondsAfterFinished=100),
        {"metadata": {"name": "other"}},
        {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}},
        {"metadata": {"resourceVersion": "1"}},
        {"metadata": {"generation": 7}},
    ):
        await it.patch("jobs", "j", change)


@scenario
async def generations(it: Side) -> None:
    created = await it.create("jobs", job(suspend=True))
    it.show("created", created["metadata"]["generation"])
    labelled = await it.patch("jobs", "j", {"metadata": {"labels": {"a": "b"}}})
    it.show("labelled", labelled["metadata"]["generation"])
    changed = await it.patch("jobs", "j", _spec(backoffLimit=1))
    it.show("changed", changed["metadata"]["generation"])


@scenario
async def a_status_that_is_no_status(it: Side) -> None:
    await it.create("jobs", job(managedBy="example.com/nobody"))
    now = it.now()
    done = {"type": "Complete", "status": "True", "lastTransitionTime": now, "lastProbeTime": now}
    for status in (
        {"active": -1},
        {"succeeded": 1, "failed": -1},
        {"ready": 3},
        {"conditions": [done]},
        {"conditions": [done, {**done, "type": "Failed"}]},
        {"conditions": [{**done, "type": "SuccessCriteriaMet"}]},
        {"completionTime": now},
        {"startTime": now, "completionTime": now, "active": 1, "conditions": [done]},
        {"completedIndexes": "0-3"},
        {"failedIndexes": "0"},
        {"uncountedTerminatedPods": {"succeeded": ["a", "a"], "failed": ["a"]}},
    ):
        await it.patch("jobs", "j", {"status": status}, subresource="status")


@scenario
async def a_status_in_the_wrong_place(it: Side) -> None:
    await it.create("jobs", {**job(managedBy="example.com/x"), "status": {"active": 3}}, whole=True)
    await it.patch("jobs", "j", {"status": {"active": 2}}, whole=True)
    await it.patch(
        "jobs", "j", {"spec": {"parallelism": 5}, "status": {}}, subresource="status", whole=True
    )


@scenario
async def an_update_with_an_old_version(it: Side) -> None:
    old = await it.create("jobs", job(suspend=True))
    await it.patch("jobs", "j", {"metadata": {"labels": {"a": "b"}}})
    await it.ask("PUT", it.path("jobs", "j"), old)
    del old["metadata"]["resourceVersion"]
    await it.ask("PUT", it.path("jobs", "j"), old)
    await it.ask("PUT", it.path("jobs", "other"), old)


@scenario
async def patches_that_do_not_apply(it: Side) -> None:
    await it.create("jobs", job(suspend=True))
    for body in (
        [{"op": "remove", "path": "/spec/nothing"}],
        [{"op": "test", "path": "/spec/suspend", "value": False}],
        [{"op": "jump", "path": "/spec"}],
        {"op": "add"},
    ):
        await it.patch("jobs", "j", body, kind="json")
    await it.patch("jobs", "j", [1], kind="merge")
    await it.patch("jobs", "j", {"spec": {"template": {"spec": {"$patch": "x"}}}}, kind="strategic")
    await it.ask("PATCH", it.path("jobs", "j"), {}, headers={"Content-Type": "text/plain"})
    await it.patch("jobs", "absent", {})


@scenario
async def applied_from_the_server_side(it: Side) -> None:
    document = job("a", suspend=True)
    mine, other = {"fieldManager": "me"}, {"fieldManager": "other"}
    await it.patch("jobs", "a", document, kind="apply", query=mine, whole=True)
    document["spec"]["backoffLimit"] = 2
    await it.patch("jobs", "a", document, kind="apply", query=mine)
    document["spec"]["backoffLimit"] = 3
    await it.patch("jobs", "a", document, kind="apply", query=other)
    await it.patch("jobs", "a", document, kind="apply", query={**other, "force": "true"})
    await it.patch("jobs", "a", document, kind="apply")
