"""All orders of switching the gates of tracking and managedBy, with Pods in every state.

No Pod keeps its finalizer forever, no work is lost, no failure is forgotten. Each term is a server
of its own on the data of the one before.
"""

from itertools import product
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Delete, Patch
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.names import TRACKING, TRACKING_NAMES
from tests.build import a_pod, creation
from tests.job.terms import Term, a_term, settled

pytestmark = pytest.mark.virtual_time

TODAY = {True: "", False: "JobTrackingWithFinalizers=false"}
ANNOTATED = {
    True: "JobTrackingAnnotation=true",
    False: "JobTrackingAnnotation=true,JobTrackingWithFinalizers=false",
}
MANAGED = {True: "", False: "JobManagedBy=false"}
THEIRS = "example.com/other"
ORDERS = list(product([True, False], repeat=3))


def for_ever(pod: Pod) -> int | None:
    """Let the Pod run until it is stopped."""
    return None


async def orphan(term: Term, job: Key) -> None:
    """Remove the owner references of the Job's Pods, while no controller runs."""
    await term.controller.stop()
    gone = msgspec.json.encode({"metadata": {"ownerReferences": None}})
    pods = await term.pods_of(job.name)
    await term.cluster.client.write(Delete(job, "Background"))
    for pod in pods:
        await term.cluster.client.write(Patch(pod.key, gone, "merge"))


async def end_unseen(term: Term, job: Key, phase: str) -> None:
    """End the Job's Pods between the last sync of this server and the first of the next."""
    await term.controller.stop()
    for pod in await term.pods_of(job.name):
        body = msgspec.json.encode({"status": {"phase": phase}})
        await term.cluster.client.write(Patch(pod.key, body, "strategic", "status"))


async def leave(term: Term, job: Key, how: str) -> None:
    """Change the Job's Pods while no controller runs."""
    match how:
        case "ended":
            await end_unseen(term, job, "Succeeded")
        case "failed":
            await end_unseen(term, job, "Failed")
        case "orphaned":
            await orphan(term, job)
        case "deleted":
            await term.controller.stop()
            for pod in await term.pods_of(job.name):
                if not pod.metadata.deleting:
                    await term.cluster.client.write(Delete(pod.key))
        case _:
            assert how == "running"


@pytest.mark.parametrize("gates", [TODAY, ANNOTATED], ids=["today", "annotation"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("at_switch", ["running", "ended", "failed", "orphaned"])
async def test_tracking_may_be_switched_in_any_order(
    tmp_path: Path, gates: dict[bool, str], order: tuple[bool, ...], at_switch: str
) -> None:
    async def check(term: Term, job: Key, *, counted: bool, tracked: bool) -> None:
        """Check that Pods of earlier terms have no finalizer, or a Job that will count them."""
        if at_switch == "orphaned":
            alone = [p for p in await term.cluster.pods() if p.metadata.controller_ref is None]
            assert len(alone) >= 2
            assert not any(map(is_tracked, alone))
            return
        found = await term.cluster.job(job)
        if at_switch == "ended" and counted:
            assert found.condition_is_true("Complete")
            assert found.status.succeeded == 2
        if at_switch == "failed" and counted:
            assert found.status.failed == 2
        if found.finished or not tracked:
            assert not any(map(is_tracked, await term.pods_of(job.name)))

    jobs: dict[Key, bool] = {}
    for number, on in enumerate(order):
        async with a_term(tmp_path, gates[on], script=for_ever) as term:
            await settled()
            for job, made_on in jobs.items():
                # By today's rule, Pods started without a finalizer are not counted.
                counted = made_on or not on or gates is ANNOTATED
                await check(term, job, counted=counted, tracked=on)
            job = await term.cluster.create_job(f"runs-{number}", completions=2, parallelism=2)
            jobs[job] = on
            await settled()
            await leave(term, job, at_switch)
    for on in (True, False):
        async with a_term(tmp_path, gates[on], script=lambda pod: 0) as term:
            if at_switch != "orphaned":
                for job in jobs:
                    await term.cluster.until_finished(job, within=600)
            await settled()
            held = [pod.metadata.name for pod in await term.cluster.pods() if is_tracked(pod)]
            assert held == [], "all has ended, and nobody is held"


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("at_switch", ["running", "ended", "failed", "deleted"])
async def test_managed_by_may_be_switched_in_any_order(
    tmp_path: Path, order: tuple[bool, ...], at_switch: str
) -> None:
    """Pods started for another controller's Job while the gate was off lose their finalizer.

    They must not keep it forever once the gate is on again.
    """
    job = Key(JOBS, "default", "runs")
    # Created while the gate is on: where it is off, a new Job loses the field.
    async with a_term(tmp_path, MANAGED[True]) as term:
        await term.cluster.create_job(
            "runs", managedBy=THEIRS, completions=100, parallelism=2, backoffLimit=100
        )
    for on in order:
        async with a_term(tmp_path, MANAGED[on], script=for_ever) as term:
            await settled()
            assert held_in_vain(await term.pods_of("runs")) == []
            await leave(term, job, at_switch)
    async with a_term(tmp_path, MANAGED[True], script=lambda pod: 0) as term:
        await settled()
        pods = await term.pods_of("runs")
        assert held_in_vain(pods) == []
        assert all(pod.terminal for pod in pods), "the node has ended the rest"


def held_in_vain(pods: list[Pod]) -> list[str]:
    """Return ended or deleted Pods with a finalizer that no controller will remove."""
    return [p.metadata.name for p in pods if is_tracked(p) and (p.terminal or p.metadata.deleting)]


async def test_pods_of_another_controller_keep_their_finalizer(tmp_path: Path) -> None:
    """It may be the same finalizer, but it is theirs to remove."""
    async with a_term(tmp_path) as term:
        job = await term.cluster.create_job("theirs", managedBy=THEIRS)
        uid = (await term.document(job))["metadata"]["uid"]
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "theirs",
            "uid": uid,
            "controller": True,
        }
        metadata = {"finalizers": [TRACKING], "ownerReferences": [reference]}
        await term.cluster.client.write(creation(a_pod(metadata=metadata)))
        body = msgspec.json.encode({"status": {"phase": "Succeeded"}})
        pod = Key(PODS, "default", "p")
        await term.cluster.client.write(Patch(pod, body, "strategic", "status"))
        await settled()
        assert [is_tracked(pod) for pod in await term.cluster.pods()] == [True]


@pytest.mark.parametrize("limit", [0, 1])
async def test_a_limit_of_failed_pods_does_not_defeat_the_backoff_limit_without_finalizers(
    tmp_path: Path, limit: int
) -> None:
    """Without finalizers, a failed Pod must exist until its Job has ended to be counted."""
    async with a_term(tmp_path, TODAY[False], script=lambda pod: 1) as term:
        job = await term.cluster.create_job(failedPodsLimit=limit, backoffLimit=2, backoffSeconds=1)
        finished = await term.cluster.until_finished(job, within=60)
        assert finished.finished_condition is not None
        assert finished.finished_condition.reason == "BackoffLimitExceeded"
        assert len(term.node.exits) == 3
        await settled()
        assert len(await term.pods_of("job")) == limit
        assert (await term.cluster.job(job)).status.failed == 3


@pytest.mark.parametrize("name", TRACKING_NAMES)
async def test_the_name_of_the_finalizer_is_that_of_the_annotation_too(
    tmp_path: Path, name: str
) -> None:
    async with a_term(tmp_path, ANNOTATED[True], tracking_finalizer=name) as term:
        job = await term.cluster.create_job()
        await settled()
        document = await term.document(job)
        assert set(document["metadata"]["annotations"]) == {name}
        assert [pod.metadata.finalizers for pod in await term.cluster.pods()] == [(name,)]
    # Under the other name the Job is still a tracked one.
    async with a_term(tmp_path, ANNOTATED[True], script=lambda pod: 0) as term:
        finished = await term.cluster.until_finished(job)
        assert finished.status.succeeded == 1
        assert len(await term.cluster.pods()) == 1
