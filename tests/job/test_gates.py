"""Feature gates switched on, off and on again on the same data, as the proposals describe it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Delete, Patch
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod
from onejob.planning.names import TRACKING, TRACKING_AS_PROPOSED
from tests.build import a_pod
from tests.job.terms import a_plane, a_term, create, create_job, names, settled, template

pytestmark = pytest.mark.virtual_time

TRACKED = "JobTrackingAnnotation=true"
UNTRACKED = "JobTrackingAnnotation=true,JobTrackingWithFinalizers=false"


def is_held(pod: Pod) -> bool:
    return TRACKING in pod.metadata.finalizers


async def test_tracking_on_off_and_on_again_with_the_annotation(tmp_path: Path) -> None:
    """Once the gate was off, a formerly tracked Job is counted without finalizers for good."""
    spec = {"completions": 4, "parallelism": 2}
    async with a_term(tmp_path, TRACKED) as term:
        first = await term.cluster.create_job("first", **spec)
        await settled()
        assert TRACKING in (await term.document(first))["metadata"]["annotations"]
        assert [is_held(pod) for pod in await term.pods_of("first")] == [True, True]

    ended: list[str] = []

    def two_succeed(pod: Pod) -> int | None:
        ended.append(pod.metadata.name)
        return 0 if len(ended) <= 2 else None

    async with a_term(tmp_path, UNTRACKED, script=two_succeed) as term:
        await settled()
        job = await term.document(first)
        assert TRACKING not in job["metadata"].get("annotations", {})
        assert "uncountedTerminatedPods" not in job["status"]
        assert job["status"]["succeeded"] == 2
        pods = await term.pods_of("first")
        assert [is_held(pod) for pod in pods] == [False] * 4
        second = await term.cluster.create_job(
            "second", suspend=True, annotations={TRACKING: "", TRACKING_AS_PROPOSED: ""}
        )
        assert "annotations" not in (await term.document(second))["metadata"]

    async with a_term(tmp_path, TRACKED) as term:
        third = await term.cluster.create_job("third", **spec)
        await settled()
        assert TRACKING in (await term.document(third))["metadata"]["annotations"]
        assert [is_held(pod) for pod in await term.pods_of("third")] == [True, True]
        assert [is_held(pod) for pod in await term.pods_of("first")] == [False] * 4
        patch = msgspec.json.encode({"metadata": {"annotations": {TRACKING: ""}}})
        (refused,) = await term.cluster.client.write_many([Patch(first, patch, "merge")])
        assert "cannot add this annotation" in str(refused)

    async with a_term(tmp_path, TRACKED, script=lambda pod: 0) as term:
        for key in (first, third):
            finished = await term.cluster.until_finished(key)
            assert finished.condition_is_true("Complete")
            assert finished.status.succeeded == 4
            assert len(await term.pods_of(key.name)) == 4, "no work was done twice"
        assert not any(pod.metadata.finalizers for pod in await term.cluster.pods())


async def test_a_job_whose_annotation_is_taken_off_is_counted_by_existence(tmp_path: Path) -> None:
    ended: list[str] = []

    def one_succeeds(pod: Pod) -> int | None:
        ended.append(pod.metadata.name)
        return 0 if len(ended) == 1 else None

    async with a_term(tmp_path, TRACKED, script=one_succeeds) as term:
        job = await term.cluster.create_job("job", completions=4, parallelism=1)
        await settled()
        assert (await term.cluster.job(job)).status.succeeded == 1
        off = msgspec.json.encode({"metadata": {"annotations": {TRACKING: None}}})
        await term.cluster.client.write(Patch(job, off, "merge"))
        await settled()
        assert not any(map(is_held, await term.pods_of("job")))
        assert (await term.cluster.job(job)).status.succeeded == 1, "found by its Pod"
    async with a_term(tmp_path, TRACKED, script=lambda pod: 0) as term:
        finished = await term.cluster.until_finished(job)
        assert finished.status.succeeded == 4
        assert len(await term.pods_of("job")) == 4
        assert not any(map(is_held, await term.pods_of("job")))


async def test_tracking_on_off_and_on_again_by_todays_rule(tmp_path: Path) -> None:
    """Without the annotation every Job is tracked whenever the gate is on."""
    ended: list[str] = []

    def two_more_succeed(pod: Pod) -> int | None:
        ended.append(pod.metadata.name)
        return 0 if len(ended) <= 2 else None

    async with a_term(tmp_path, script=two_more_succeed) as term:
        job = await term.cluster.create_job("job", completions=6, parallelism=2)
        await settled()
        assert (await term.cluster.job(job)).status.succeeded == 2
        assert sum(map(is_held, await term.pods_of("job"))) == 2
    ended.clear()
    off = "JobTrackingWithFinalizers=false"
    async with a_term(tmp_path, off, script=two_more_succeed) as term:
        await settled()
        assert (await term.cluster.job(job)).status.succeeded == 4
        assert not any(map(is_held, await term.pods_of("job")))
    async with a_term(tmp_path, script=lambda pod: 0) as term:
        finished = await term.cluster.until_finished(job, within=60)
        # The two Pods started without a finalizer are not counted when they end, and are
        # replaced.
        assert finished.status.succeeded == 6
        assert len(await term.pods_of("job")) == 8


@pytest.mark.parametrize("gates", ["", "JobTrackingWithFinalizers=false"])
async def test_orphaned_pods_are_released_for_any_gate(tmp_path: Path, gates: str) -> None:
    async with a_term(tmp_path) as term:
        job = await term.cluster.create_job("job", completions=2, parallelism=2)
        await settled()
        await term.controller.stop()
        owner_gone = msgspec.json.encode({"metadata": {"ownerReferences": None}})
        await term.cluster.client.write(Delete(job, "Background"))
        for pod in await term.cluster.pods():
            await term.cluster.client.write(Patch(pod.key, owner_gone, "merge"))
        assert all(map(is_held, await term.cluster.pods()))
    async with a_term(tmp_path, gates) as term:
        await settled()
        pods = await term.cluster.pods()
        assert len(pods) == 2
        assert not any(map(is_held, pods))


async def test_managed_by_on_off_and_on_again(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        job = await term.cluster.create_job("theirs", managedBy="example.com/other")
        await settled()
        document = await term.document(job)
        assert document["status"] == {}
        assert await term.cluster.pods() == []
        assert await term.reasons() == []
    off = "JobManagedBy=false"
    async with a_term(tmp_path, off) as term:
        await settled()
        document = await term.document(job)
        assert document["spec"]["managedBy"] == "example.com/other", "kept where it is stored"
        assert document["status"]["active"] == 1
        external = term.cluster.metrics.external_jobs
        assert external.value(controller_name="example.com/other") == 0
        late = await term.cluster.create_job("late", managedBy="example.com/other")
        assert "managedBy" not in (await term.document(late))["spec"]
        patch = msgspec.json.encode({"status": {"ready": 7}})
        await term.cluster.client.write(Patch(job, patch, "merge", "status"))
    async with a_term(tmp_path, script=lambda pod: 0) as term:
        before = await term.document(job)
        await settled()
        assert await term.document(job) == before, "frozen again"
        assert (await term.cluster.job(late)).condition_is_true("Complete")
        (pod,) = await term.pods_of("theirs")
        assert pod.phase == "Succeeded"
        assert not is_held(pod), "it was started here, so nobody else would free it"
        external = term.cluster.metrics.external_jobs
        assert external.value(controller_name="example.com/other") == 1
        patch = msgspec.json.encode({"status": {"ready": 9}})
        (refused,) = await term.cluster.client.write_many([Patch(job, patch, "merge", "status")])
        assert "cannot set more ready pods than active" in str(refused)


async def test_ttl_after_finished_on_off_and_on_again(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create_job(plane, "quick", ttlSecondsAfterFinished=10)
        kept = await create_job(plane, "kept", ttlSecondsAfterFinished=3600)
        await asyncio.sleep(60)
        assert await names(plane, JOBS) == ["kept"]
    async with a_plane(tmp_path, "TTLAfterFinished=false") as plane:
        late = await create_job(plane, "late", ttlSecondsAfterFinished=10)
        document = msgspec.json.decode(await plane.client.get(late))
        assert "ttlSecondsAfterFinished" not in document["spec"], "dropped from new Jobs"
        patch = msgspec.json.encode({"metadata": {"labels": {"a": "b"}}})
        await plane.client.write(Patch(kept, patch, "merge"))
        document = msgspec.json.decode(await plane.client.get(kept))
        assert document["spec"]["ttlSecondsAfterFinished"] == 3600, "kept where it is stored"
        await asyncio.sleep(2 * 3600)
        assert await names(plane, JOBS) == ["kept", "late"]
    async with a_plane(tmp_path) as plane:
        await asyncio.sleep(60)
        assert await names(plane, JOBS) == ["late"], "what expired meanwhile goes now"


async def test_ttl_of_pods_on_off_and_on_again(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, PODS, a_pod("quick", ttlSecondsAfterFinished=10))
        await create(plane, PODS, a_pod("kept", ttlSecondsAfterFinished=3600))
        await asyncio.sleep(60)
        assert await names(plane, PODS) == ["kept"]
    async with a_plane(tmp_path, "TTLAfterFinishedPods=false") as plane:
        late = await create(plane, PODS, a_pod("late", ttlSecondsAfterFinished=10))
        document = msgspec.json.decode(await plane.client.get(late))
        assert "ttlSecondsAfterFinished" not in document["spec"]
        await asyncio.sleep(2 * 3600)
        assert await names(plane, PODS) == ["kept", "late"]
    async with a_plane(tmp_path) as plane:
        await asyncio.sleep(60)
        assert await names(plane, PODS) == ["late"]


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ("", ["JobStart", "SuccessfulCreate", "Completed", "JobFinish"]),
        ("JobLifecycleEvents=false", ["SuccessfulCreate", "Completed"]),
    ],
)
async def test_lifecycle_events_can_be_silenced(
    tmp_path: Path, gates: str, expected: list[str]
) -> None:
    async with a_term(tmp_path, gates, script=lambda pod: 0) as term:
        await term.cluster.until_finished(await term.cluster.create_job())
        await settled()
        assert sorted(await term.reasons()) == sorted(expected)


@pytest.mark.parametrize("gate", [True, False])
async def test_suspension_keeps_the_start_time_where_its_gate_is_off(
    tmp_path: Path, gate: bool
) -> None:
    gates = f"MutableSchedulingDirectivesForSuspendedJobs={str(gate).lower()}"
    async with a_term(tmp_path, gates) as term:
        job = await term.cluster.create_job()
        await settled()
        patch = msgspec.json.encode({"spec": {"suspend": True}})
        await term.cluster.client.write(Patch(job, patch, "merge"))
        await settled()
        status = (await term.document(job))["status"]
        assert ("startTime" in status) is not gate
        node_selector = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}
        (result,) = await term.cluster.client.write_many(
            [Patch(job, msgspec.json.encode(node_selector), "merge")]
        )
        assert ("field is immutable" in str(result)) is not gate


@pytest.mark.parametrize("gate", [True, False])
async def test_the_deadline_begins_anew_when_a_job_is_resumed(tmp_path: Path, gate: bool) -> None:
    gates = f"MutableSchedulingDirectivesForSuspendedJobs={str(gate).lower()}"
    async with a_term(tmp_path, gates) as term:
        job = await term.cluster.create_job(activeDeadlineSeconds=100)
        await settled()
        for suspend in (True, False):
            patch = msgspec.json.encode({"spec": {"suspend": suspend}})
            await term.cluster.client.write(Patch(job, patch, "merge"))
            await asyncio.sleep(90)
        status = (await term.document(job))["status"]
        assert status["active"] == 1, "90 of its 100 seconds are over"
        await settled()
        status = (await term.document(job))["status"]
        assert [condition["type"] for condition in status["conditions"]] == [
            "Suspended",
            "FailureTarget",
            "Failed",
        ]


async def test_pods_with_either_finalizer_are_counted_whichever_is_written(tmp_path: Path) -> None:
    """The server is restarted with the other name in the middle of a Job."""
    async with a_term(tmp_path, tracking_finalizer=TRACKING_AS_PROPOSED) as term:
        job = await term.cluster.create_job("job", completions=4, parallelism=2)
        await settled()
        assert [pod.metadata.finalizers for pod in await term.cluster.pods()] == [
            (TRACKING_AS_PROPOSED,)
        ] * 2
    held: set[tuple[str, ...]] = set()

    def succeed(pod: Pod) -> int:
        held.add(pod.metadata.finalizers)
        return 0

    async with a_term(tmp_path, script=succeed) as term:
        finished = await term.cluster.until_finished(job)
        assert finished.status.succeeded == 4
        assert held == {(TRACKING_AS_PROPOSED,), (TRACKING,)}
        assert len(await term.cluster.pods()) == 4
        assert not any(pod.metadata.finalizers for pod in await term.cluster.pods())


async def test_the_finalizer_to_write_is_a_setting_of_the_server(tmp_path: Path) -> None:
    async with a_plane(tmp_path, tracking_finalizer=TRACKING_AS_PROPOSED) as plane:
        await create_job(plane, template=template(**{"onejob.dev/simulated-duration": "3600"}))
        await settled()
        (name,) = await names(plane, PODS)
        document = msgspec.json.decode(await plane.client.get(Key(PODS, "default", name)))
        assert document["metadata"]["finalizers"] == [TRACKING_AS_PROPOSED]
