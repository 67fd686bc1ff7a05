"""Features of the original proposals that upstream lacks: fields, subresource, status fields."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Patch
from onejob.gates import FeatureGates
from onejob.objects.meta import PODS, Key
from tests.api.http.wire import Wire, serving
from tests.build import a_cronjob, a_job, a_pod
from tests.harness import running
from tests.job.terms import a_plane, a_term, create, create_job, names, settled

JOBS_PATH = "/apis/batch/v1/namespaces/default/jobs"
START = "2026-01-01T12:00:00Z"


# --- fields and their annotations -------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{"backoffSeconds": 60}, {"annotations": {"onejob.dev/backoff-seconds": "60"}}]
)
@pytest.mark.virtual_time
async def test_the_first_retry_waits_as_long_as_the_job_says(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    async with a_term(tmp_path, script=lambda pod: 1) as term:
        started = term.cluster.clock.now()
        job = await term.cluster.create_job(backoffLimit=2, **given)
        await term.cluster.until_finished(job)
        waited = (term.cluster.clock.now() - started).total_seconds()
        assert 180 <= waited < 190, "60 s and 120 s"


@pytest.mark.parametrize(
    ("given", "server_wide", "left"),
    [
        ({"failedPodsLimit": 2}, None, 2),
        ({"annotations": {"onejob.dev/failed-pods-limit": "1"}}, None, 1),
        ({"failedPodsLimit": 0}, 3, 0),
        ({}, 1, 1),
        ({}, None, 4),
        ({"failedPodsLimit": 3, "annotations": {"onejob.dev/failed-pods-limit": "0"}}, 1, 3),
    ],
)
@pytest.mark.virtual_time
async def test_failed_pods_beyond_the_limit_go(
    tmp_path: Path, given: dict[str, Any], server_wide: int | None, left: int
) -> None:
    settings: dict[str, Any] = {"default_failed_pods_limit": server_wide}
    async with a_term(tmp_path, script=lambda pod: 1, **settings) as term:
        job = await term.cluster.until_finished(
            await term.cluster.create_job(backoffLimit=3, **given)
        )
        await settled()
        assert job.status.failed == 4, "what is deleted stays counted"
        pods = await term.cluster.pods()
        assert len(pods) == left
        assert not any(pod.metadata.finalizers for pod in pods)


@pytest.mark.virtual_time
async def test_a_limit_set_on_a_job_under_way_applies_to_the_pods_that_failed_before(
    tmp_path: Path,
) -> None:
    async with a_term(tmp_path, script=lambda pod: 1) as term:
        job = await term.cluster.create_job(backoffLimit=6, backoffSeconds=3600)
        await asyncio.sleep(3 * 3600)
        assert len(await term.cluster.pods()) == 3
        body = msgspec.json.encode({"spec": {"failedPodsLimit": 1}})
        await term.cluster.client.write(Patch(job, body, "merge"))
        await settled()
        assert len(await term.cluster.pods()) == 1


@pytest.mark.virtual_time
async def test_a_pods_ttl_may_be_a_field_or_an_annotation(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        for name, annotations, spec in (
            ("field", {}, {"ttlSecondsAfterFinished": 10}),
            ("annotation", {"onejob.dev/ttl-seconds-after-finished": "10"}, {}),
            ("neither", {}, {}),
        ):
            document = a_pod(name, metadata={"annotations": annotations}, **spec)
            await create(plane, PODS, document)
        await asyncio.sleep(60)
        assert await names(plane, PODS) == ["neither"]


@pytest.mark.virtual_time
async def test_fields_of_the_proposals_pass_through_a_cronjob(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        document = a_cronjob("cron", job=a_job(backoffSeconds=7)["spec"])
        await create(plane, "cronjobs.batch", document)
        await asyncio.sleep(70)
        (name,) = await names(plane, "jobs.batch")
        job = msgspec.json.decode(await plane.client.get(Key("jobs.batch", "default", name)))
        assert job["spec"]["backoffSeconds"] == 7


# --- views ------------------------------------------------------------------------------------


async def called(
    wire: Wire, method: str, path: str, body: Any = b"", code: int = 200, **headers: str
) -> Any:
    reply = await wire.call(method, path, body, **headers)
    assert reply.code == code, reply.body
    return reply.json()


async def watched(wire: Wire) -> list[dict[str, Any]]:
    query = f"{JOBS_PATH}?watch=true&sendInitialEvents=true&timeoutSeconds=1"
    query += "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    reply = await wire.call("GET", query)
    return [json.loads(line)["object"] for line in reply.body.splitlines()]


@pytest.mark.parametrize("gate", [True, False])
async def test_original_status_fields_are_shown_on_request_and_never_stored(
    tmp_path: Path, gate: bool
) -> None:
    gates = FeatureGates({"JobOriginalStatusFields": gate})
    async with (
        running(tmp_path, gates=gates) as plane,
        serving(plane.service, tmp_path) as wire,
    ):
        created = await called(wire, "POST", JOBS_PATH, a_job("job"), 201)
        probed = {
            "conditions": [{"type": "FailureTarget", "status": "True", "lastHeartbeatTime": START}]
        }
        patched = await called(
            wire,
            "PATCH",
            f"{JOBS_PATH}/job/status",
            {"status": probed},
            content_type="application/merge-patch+json",
        )
        read = await called(wire, "GET", f"{JOBS_PATH}/job")
        (listed,) = (await called(wire, "GET", JOBS_PATH))["items"]
        initial, *_ = await watched(wire)
        in_table = (
            await called(
                wire,
                "GET",
                f"{JOBS_PATH}?includeObject=Object",
                accept="application/json;as=Table;v=v1;g=meta.k8s.io",
            )
        )["rows"][0]["object"]
        at = created["metadata"]["creationTimestamp"]
        assert created["status"].get("creationTime") == (at if gate else None)
        for shown in (patched, read, listed, initial, in_table):
            assert shown["status"].get("creationTime") == (at if gate else None)
            (condition,) = shown["status"]["conditions"]
            assert condition["lastProbeTime"] == START
            assert condition.get("lastHeartbeatTime") == (START if gate else None)
        # Shown values may be sent back, even to a strict server, and change nothing.
        read["status"]["creationTime"] = "2001-01-01T00:00:00Z"
        again = await called(wire, "PUT", f"{JOBS_PATH}/job/status?fieldValidation=Strict", read)
        assert again["status"].get("creationTime") == (at if gate else None)
        stored = plane.store.get(Key("jobs.batch", "default", "job"))
        assert stored is not None
        assert b'creationTime"' not in stored.value
        assert b"lastHeartbeatTime" not in stored.value


async def test_a_job_lists_its_own_pods(tmp_path: Path) -> None:
    async with running(tmp_path) as plane, serving(plane.service, tmp_path) as wire:
        uids = {}
        for name in ("job", "other"):
            created = await called(wire, "POST", JOBS_PATH, a_job(name), 201)
            uids[name] = created["metadata"]["uid"]
        for name, owner in (("mine", "job"), ("theirs", "other"), ("nobodys", None)):
            owners = [
                {
                    "apiVersion": "batch/v1", "kind": "Job", "name": owner,
                    "uid": uids[owner], "controller": True,
                }
            ] if owner else []  # fmt: skip
            pod = a_pod(name, metadata={"ownerReferences": owners})
            await called(wire, "POST", "/api/v1/namespaces/default/pods", pod, 201)
        listed = await called(wire, "GET", f"{JOBS_PATH}/job/pods")
        assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
        assert [pod["metadata"]["name"] for pod in listed["items"]] == ["mine"]
        assert (await wire.call("GET", f"{JOBS_PATH}/missing/pods")).code == 404
        assert (await wire.call("POST", f"{JOBS_PATH}/job/pods", {})).code == 405


@pytest.mark.virtual_time
async def test_a_job_left_to_others_is_logged_with_the_name_of_its_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="onejob.controllers.job"):
        async with a_plane(tmp_path) as plane:
            await create_job(plane, "theirs", managedBy="example.com/other")
            await settled()
    assert "example.com/other" in caplog.text


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.virtual_time
async def test_a_pod_that_was_stopped_by_suspending_its_job_does_not_fail_it(
    tmp_path: Path, limit: int | None
) -> None:
    """Its finalizer was removed before it was stopped.

    No rule evaluates its end, whether or not it is kept for other reasons.
    """
    rule = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}}
    extra: dict[str, Any] = {} if limit is None else {"failedPodsLimit": limit}
    async with a_term(tmp_path) as term:
        job = await term.cluster.create_job(
            parallelism=2, completions=2, podFailurePolicy={"rules": [rule]}, **extra
        )
        await settled()
        await term.cluster.client.write(Patch(job, b'{"spec":{"suspend":true}}', "merge"))
        await settled()
        found = await term.cluster.job(job)
        assert found.condition_is_true("Suspended")
        assert not found.finished
        assert not found.condition_is_true("FailureTarget")
