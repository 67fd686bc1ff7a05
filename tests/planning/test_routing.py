"""Jobs to sync upon a change of a Pod."""

from datetime import timedelta
from typing import Any

import pytest

from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import controlling_job_uid
from onejob.planning.job.routing import PodRoute, route_job_update, route_pod_change
from tests.planning.build import NOON, OWNER, a_job, a_pod, stamp

DEMO = a_job().key
FREE: dict[str, Any] = {"ownerReferences": []}
FINISHED = {"conditions": [{"type": "Failed", "status": "True"}]}


def version(number: int, **metadata: Any) -> dict[str, Any]:
    return {"resourceVersion": str(number), **metadata}


def routed(
    old: Pod | None, new: Pod, *, job: Job | None = None, jobs: int = 1, gone: bool = False
) -> PodRoute:
    found = job or a_job()

    def find(key: Key) -> Job | None:
        return found if key == found.key else None

    def neighbours(namespace: str) -> list[Job]:
        return [found] * jobs

    route = route_pod_change(old, new, find, neighbours, gone=gone)
    if controlling_job_uid(new) == found.metadata.uid:
        # The result is the same if the caller has already resolved the controller.
        assert route == route_pod_change(old, new, find, neighbours, found.key, gone=gone)
    return route


@pytest.mark.parametrize(
    ("fields", "orphan", "wakes"),
    [
        ({}, False, True),
        ({"deleting": True}, False, True),
        ({"metadata": FREE}, True, True),
        ({"metadata": FREE, "tracked": False}, True, True),
        ({"metadata": {**FREE, "labels": {}}}, True, False),
        ({"metadata": {"ownerReferences": [{**OWNER, "uid": "another"}]}}, False, False),
        ({"metadata": {"ownerReferences": [{**OWNER, "kind": "Other"}]}}, False, False),
    ],
)
def test_a_new_pod(fields: dict[str, Any], orphan: bool, wakes: bool) -> None:
    route = routed(None, a_pod(**fields))
    assert route.jobs == ((DEMO,) if wakes else ())
    assert route.orphan == (orphan and fields.get("tracked", True))


def test_unchanged_pod_enqueues_no_job() -> None:
    pod = a_pod(metadata=version(5))
    assert routed(pod, pod) == PodRoute()
    assert routed(pod, a_pod(metadata=version(6))).jobs == (DEMO,)


def test_a_pod_that_changed_hands_wakes_both_jobs() -> None:
    old_owner = a_job(metadata={"name": "old", "uid": "old"})
    jobs = {DEMO: a_job(), old_owner.key: old_owner}
    reference = {**OWNER, "name": "old", "uid": "old"}
    old = a_pod(metadata=version(1, ownerReferences=[reference]))
    for controller in (None, DEMO):
        new = a_pod(metadata=version(2))
        route = route_pod_change(old, new, jobs.get, lambda namespace: [], controller)
        assert route.jobs == (old_owner.key, DEMO)


def test_a_free_pod_wakes_suitors_only_when_labels_or_owner_changed() -> None:
    old = a_pod(metadata=version(1, **FREE))
    same = a_pod(metadata=version(2, **FREE))
    assert routed(old, same).jobs == ()
    assert routed(a_pod(metadata=version(1, labels={}, **FREE)), same).jobs == (DEMO,)
    assert routed(a_pod(metadata=version(1)), same).jobs == (DEMO,)


@pytest.mark.parametrize(
    ("job", "gone", "expected"),
    [
        (None, False, PodRoute((DEMO,))),
        (None, True, PodRoute((DEMO,))),
        (a_job(status=FINISHED), False, PodRoute(orphan=True)),
        (a_job(status=FINISHED), True, PodRoute()),
        (a_job(metadata={"uid": "another"}), False, PodRoute(orphan=True)),
    ],
)
def test_a_pod_on_its_way_out(job: Job | None, gone: bool, expected: PodRoute) -> None:
    pod = a_pod(deleting=True, metadata=version(2))
    assert routed(a_pod(metadata=version(1)), pod, job=job, gone=gone) == expected


def test_a_spec_change_is_urgent_a_status_change_is_not() -> None:
    old, new = a_job(), a_job(metadata={"generation": 2})
    assert route_job_update(old, new).at_once
    assert not route_job_update(old, old).at_once
    assert route_job_update(old, a_job(status=FINISHED)).finished


def test_a_new_deadline_sets_an_alarm() -> None:
    started = {"startTime": stamp(NOON)}
    old = a_job(status=started)
    new = a_job(activeDeadlineSeconds=60, status=started)
    assert route_job_update(old, new).deadline == NOON + timedelta(seconds=60)
    assert route_job_update(new, new).deadline is None
    assert route_job_update(a_job(), a_job(activeDeadlineSeconds=60)).deadline is None
