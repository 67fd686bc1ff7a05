"""Runner of upstream's cases of the Job controller's smaller functions."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from onejob.objects.job import Job
from onejob.objects.meta import Condition, Key
from onejob.planning.job.backoff import BackoffPolicy
from onejob.planning.job.claiming import (
    adoption_patch,
    may_adopt,
    plan_claims,
    release_patch,
)
from onejob.planning.job.conditions import ensure_condition, new_condition
from onejob.planning.job.counting import new_finished_pods
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.per_index import due_indexes
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.job.routing import adopting_jobs, may_release_finalizer, route_job_update
from onejob.planning.job.scaling import removal_rank
from onejob.planning.names import TRACKING_AS_PROPOSED
from onejob.wire.selectors import parse_label_selector
from tests.conformance.planner_cases import as_adopted, as_job, as_pod, as_pods, spoil_expected
from tests.conformance.verdict import Case, Verdict, compare

Args = dict[str, Any]
SETTINGS = Settings()


def run_case(case: Case) -> Verdict:
    return compare(case["function"], case["expected"], _FUNCTIONS[case["function"]](case["args"]))


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return spoil_expected(case)


def _ensure_condition(args: Args) -> Any:
    conditions, changed = ensure_condition(
        msgspec.convert(args["conditions"], list[Condition]),
        new_condition(
            args["type"], args["status"], args["reason"], args["message"], _time(args["now"])
        ),
    )
    return {"conditions": [msgspec.to_builtins(c) for c in conditions], "updated": changed}


def _finished(args: Args) -> Any:
    condition = _job_with(args["conditions"]).finished_condition
    return {"conditionType": condition.type if condition else "", "finished": bool(condition)}


def _new_finished(args: Args) -> Any:
    # A Pod that lost its finalizer is planned for only once the cache shows that.
    unseen = args["finalizerRemovalExpectedUIDs"]
    pods = [pod for pod in as_pods(args["pods"]) if pod.metadata.uid not in unseen]
    succeeded, failed = new_finished_pods(as_job(args["job"]), pods)
    return {
        "succeededUIDs": sorted(pod.metadata.uid for pod in succeeded),
        "failedUIDs": sorted(pod.metadata.uid for pod in failed),
    }


def _due_indexes(args: Args) -> Any:
    retained = {
        int(index): as_pod(document)
        for index, document in args["podsWithDelayedDeletionPerIndex"].items()
    }
    policy = BackoffPolicy(
        timedelta(seconds=args["defaultBackoffSeconds"]),
        timedelta(seconds=args["maxBackoffSeconds"]),
    )
    due, wait = due_indexes(args["indexesToAdd"], retained, policy, _time(args["now"]))
    return {"indexesToAdd": due, "remainingSeconds": wait.total_seconds()}


def _claims(args: Args) -> Any:
    job, live = as_job(args["job"]), as_job(args["liveJob"])
    claims = plan_claims(job, as_pods(args["pods"]))
    pods = list(claims.kept)
    patches = [(pod, release_patch(job, pod)) for pod in claims.releases]
    if may_adopt(job, live):
        patches += [(pod, adoption_patch(job, pod, SETTINGS)) for pod in claims.adoptions]
        pods += [as_adopted(job, pod, SETTINGS) for pod in claims.adoptions]
    return {
        "error": None,
        "patches": [
            {"patch": _without_own_name(msgspec.json.decode(body)), "pod": pod.metadata.name}
            for pod, body in patches
        ],
        "pods": sorted(pod.metadata.name for pod in pods),
        "podsWithTrackingFinalizer": sorted(p.metadata.name for p in pods if is_tracked(p)),
    }


def _without_own_name(patch: dict[str, Any]) -> dict[str, Any]:
    """Remove the proposal's finalizer name from the patch, which onejob also deletes."""
    names = patch["metadata"].get("$deleteFromPrimitiveList/finalizers")
    if names is not None:
        names.remove(TRACKING_AS_PROPOSED)
    return patch


def _pod_jobs(args: Args) -> Any:
    jobs = [as_job(document) for document in args["jobs"]]
    return sorted(job.metadata.name for job in adopting_jobs(as_pod(args["pod"]), jobs))


def _orphan(args: Args) -> Any:
    pod, key = as_pod(args["pod"]), args["key"]
    if key["kind"] == "selector":
        assert parse_label_selector(key["value"]).matches(pod.metadata.labels)
    job = as_job(args["job"]) if args["jobInCache"] else None

    def find(key: Key) -> Job | None:
        return job if job is not None and job.key == key else None

    return {"finalizerRemoved": may_release_finalizer(pod, find, SETTINGS)}


def _removal_order(args: Args) -> Any:
    return [pod.metadata.name for pod in sorted(as_pods(args["pods"]), key=removal_rank)]


def _job_update(args: Args) -> Any:
    route = route_job_update(as_job(args["old"]), as_job(args["new"]))
    return {"enqueuedImmediately": route.at_once}


def _job_with(conditions: list[dict[str, Any]]) -> Job:
    return as_job({"metadata": {"name": "j"}, "status": {"conditions": conditions}})


def _time(text: str) -> datetime:
    return msgspec.convert(text, datetime)


_FUNCTIONS: dict[str, Callable[[Args], Any]] = {
    "ensureJobConditionStatus": _ensure_condition,
    "finishedCondition": _finished,
    "getNewFinishedPods": _new_finished,
    "getPodCreationInfoForIndependentIndexes": _due_indexes,
    "getPodJobs": _pod_jobs,
    "getPodsForJob": _claims,
    "isJobSucceeded": lambda args: _job_with(args["conditions"]).condition_is_true("Complete"),
    "sortActivePods": _removal_order,
    "syncOrphanPod": _orphan,
    "updateJob(informer event)": _job_update,
}
