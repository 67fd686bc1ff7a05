"""Pod lifecycle and the counters of the Job."""

from tests.differential.documents import indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Side


@scenario
async def pods_of_a_new_job(it: Side) -> None:
    await it.create("jobs", job(parallelism=2, completions=3))
    await it.settle()


@scenario
async def one_pod_to_its_end(it: Side) -> None:
    await it.create("jobs", job())
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.settle("running")
    await it.end([pod])
    await it.settle()
    await it.show_table("jobs")


@scenario
async def completions_in_turns(it: Side) -> None:
    await it.create("jobs", job(parallelism=2, completions=3))
    first = await it.pods("j", 2)
    await it.start(first)
    await it.end(first[:1])
    await it.settle("one has succeeded")
    rest = await it.pods("j", 2)
    await it.start(rest)
    await it.end(rest)
    await it.settle()


@scenario
async def indexes_in_turns(it: Side) -> None:
    await it.create("jobs", indexed(4, 2))
    first = await it.pods("j", 2)
    await it.start(first)
    await it.end(first[1:])
    await it.settle("index 1 has succeeded")
    await it.end(first[:1])
    rest = await it.pods("j", 2)
    await it.start(rest)
    await it.end(rest)
    await it.settle()
    await it.show_table("pods")


@scenario
async def a_work_queue(it: Side) -> None:
    await it.create("jobs", job(parallelism=3))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[:1])
    await it.settle("one has succeeded")
    await it.end(pods[1:])
    await it.settle()


@scenario
async def a_work_queue_whose_first_pod_fails(it: Side) -> None:
    await it.create("jobs", job(parallelism=2))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1], 1)
    await it.settle("one has failed")
    await it.end(pods[1:])
    await it.settle()


@scenario
async def no_completions_are_wanted(it: Side) -> None:
    await it.create("jobs", job(completions=0))
    await it.settle()


@scenario
async def nothing_may_run(it: Side) -> None:
    await it.create("jobs", job(parallelism=0, completions=2))
    await it.settle()
    await it.show_table("jobs")


@scenario
async def running_but_not_ready(it: Side) -> None:
    await it.create("jobs", job(parallelism=2, completions=2))
    pods = await it.pods("j", 2)
    await it.start(pods[:1])
    await it.start(pods[1:], ready=False)
    await it.settle()


@scenario
async def a_pod_that_fails_once(it: Side) -> None:
    await it.create("jobs", job())
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.end([pod], 1)
    await it.settle("in back-off")
    (second,) = await it.pods("j", 1)
    await it.start([second])
    await it.end([second])
    await it.settle()


@scenario
async def more_failures_than_allowed(it: Side) -> None:
    await it.create("jobs", job(backoffLimit=0))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.end([pod], 1)
    await it.settle()
    await it.show_table("jobs")


@scenario
async def one_retry_is_allowed(it: Side) -> None:
    await it.create("jobs", job(backoffLimit=1))
    for _ in range(2):
        (pod,) = await it.pods("j", 1)
        await it.start([pod])
        await it.end([pod], 3)
    await it.until("jobs", "j", lambda job: job["status"].get("failed") == 2)
    await it.settle()


@scenario
async def others_are_ended_when_the_limit_is_reached(it: Side) -> None:
    await it.create("jobs", job(backoffLimit=0, parallelism=3, completions=3))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[:1], 1)
    await it.settle("the others are being ended")
    await it.reap()
    await it.settle()


@scenario
async def restarts_count_against_the_limit(it: Side) -> None:
    await it.create("jobs", job(restart="OnFailure", backoffLimit=2))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    statuses = [
        {
            "name": "c",
            "image": "busybox",
            "imageID": "",
            "ready": False,
            "restartCount": 2,
            "state": {"running": {"startedAt": it.now()}},
        }
    ]
    await it.report(pod, containerStatuses=statuses)
    await it.settle("restarted twice")
    await it.reap()
    await it.settle()


@scenario
async def a_deadline_passes(it: Side) -> None:
    await it.create("jobs", job(activeDeadlineSeconds=6, parallelism=2, completions=2))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1])
    await it.until("jobs", "j", lambda job: "conditions" in job["status"])
    await it.settle("past the deadline")
    await it.reap()
    await it.settle()


@scenario
async def a_deadline_of_nothing(it: Side) -> None:
    await it.create("jobs", job(activeDeadlineSeconds=0))
    await it.settle()


@scenario
async def a_running_pod_is_deleted(it: Side) -> None:
    await it.create("jobs", job())
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.delete("pods", pod["metadata"]["name"])
    await it.settle("being deleted")
    await it.reap()
    await it.pods("j", 1)
    await it.settle()


@scenario
async def a_pod_is_deleted_before_it_is_bound(it: Side) -> None:
    await it.create("jobs", job())
    (pod,) = await it.pods("j", 1)
    await it.delete("pods", pod["metadata"]["name"])
    await it.settle()


@scenario
async def a_finished_pod_is_deleted(it: Side) -> None:
    await it.create("jobs", job(completions=2, parallelism=1))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.end([pod])
    await it.until("jobs", "j", lambda job: job["status"].get("succeeded") == 1)
    await it.pods("j", 1)
    await it.delete("pods", pod["metadata"]["name"], gracePeriodSeconds=0)
    await it.settle()


@scenario
async def two_fail_and_one_succeeds_at_once(it: Side) -> None:
    await it.create("jobs", job(parallelism=3, completions=3, backoffLimit=5))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[:2], 1)
    await it.end(pods[2:])
    await it.until("jobs", "j", lambda job: job["status"].get("failed") == 2)
    await it.settle("in back-off")
    rest = await it.pods("j", 2)
    await it.start(rest)
    await it.end(rest)
    await it.settle()


@scenario
async def a_pod_whose_index_nobody_wants(it: Side) -> None:
    await it.create("jobs", indexed(3))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.patch("jobs", "j", {"spec": {"completions": 2, "parallelism": 2}})
    await it.settle("scaled down")
    await it.reap()
    await it.end(pods[:2])
    await it.settle()


@scenario
async def the_wait_before_a_retry_doubles(it: Side) -> None:
    await it.create("jobs", job())
    waits = []
    for _ in range(3):
        (pod,) = await it.pods("j", 1)
        await it.start([pod])
        await it.end([pod], 1)
        ended = it.seconds()
        await it.pods("j", 1)
        waits.append(round((it.seconds() - ended) / 5) * 5)
    it.show("waits, to five seconds", waits[:2])


@scenario
async def some_are_ended_before_others(it: Side) -> None:
    """Show which surplus Pods are kept: each is marked by its progress."""
    await it.create("jobs", job(parallelism=4, completions=8))
    pods = await it.pods("j", 4)
    for mark, pod in zip(("unbound", "bound", "running", "ready"), pods, strict=True):
        annotations = {"annotations": {"example.com/got": mark}}
        await it.patch("pods", pod["metadata"]["name"], {"metadata": annotations})
    await it.start(pods[1:2], ready=False)
    await it.report(pods[1], phase="Pending")
    await it.start(pods[2:3], ready=False)
    await it.start(pods[3:])
    await it.settle("all four")
    await it.patch("jobs", "j", {"spec": {"parallelism": 2}})
    await it.settle("two are ended")
    await it.patch("jobs", "j", {"spec": {"parallelism": 1}})
    await it.settle("one more")


@scenario
async def a_pod_that_lost_its_finalizer(it: Side) -> None:
    await it.create("jobs", job(completions=2, parallelism=1))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    await it.end([pod])
    await it.settle()


@scenario
async def two_pods_of_one_index(it: Side) -> None:
    await it.create("jobs", indexed(2))
    (first, second) = await it.pods("j", 2)
    twin = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "twin",
            **{key: first["metadata"][key] for key in ("labels", "annotations", "finalizers")},
            "ownerReferences": first["metadata"]["ownerReferences"],
        },
        "spec": {"restartPolicy": "Never", "containers": first["spec"]["containers"]},
    }
    await it.start([first, second])
    await it.create("pods", twin)
    await it.settle("one too many")
    await it.reap()
    await it.end([first, second])
    await it.settle()


@scenario
async def a_pod_without_an_index(it: Side) -> None:
    await it.create("jobs", indexed(1))
    (pod,) = await it.pods("j", 1)
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if "index" not in key}
    stray = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "stray",
            "labels": labels,
            "finalizers": pod["metadata"]["finalizers"],
            "ownerReferences": pod["metadata"]["ownerReferences"],
        },
        "spec": {"restartPolicy": "Never", "containers": pod["spec"]["containers"]},
    }
    await it.start([pod])
    await it.create("pods", stray)
    await it.settle("beside one that has")
    await it.end([pod])
    await it.settle()


@scenario
async def a_namesake_comes_after(it: Side) -> None:
    await it.create("jobs", job())
    (old,) = await it.pods("j", 1)
    await it.start([old])
    await it.delete("jobs", "j", propagationPolicy="Background")
    await it.until_gone("jobs", "j")
    await it.create("jobs", job())
    await it.settle("the old Pod is being ended")
    await it.reap()
    await it.settle()


@scenario
async def the_limit_is_lowered_below_what_failed(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 1)
    await it.until("jobs", "j", lambda job: job["status"].get("failed") == 1)
    await it.patch("jobs", "j", {"spec": {"backoffLimit": 0}})
    await it.settle()


@scenario
async def a_deadline_given_later(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.patch("jobs", "j", {"spec": {"activeDeadlineSeconds": 1}})
    await it.until("jobs", "j", lambda job: "conditions" in job["status"])
    await it.settle("past it")
    await it.reap()
    await it.settle()
