"""Edge cases that involve several components; the others are tested with their component.

The marker `edge_case` holds the number of the case; a test checks that every number has a test.
"""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.kinds.printing import job_cells
from onejob.client.base import Delete, Patch, Selection
from onejob.control_plane import ControlPlane
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, PODS, Key
from onejob.planning.cronjob.schedule import ScheduleError, parse_schedule
from onejob.virtual_time import NOON
from tests import build
from tests.job.clients import Interceptor
from tests.job.terms import a_plane, a_term, create, create_job, names, settled, template

pytestmark = pytest.mark.virtual_time

LONG = template(**{"onejob.dev/simulated-duration": "100000"})
FAILING = template(**{"onejob.dev/simulated-exit-code": "1"})


async def get(plane: ControlPlane, key: Key) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(await plane.client.get(key))
    return document


async def patch(plane: ControlPlane, key: Key, body: dict[str, Any], subresource: str = "") -> None:
    await plane.client.write(Patch(key, msgspec.json.encode(body), "merge", subresource))


async def create_cronjob(
    plane: ControlPlane, schedule: str, pods: dict[str, Any] | None = None, **spec: Any
) -> Key:
    job = {"template": pods or template()}
    return await create(plane, CRONJOBS, build.a_cronjob("cron", schedule, job=job, **spec))


async def reasons(plane: ControlPlane) -> set[str]:
    listing = await plane.client.list(Selection(EVENTS))
    return {msgspec.json.decode(document)["reason"] for document in listing.documents}


def slot_name(moment: datetime) -> str:
    return f"cron-{int(moment.timestamp()) // 60}"


# --- the controller and its caches ------------------------------------------------------------


@pytest.mark.edge_case(19)
async def test_counting_waits_for_own_writes_in_cache(
    tmp_path: Path,
) -> None:
    """A cache must be checked before the Pods are listed.

    A lagging cache checked afterwards could confirm a list that lacks Pods: they would be created
    twice.
    """
    async with a_term(tmp_path) as term:
        await term.controller.stop()
        client = Interceptor(term.cluster.client)
        controller = await term.cluster.start_job_controller(client)
        client.hold_back(PODS)
        job = await term.cluster.create_job(completions=9, parallelism=3)
        await asyncio.sleep(1)
        for parallelism in (4, 5):
            body = msgspec.json.encode({"spec": {"parallelism": parallelism}})
            await term.cluster.client.write(Patch(job, body, "merge"))
            await asyncio.sleep(1)
        assert len(await term.cluster.pods()) == 3, "its own three are not seen yet"
        client.release(PODS)
        await settled()
        assert len(await term.cluster.pods()) == 5
        await controller.stop()


# --- deletion ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("propagation", "pods_left"), [("", 2), ("Orphan", 2), ("Background", 0), ("Foreground", 0)]
)
@pytest.mark.edge_case(52)
async def test_deleting_a_job_without_a_policy_leaves_its_pods(
    tmp_path: Path, propagation: Any, pods_left: int
) -> None:
    async with a_plane(tmp_path) as plane:
        job = await create_job(plane, parallelism=2, completions=2, template=LONG)
        await settled()
        await plane.client.write(Delete(job, propagation))
        await asyncio.sleep(120)
        assert await names(plane, JOBS) == []
        pods = [await get(plane, Key(PODS, "default", name)) for name in await names(plane, PODS)]
        assert len(pods) == pods_left
        for pod in pods:
            assert "ownerReferences" not in pod["metadata"]
            assert not pod["metadata"].get("finalizers")


@pytest.mark.edge_case(53)
async def test_object_is_deleted_with_last_finalizer_but_running_pod_waits_for_node(
    tmp_path: Path,
) -> None:
    (tmp_path / "pods").mkdir()
    async with a_plane(tmp_path) as plane:
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "held", "finalizers": ["example.com/a", "example.com/b"]},
        }
        held = await create(plane, "configmaps", settings)
        await plane.client.write(Delete(held))
        await patch(plane, held, {"metadata": {"finalizers": ["example.com/b"]}})
        assert "deletionTimestamp" in (await get(plane, held))["metadata"]
        await patch(plane, held, {"metadata": {"finalizers": None}})
        assert "held" not in await names(plane, "configmaps")
    async with a_term(tmp_path / "pods") as term:
        client = term.cluster.client
        term.cluster.tasks.pop().cancel()
        metadata = {"finalizers": ["example.com/a"]}
        key = Key(PODS, "default", "pod")
        await client.write(build.creation(build.a_pod("pod", metadata=metadata, nodeName="node")))
        running = msgspec.json.encode({"status": {"phase": "Running"}})
        await client.write(Patch(key, running, "merge", "status"))
        await client.write(Delete(key, grace_seconds=30))
        nothing = msgspec.json.encode({"metadata": {"finalizers": None}})
        await client.write(Patch(key, nothing, "merge"))
        assert [pod.metadata.name for pod in await term.cluster.pods()] == ["pod"]
        await client.write(Delete(key, grace_seconds=0))
        assert await term.cluster.pods() == []


@pytest.mark.edge_case(54)
async def test_a_ttl_lowered_after_the_end_takes_effect_at_once(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        job = await create_job(plane, ttlSecondsAfterFinished=100000)
        await asyncio.sleep(600)
        await patch(plane, job, {"spec": {"ttlSecondsAfterFinished": 60}})
        await settled()
        assert await names(plane, JOBS) == []


@pytest.mark.edge_case(54)
async def test_a_job_finished_at_no_known_time_is_an_error_and_stays(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        job = await create_job(plane, ttlSecondsAfterFinished=0, managedBy="example.com/x")
        body = {
            "startTime": "2026-01-01T12:00:00Z",
            "conditions": [
                {"type": "FailureTarget", "status": "True"},
                {"type": "Failed", "status": "True"},
            ],
        }
        await patch(plane, job, {"status": body}, "status")
        await asyncio.sleep(600)
        assert await names(plane, JOBS) == ["job"]


# --- CronJobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "too_many"), [(1, False), (2, True)])
@pytest.mark.edge_case(55)
async def test_only_the_latest_missed_slot_runs(tmp_path: Path, hours: int, too_many: bool) -> None:
    async with a_plane(tmp_path) as plane:
        await create_cronjob(plane, "* * * * *", LONG)
    await asyncio.sleep(hours * 3600 + 30)
    async with a_plane(tmp_path) as plane:
        await asyncio.sleep(10)
        assert await names(plane, JOBS) == [slot_name(NOON + timedelta(hours=hours))]
        assert ("TooManyMissedTimes" in await reasons(plane)) == too_many


@pytest.mark.edge_case(56)
async def test_a_slot_is_not_started_again_though_its_job_is_gone(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        cronjob = await create_cronjob(plane, "0 * * * *", LONG)
        await asyncio.sleep(3605)
        (job,) = await names(plane, JOBS)
        await plane.client.write(Delete(Key(JOBS, "default", job), "Background"))
        await patch(plane, cronjob, {"metadata": {"labels": {"look": "again"}}})
        await asyncio.sleep(600)
        assert await names(plane, JOBS) == []
        assert (await get(plane, cronjob))["status"]["lastScheduleTime"] == ("2026-01-01T13:00:00Z")


@pytest.mark.edge_case(57)
async def test_a_forbidden_slot_starts_late_once_the_previous_job_has_ended(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        pods = template(**{"onejob.dev/simulated-duration": "5400"})
        cronjob = await create_cronjob(plane, "0 * * * *", pods, concurrencyPolicy="Forbid")
        await asyncio.sleep(2 * 3600 + 60)
        assert len(await names(plane, JOBS)) == 1, "the slot of 14:00 is forbidden"
        status = (await get(plane, cronjob))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T13:00:00Z", "and not forgotten"
        await asyncio.sleep(1800)
        assert slot_name(NOON + timedelta(hours=2)) in await names(plane, JOBS)
        status = (await get(plane, cronjob))["status"]
        assert status["lastScheduleTime"] == "2026-01-01T14:00:00Z"


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.edge_case(58)
async def test_existing_job_with_slot_name_is_active_only_if_owned(
    tmp_path: Path, ours: bool
) -> None:
    async with a_plane(tmp_path) as plane:
        cronjob = await create_cronjob(plane, "0 * * * *")
        uid = (await get(plane, cronjob))["metadata"]["uid"]
        owner = {
            "apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "uid": uid,
            "controller": True,
        }  # fmt: skip
        name = slot_name(NOON + timedelta(hours=1))
        metadata = {"ownerReferences": [owner] if ours else []}
        await create(plane, JOBS, build.a_job(name, metadata=metadata, template=LONG))
        await asyncio.sleep(3660)
        status = (await get(plane, cronjob))["status"]
        assert [ref["name"] for ref in status.get("active", [])] == ([name] if ours else [])
        assert "FailedCreate" not in await reasons(plane)


@pytest.mark.edge_case(59)
async def test_a_success_that_history_deletes_at_once_is_still_the_last_one(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        cronjob = await create_cronjob(plane, "0 * * * *", successfulJobsHistoryLimit=0)
        await asyncio.sleep(3700)
        assert await names(plane, JOBS) == []
        status = (await get(plane, cronjob))["status"]
        assert status["lastSuccessfulTime"].startswith("2026-01-01T13:00:0")


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        ("0 0 * * 7", "end of range (7) above maximum (6): 7"),
        ("@reboot", "unrecognized descriptor: @reboot"),
        ("TZ=UTC", "slice bounds out of range"),
    ],
)
@pytest.mark.edge_case(60)
def test_invalid_schedule_is_an_error(schedule: str, error: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(error)):
        parse_schedule(schedule)


@pytest.mark.edge_case(60)
def test_a_stepped_star_restricts_so_either_day_matches() -> None:
    either = parse_schedule("0 0 */2 * 1")
    days = []
    moment: datetime | None = datetime(2026, 1, 1, 1, tzinfo=UTC)
    for _ in range(4):
        assert moment is not None
        moment = either.next(moment)
        assert moment is not None
        days.append(moment.day)
    assert days == [3, 5, 7, 9], "odd days, and Mondays (the 5th)"
    both = parse_schedule("0 0 * * 1")
    first = both.next(datetime(2026, 1, 1, 1, tzinfo=UTC))
    assert first is not None
    assert first.day == 5


@pytest.mark.edge_case(60)
async def test_schedule_without_slots_is_reported(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create_cronjob(plane, "0 0 31 2 *")
        await settled()
        assert await names(plane, JOBS) == []
        assert "InvalidSchedule" in await reasons(plane)


@pytest.mark.edge_case(61)
async def test_every_is_anchored_on_the_last_run_and_names_have_minutes(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        await asyncio.sleep(17)
        cronjob = await create_cronjob(plane, "@every 30s", successfulJobsHistoryLimit=100)
        await asyncio.sleep(60 * 5 + 20)
        status = (await get(plane, cronjob))["status"]
        assert status["lastScheduleTime"][-3:-1] in ("17", "47"), "17 s after the minute"
        jobs = await names(plane, JOBS)
        assert 4 <= len(jobs) <= 6, "a name per minute, so a Job per minute"


# --- output -----------------------------------------------------------------------------------


def printed(now: str, status: dict[str, Any], **metadata: Any) -> list[Any]:
    document = {
        "metadata": {"name": "job", "creationTimestamp": "2026-01-01T12:00:00Z", **metadata},
        "spec": {"completions": 1, "template": template()},
        "status": {"startTime": "2026-01-01T12:00:00Z", **status},
    }
    return job_cells(document, datetime.fromisoformat(now))


def true(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


@pytest.mark.edge_case(63)
def test_the_duration_of_a_failed_job_keeps_growing() -> None:
    failed = {"conditions": true("FailureTarget", "Failed")}
    complete = {
        "conditions": true("SuccessCriteriaMet", "Complete"),
        "completionTime": "2026-01-01T12:00:05Z",
    }
    durations = [
        printed(now, status)[3]
        for status in (failed, complete)
        for now in ("2026-01-01T12:00:30Z", "2026-01-01T12:01:00Z")
    ]
    assert durations == ["30s", "60s", "5s", "5s"]


@pytest.mark.parametrize(
    ("conditions", "deleting", "expected"),
    [
        (("Suspended", "Complete"), True, "Complete"),
        (("Suspended", "Failed"), True, "Failed"),
        (("Suspended",), True, "Terminating"),
        (("FailureTarget", "Suspended"), False, "Suspended"),
        (("FailureTarget",), False, "FailureTarget"),
        (("SuccessCriteriaMet",), False, "SuccessCriteriaMet"),
        ((), False, "Running"),
    ],
)
@pytest.mark.edge_case(63)
def test_the_first_status_that_applies_is_shown(
    conditions: tuple[str, ...], deleting: bool, expected: str
) -> None:
    metadata = {"deletionTimestamp": "2026-01-01T12:00:01Z"} if deleting else {}
    cells = printed("2026-01-01T12:00:30Z", {"conditions": true(*conditions)}, **metadata)
    assert cells[1] == expected


# --- all of them ------------------------------------------------------------------------------


def test_every_edge_case_number_has_a_test() -> None:
    tests = Path(__file__).resolve().parents[1]
    found: set[int] = set()
    for path in tests.rglob("test_*.py"):
        for numbers in re.findall(
            r"^@pytest\.mark\.edge_case\(([\d, ]+)\)$", path.read_text("utf-8"), re.M
        ):
            found.update(map(int, numbers.split(",")))
    assert found == set(range(1, 65))
