"""Ownership of Pods by Jobs."""

from typing import Any

import msgspec
import pytest

from onejob.planning.job.claiming import (
    REMOVE_TRACKING_PATCH,
    adoption_patch,
    claim_of,
    job_matcher,
    may_adopt,
    plan_claims,
    release_patch,
)
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.names import TRACKING, TRACKING_AS_PROPOSED
from tests.planning.build import JOB_UID, NOON, OWNER, a_job, a_pod, stamp

DELETING = {"deletionTimestamp": stamp(NOON)}
FREE: dict[str, Any] = {"ownerReferences": []}
STRANGER = {"ownerReferences": [{**OWNER, "uid": "another"}]}
UNLABELLED: dict[str, Any] = {"labels": {}}


@pytest.mark.parametrize(
    ("pod", "job", "expected"),
    [
        ({}, {}, "keep"),
        ({}, DELETING, "keep"),
        (UNLABELLED, {}, "release"),
        (UNLABELLED, DELETING, "leave"),
        (FREE, {}, "adopt"),
        (FREE, DELETING, "leave"),
        ({**FREE, **DELETING}, {}, "leave"),
        ({**FREE, **UNLABELLED}, {}, "leave"),
        ({**FREE, "namespace": "elsewhere"}, {}, "leave"),
        (STRANGER, {}, "leave"),
    ],
)
def test_claims(pod: dict[str, Any], job: dict[str, Any], expected: str) -> None:
    owner = a_job(metadata=job)
    assert claim_of(owner, job_matcher(owner), a_pod(metadata=pod)) == expected


def test_a_job_without_selector_claims_nothing() -> None:
    assert claim_of(a_job(), None, a_pod(metadata=FREE)) == "leave"
    assert job_matcher(a_job(selector=None)) is None


def test_claims_are_grouped_by_action() -> None:
    pods = [
        a_pod("mine"),
        a_pod("free", metadata=FREE),
        a_pod("lost", metadata=UNLABELLED),
        a_pod("other", metadata=STRANGER),
    ]
    claims = plan_claims(a_job(), pods)
    assert [pod.metadata.name for pod in claims.kept] == ["mine"]
    assert [pod.metadata.name for pod in claims.adoptions] == ["free"]
    assert [pod.metadata.name for pod in claims.releases] == ["lost"]


def test_adoption_looks_at_the_live_job_first() -> None:
    job = a_job()
    assert may_adopt(job, job)
    assert not may_adopt(job, None)
    assert not may_adopt(job, a_job(metadata={"uid": "another"}))
    assert not may_adopt(job, a_job(metadata=DELETING))


@pytest.mark.parametrize("tracked", [True, False])
def test_an_adopted_pod_is_owned_and_tracked_by_one_guarded_patch(tracked: bool) -> None:
    job, pod = a_job(), a_pod("free", tracked=False, metadata=FREE)
    patch = msgspec.json.decode(adoption_patch(job, pod, Settings(), tracked=tracked))
    assert patch["metadata"]["uid"] == "free"
    assert patch["metadata"]["ownerReferences"] == [OWNER]
    assert patch["metadata"].get("finalizers") == ([TRACKING] if tracked else None)


def test_a_released_pod_loses_owner_and_finalizer_together() -> None:
    patch = msgspec.json.decode(release_patch(a_job(), a_pod("lost")))
    assert patch["metadata"]["uid"] == "lost"
    assert patch["metadata"]["ownerReferences"] == [{"$patch": "delete", "uid": JOB_UID}]
    assert TRACKING in patch["metadata"]["$deleteFromPrimitiveList/finalizers"]


@pytest.mark.parametrize("name", [TRACKING, TRACKING_AS_PROPOSED])
def test_both_names_of_the_finalizer_are_known_and_removed_together(name: str) -> None:
    assert is_tracked(a_pod(metadata={"finalizers": ["acme.io/x", name]}))
    names = msgspec.json.decode(REMOVE_TRACKING_PATCH)["metadata"]
    assert names == {
        "$deleteFromPrimitiveList/finalizers": [TRACKING, TRACKING_AS_PROPOSED],
    }
