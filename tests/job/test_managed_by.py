"""External Job controller (managedBy): it drives its Job over HTTPS, and the API validates it.

The built-in controllers run meanwhile and leave its Jobs alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.client.base import Client, Create, Patch, Selection, WatchEvent, Written
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.control_plane import Settings
from onejob.node.options import NodeOptions
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, PODS, Key
from onejob.objects.pod import read_pod
from onejob.planning.names import TRACKING
from onejob.server import HttpsServer
from onejob.wire.errors import ApiError, Invalid
from tests import build
from tests.job.terms import a_plane, create, names

MANAGER = "example.com/outside"
START = "2026-01-01T00:00:00Z"
END = "2026-01-01T00:01:00Z"


@asynccontextmanager
async def a_client(folder: Path) -> AsyncIterator[tuple[HttpsServer, HttpClient]]:
    """Run a whole server whose Pods end at once, with a client."""
    server = await HttpsServer.start(
        Settings(folder / "data", NodeOptions(runtime="simulated", name="node")),
        host="127.0.0.1",
        port=0,
        kubeconfig=folder / "kubeconfig",
    )
    client = HttpClient(load_kubeconfig(server.kubeconfig, SystemClock()), rng=Random(1))
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop()


async def served(
    folder: Path, test: Callable[[HttpsServer, HttpClient], Coroutine[Any, Any, None]]
) -> None:
    async with a_client(folder) as (server, client), asyncio.timeout(60):
        await test(server, client)


def job_document(name: str, **spec: Any) -> dict[str, Any]:
    document = build.a_job(name, managedBy=MANAGER)
    return {**document, "spec": _given({**document["spec"], **spec})}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


async def create_job(client: Client, name: str, **spec: Any) -> Key:
    document = job_document(name, **spec)
    await client.write(Create(JOBS, "default", msgspec.json.encode(document)))
    return Key(JOBS, "default", name)


async def write_status(client: Client, job: Key, status: dict[str, Any]) -> Written | ApiError:
    body = msgspec.json.encode({"status": status})
    (result,) = await client.write_many([Patch(job, body, "merge", "status")])
    return result


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": END}


def conditions(*kinds: str) -> list[dict[str, str]]:
    return [condition(kind) for kind in kinds]


# --- the external controller ------------------------------------------------------------------


@dataclass
class OutsideController:
    """Controller that runs its Jobs' Pods one after the other, and reports their outcome."""

    client: Client
    reports: list[dict[str, Any]] = field(default_factory=list)

    async def drive(self, key: Key) -> Job:
        job = read_job(await self.client.get(key))
        assert job.spec.managed_by == MANAGER
        await self._report(key, {"startTime": START, "active": 1, "ready": 0})
        for number in range(job.spec.completions or 1):
            await self._run_one(job, number)
            await self._report(key, {"succeeded": number + 1})
        # "Precede" includes the same write.
        await self._report(
            key,
            {
                "active": 0,
                "terminating": 0,
                "completionTime": END,
                "conditions": conditions("SuccessCriteriaMet", "Complete"),
            },
        )
        return read_job(await self.client.get(key))

    async def _run_one(self, job: Job, number: int) -> None:
        name = f"{job.metadata.name}-{number}"
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name,
            "uid": job.metadata.uid, "controller": True,
        }  # fmt: skip
        document = {
            **msgspec.json.decode(job.spec.template),
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "ownerReferences": [owner], "finalizers": [TRACKING]},
        }
        written = await self.client.write(Create(PODS, "default", msgspec.json.encode(document)))
        selection = Selection(PODS, "default", fields=f"metadata.name={name}")
        async for batch in self.client.watch(selection, after=written.revision):
            if any(_ended(event) for event in batch):
                return

    async def _report(self, key: Key, status: dict[str, Any]) -> None:
        written = await write_status(self.client, key, status)
        assert isinstance(written, Written), written
        self.reports.append(msgspec.json.decode(written.document)["status"])


def _ended(event: WatchEvent) -> bool:
    return event.type != "BOOKMARK" and read_pod(event.document).phase == "Succeeded"


async def test_an_outside_controller_drives_a_job_to_its_end(tmp_path: Path) -> None:
    async def test(server: HttpsServer, client: HttpClient) -> None:
        key = await create_job(client, "theirs", completions=2)
        controller = OutsideController(client)
        job = await controller.drive(key)
        assert job.condition_is_true("Complete")
        assert job.status.succeeded == 2
        stored = msgspec.json.decode(await client.get(key))
        assert stored["status"] == controller.reports[-1], "nobody else wrote to it"
        # Ours has finished meanwhile, so the built-in controller had time to interfere.
        ours = await create_job(client, "ours", managedBy="kubernetes.io/job-controller")
        async for batch in client.watch(Selection(JOBS, "default"), after=job.metadata.revision):
            if any(e.key == ours and read_job(e.document).finished for e in batch):
                break
        stored = msgspec.json.decode(await client.get(key))
        assert stored["status"] == controller.reports[-1]
        pods = [read_pod(d) for d in (await client.list(Selection(PODS, "default"))).documents]
        held = {pod.metadata.name for pod in pods if TRACKING in pod.metadata.finalizers}
        assert held == {"theirs-0", "theirs-1"}, "their finalizers are theirs to remove"
        events = (await client.list(Selection(EVENTS, "default"))).documents
        about_jobs = [
            event["involvedObject"]["name"]
            for event in map(msgspec.json.decode, events)
            if event["involvedObject"]["kind"] == "Job"
        ]
        assert set(about_jobs) == {"ours"}
        assert server.plane.metrics.external_jobs.value(controller_name=MANAGER) == 1
        assert f'jobs_by_external_controller_total{{controller_name="{MANAGER}"}} 1' in (
            server.plane.metrics.exposition()
        )

    await served(tmp_path, test)


# --- refused writes ---------------------------------------------------------------------------

INDEXED = {"completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 1}
PLAIN: dict[str, Any] = {"completions": 4}
POLICY = {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}]}}
COMPLETE = {
    "startTime": START,
    "completionTime": END,
    "conditions": conditions("SuccessCriteriaMet", "Complete"),
}
FAILED = {"startTime": START, "conditions": conditions("FailureTarget", "Failed")}

#: The Job, an accepted status, a refused change of it, and its field and reason.
REFUSED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str, str]] = [
    *(
        (PLAIN, {}, {counter: -1}, f"status.{counter}", "must be greater than or equal to 0")
        for counter in ("active", "succeeded", "failed", "ready", "terminating")
    ),
    (
        PLAIN,
        {},
        {"uncountedTerminatedPods": {"succeeded": [""]}},
        "status.uncountedTerminatedPods.succeeded[0]",
        "must not be empty",
    ),
    (
        PLAIN,
        {},
        {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}},
        "status.uncountedTerminatedPods.failed[0]",
        'Duplicate value: "a"',
    ),
    (
        PLAIN,
        {},
        {**FAILED, "conditions": conditions("SuccessCriteriaMet", "FailureTarget", "Failed")},
        "status.conditions",
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    ),
    (
        PLAIN,
        {},
        {"conditions": conditions("SuccessCriteriaMet", "FailureTarget")},
        "status.conditions",
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    ),
    (
        POLICY,
        {},
        {**COMPLETE, "conditions": conditions("Complete")},
        "status.conditions",
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    ),
    (
        PLAIN,
        {"conditions": conditions("SuccessCriteriaMet")},
        {"conditions": [condition("SuccessCriteriaMet", "False")]},
        "status.conditions",
        "cannot disable the SuccessCriteriaMet=True condition",
    ),
    (
        PLAIN,
        {"succeeded": 2},
        {"succeeded": 1},
        "status.succeeded",
        "cannot decrease the succeeded counter",
    ),
    (PLAIN, {"failed": 2}, {"failed": 1}, "status.failed", "cannot decrease the failed counter"),
    (
        PLAIN,
        COMPLETE,
        {"conditions": conditions("SuccessCriteriaMet")},
        "status.conditions",
        "cannot disable the terminal Complete=True condition",
    ),
    (
        PLAIN,
        FAILED,
        {"conditions": conditions("FailureTarget")},
        "status.conditions",
        "cannot disable the terminal Failed=True condition",
    ),
    (
        PLAIN,
        {"conditions": conditions("FailureTarget")},
        {"conditions": []},
        "status.conditions",
        "cannot disable the terminal FailureTarget=True condition",
    ),
    (
        PLAIN,
        {},
        {**COMPLETE, "conditions": conditions("FailureTarget", "Failed", "Complete")},
        "status.conditions",
        "cannot set Complete=True and Failed=true conditions",
    ),
    (
        PLAIN,
        {},
        {**COMPLETE, "conditions": conditions("FailureTarget", "Complete")},
        "status.conditions",
        "cannot set Complete=True and FailureTarget=true conditions",
    ),
    (
        PLAIN,
        {"startTime": START},
        {"completionTime": END},
        "status.completionTime",
        "cannot set completionTime when there is no Complete=True condition",
    ),
    (
        PLAIN,
        {"startTime": START},
        {"conditions": conditions("SuccessCriteriaMet", "Complete")},
        "status.completionTime",
        "completionTime is required for Complete jobs",
    ),
    (
        PLAIN,
        COMPLETE,
        {"completionTime": "2026-01-01T00:02:00Z"},
        "status.completionTime",
        "field is immutable",
    ),
    (
        PLAIN,
        {"startTime": END},
        {**COMPLETE, "startTime": END, "completionTime": START},
        "status.completionTime",
        "must be equal to or after `startTime`",
    ),
    (
        PLAIN,
        {"startTime": START},
        {"conditions": conditions("Failed")},
        "status.conditions",
        "cannot set Failed=True condition without the FailureTarget=true condition",
    ),
    (
        PLAIN,
        {},
        {**COMPLETE, "conditions": conditions("Complete")},
        "status.conditions",
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    ),
    (PLAIN, {}, {**COMPLETE, "active": 1}, "status.active", "active>0 is invalid for finished job"),
    (
        PLAIN,
        {},
        {**COMPLETE, "terminating": 1},
        "status.terminating",
        "terminating>0 is invalid for finished job",
    ),
    (
        PLAIN,
        {},
        {"conditions": FAILED["conditions"]},
        "status.startTime",
        "startTime is required for finished job",
    ),
    (
        PLAIN,
        {},
        {**COMPLETE, "uncountedTerminatedPods": {"succeeded": ["a"]}},
        "status.uncountedTerminatedPods",
        "must be empty for finished job",
    ),
    (
        PLAIN,
        {"startTime": START},
        {"startTime": END},
        "status.startTime",
        "field is immutable for unsuspended job once set",
    ),
    (
        PLAIN,
        {"startTime": START},
        {"startTime": None},
        "status.startTime",
        "field is immutable for unsuspended job once set",
    ),
    (
        INDEXED,
        {},
        {"completedIndexes": "2-1"},
        "status.completedIndexes",
        "error parsing completedIndexes",
    ),
    (INDEXED, {}, {"failedIndexes": "0,9"}, "status.failedIndexes", "error parsing failedIndexes"),
    (
        PLAIN,
        {},
        {"completedIndexes": "0"},
        "status.completedIndexes",
        "cannot set non-empty completedIndexes when non-indexed completion mode",
    ),
    (
        {"completionMode": "Indexed", "completions": 4},
        {},
        {"failedIndexes": ""},
        "status.failedIndexes",
        "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
    ),
    (
        INDEXED,
        {"completedIndexes": "0-2"},
        {"failedIndexes": "1-3"},
        "status.failedIndexes",
        "failedIndexes and completedIndexes overlap at index: 1",
    ),
    (PLAIN, {"active": 1}, {"ready": 2}, "status.ready", "cannot set more ready pods than active"),
]


async def test_an_outside_controller_is_refused_every_invalid_status(tmp_path: Path) -> None:
    async def test(server: HttpsServer, client: HttpClient) -> None:
        for number, (spec, before, change, where, why) in enumerate(REFUSED):
            key = await create_job(client, f"job-{number}", **spec)
            if before:
                accepted = await write_status(client, key, before)
                assert isinstance(accepted, Written), f"{why}: {accepted}"
            stored = await client.get(key)
            refused = await write_status(client, key, change)
            assert isinstance(refused, Invalid), f"{why}: {refused}"
            causes = {cause["field"]: cause["message"] for cause in refused.details["causes"]}
            told = [c["message"] for c in refused.details["causes"] if c["field"] == where]
            assert any(why in message for message in told), f"{why}: {causes}"
            assert await client.get(key) == stored, "nothing of it is stored"

    await served(tmp_path, test)


@pytest.mark.virtual_time
async def test_success_criteria_cannot_be_added_to_a_job_that_completed_without(
    tmp_path: Path,
) -> None:
    """Such a Job can only stem from a time when its gate was off."""
    gates = "JobManagedBy=false"
    async with a_plane(tmp_path, gates) as plane:
        key = await create_job(plane.client, "old", suspend=True, parallelism=0)
        patch = {**COMPLETE, "conditions": conditions("Complete")}
        assert isinstance(await write_status(plane.client, key, patch), Written)
    async with a_plane(tmp_path) as plane:
        refused = await write_status(
            plane.client, key, {"conditions": conditions("Complete", "SuccessCriteriaMet")}
        )
        assert "cannot set SuccessCriteriaMet=True for Job already has Complete" in str(refused)


@pytest.mark.virtual_time
async def test_with_the_gate_off_only_the_old_rules_apply(tmp_path: Path) -> None:
    strengthened = [row for row in REFUSED if "decrease" in row[4] or "terminal" in row[4]]
    assert len(strengthened) == 5
    async with a_plane(tmp_path, "JobManagedBy=false") as plane:
        for number, (spec, before, change, _, _) in enumerate(strengthened):
            key = await create_job(
                plane.client, f"job-{number}", suspend=True, parallelism=0, **spec
            )
            for status in (before, change):
                result = await write_status(plane.client, key, status)
                assert isinstance(result, Written), result


# --- consequences for CronJobs ----------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_cronjob_that_forbids_waits_for_the_outside_controller_to_finish(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        cronjob = await create(
            plane,
            CRONJOBS,
            build.a_cronjob("cron", concurrencyPolicy="Forbid", job=job_document("x")["spec"]),
        )
        await asyncio.sleep(150)
        (first,) = await names(plane, JOBS)
        key = Key(JOBS, "default", first)
        await write_status(
            plane.client,
            key,
            {"startTime": START, "conditions": conditions("SuccessCriteriaMet")},
        )
        await asyncio.sleep(120)
        assert await names(plane, JOBS) == [first], "its end is decided, but has not come"
        status = msgspec.json.decode(await plane.client.get(cronjob))["status"]
        assert "lastSuccessfulTime" not in status
        await write_status(plane.client, key, COMPLETE)
        await asyncio.sleep(61)
        assert len(await names(plane, JOBS)) == 2
        status = msgspec.json.decode(await plane.client.get(cronjob))["status"]
        assert status["lastSuccessfulTime"] == END


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.virtual_time
async def test_managed_by_can_only_be_chosen_at_creation(tmp_path: Path, suspend: bool) -> None:
    async with a_plane(tmp_path, gates="") as plane:
        for name, first, then in (
            ("set", None, MANAGER),
            ("changed", MANAGER, "example.com/another"),
            ("removed", MANAGER, None),
        ):
            key = await create_job(plane.client, name, managedBy=first, suspend=suspend)
            body = msgspec.json.encode({"spec": {"managedBy": then}})
            (refused,) = await plane.client.write_many([Patch(key, body, "merge")])
            assert isinstance(refused, Invalid), name
            assert "spec.managedBy: Invalid value" in str(refused)
            assert "field is immutable" in str(refused)


@pytest.mark.virtual_time
async def test_suspended_job_of_other_manager_gets_no_condition(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path, gates="") as plane:
        key = await create_job(plane.client, "theirs", suspend=True)
        await asyncio.sleep(60)
        assert msgspec.json.decode(await plane.client.get(key))["status"] == {}
