"""Deletion, garbage, adoption and orphans; TTL."""

from tests.differential.documents import job, pod
from tests.differential.registry import scenario
from tests.differential.side import Document, Side


def _owned(parent: Document, **fields: object) -> Document:
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": parent["metadata"]["name"],
        "uid": parent["metadata"]["uid"],
        **fields,
    }
    return {"ownerReferences": [reference]}


@scenario
async def in_the_background(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.delete("jobs", "j", propagationPolicy="Background")
    await it.until_gone("jobs", "j")
    await it.settle("the Job is gone")
    await it.reap()
    await it.settle()


@scenario
async def in_the_foreground(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.delete("jobs", "j", propagationPolicy="Foreground")
    await it.settle("the Job waits")
    await it.reap()
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def leaving_orphans(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.delete("jobs", "j", propagationPolicy="Orphan")
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def without_saying_how(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.ask("DELETE", it.path("jobs", "j"))
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def preconditions_that_do_not_hold(it: Side) -> None:
    await it.create("jobs", job(suspend=True))
    other = "11111111-1111-1111-1111-111111111111"
    await it.delete("jobs", "j", preconditions={"uid": other})
    await it.delete("jobs", "j", propagationPolicy="Sideways")
    await it.delete("jobs", "j", propagationPolicy="Orphan", orphanDependents=True)
    await it.delete("jobs", "absent")


@scenario
async def a_finalizer_of_somebody_else(it: Side) -> None:
    document = job(managedBy="example.com/nobody")
    document["metadata"]["finalizers"] = ["example.com/wait"]
    await it.create("jobs", document)
    await it.delete("jobs", "j", propagationPolicy="Background", whole=True)
    await it.patch("jobs", "j", {"metadata": {"finalizers": ["example.com/wait", "example.com/x"]}})
    await it.patch("jobs", "j", {"metadata": {"finalizers": []}})
    await it.ask("GET", it.path("jobs", "j"))


@scenario
async def a_finished_job_in_the_background(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods)
    await it.until("jobs", "j", lambda job: "completionTime" in job["status"])
    await it.delete("jobs", "j", propagationPolicy="Background", whole=True)
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def after_its_time_to_live(it: Side) -> None:
    await it.create("jobs", job(ttlSecondsAfterFinished=8))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods)
    await it.settle("finished")
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def a_time_to_live_of_nothing(it: Side) -> None:
    await it.create("jobs", job(ttlSecondsAfterFinished=0, backoffLimit=0))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 1)
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def a_time_to_live_given_later(it: Side) -> None:
    await it.create("jobs", job(completions=0))
    await it.until("jobs", "j", lambda job: "completionTime" in job["status"])
    await it.patch("jobs", "j", {"spec": {"ttlSecondsAfterFinished": 1}})
    await it.until_gone("jobs", "j")
    await it.settle()


@scenario
async def a_collection(it: Side) -> None:
    for name in ("a", "b"):
        document = job(name, suspend=True)
        document["metadata"]["labels"] = {"app": name}
        await it.create("jobs", document)
    query = {"labelSelector": "app=a", "propagationPolicy": "Background"}
    await it.ask("DELETE", it.path("jobs"), query=query)
    await it.until_gone("jobs", "a")
    await it.settle()


@scenario
async def a_pod_that_fits_is_adopted(it: Side) -> None:
    document = job(manualSelector=True, selector={"matchLabels": {"mine": "yes"}}, parallelism=1)
    document["spec"]["template"]["metadata"] = {"labels": {"mine": "yes"}}
    await it.create("pods", pod("stray", labels={"mine": "yes"}))
    await it.create("jobs", document)
    await it.settle()


@scenario
async def a_pod_that_fits_no_more_is_released(it: Side) -> None:
    await it.create("jobs", job())
    (found,) = await it.pods("j", 1)
    labels = dict.fromkeys(found["metadata"]["labels"])
    await it.patch("pods", found["metadata"]["name"], {"metadata": {"labels": labels}})
    await it.settle()


@scenario
async def a_pod_of_another_controller_is_left_alone(it: Side) -> None:
    other = await it.create("jobs", job("other", suspend=True))
    document = job(manualSelector=True, selector={"matchLabels": {"mine": "yes"}})
    document["spec"]["template"]["metadata"] = {"labels": {"mine": "yes"}}
    owned = _owned(other, controller=True, blockOwnerDeletion=True)
    await it.create("pods", pod("theirs", labels={"mine": "yes"}, **owned))
    await it.create("jobs", document)
    await it.settle()


@scenario
async def an_object_whose_owner_is_gone(it: Side) -> None:
    parent = await it.create("jobs", job(suspend=True))
    await it.create(
        "configmaps",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "child", **_owned(parent)},
        },
    )
    await it.delete("jobs", "j", propagationPolicy="Background")
    await it.until_gone("configmaps", "child")
    await it.settle()


@scenario
async def two_controllers_of_one_object(it: Side) -> None:
    one = await it.create("jobs", job("one", suspend=True))
    two = await it.create("jobs", job("two", suspend=True))
    both = [_owned(parent, controller=True)["ownerReferences"][0] for parent in (one, two)]
    await it.create("pods", pod("child", ownerReferences=both))
    await it.create("pods", pod("child", ownerReferences=[{"kind": "Job"}]))


@scenario
async def a_namespace_takes_its_jobs_along(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.ask("DELETE", it.path("namespaces", it.namespace), whole=True)
    await it.ask("POST", it.path("jobs"), job("late"))
    (pod,) = pods
    await it.until(
        "pods", pod["metadata"]["name"], lambda pod: "deletionTimestamp" in pod["metadata"]
    )
    await it.reap()
    await it.until_gone("namespaces", it.namespace)
    await it.ask("GET", it.path("jobs", "j"))
    await it.ask("GET", it.path("namespaces", it.namespace))
