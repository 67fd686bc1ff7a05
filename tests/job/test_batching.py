"""Timing and cost of syncs: at once when idle, batched under load, and cheap."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest

from onejob.client.base import Client, Create, Delete, Op, Patch, Result
from onejob.metrics import CompletionMode, Metrics, SyncAction
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod
from onejob.planning.job import claiming
from tests.build import a_pod, creation
from tests.job.terms import Term, a_term, settled, template
from tests.scripted_cluster import CountingClient, a_cluster

pytestmark = pytest.mark.virtual_time


def syncs(metrics: Metrics) -> float:
    results: tuple[Literal["success", "error"], ...] = ("success", "error")
    modes: tuple[CompletionMode, ...] = get_args(CompletionMode)
    actions: tuple[SyncAction, ...] = get_args(SyncAction)
    return sum(
        metrics.job_syncs.value(completion_mode=mode, result=result, action=action)
        for mode in modes
        for result in results
        for action in actions
    )


async def end_pods(term: Term, pods: list[Pod]) -> None:
    body = msgspec.json.encode({"status": {"phase": "Succeeded"}})
    await term.cluster.client.write_many([Patch(pod.key, body, "merge", "status") for pod in pods])


async def test_an_idle_controller_acts_at_once(tmp_path: Path) -> None:
    """Without any passage of time: upstream would wait for a second."""
    async with a_term(tmp_path) as term:
        job = await term.cluster.create_job()
        await settled()
        (pod,) = await term.cluster.pods()
        before = term.cluster.clock.now()
        await end_pods(term, [pod])
        finished = await term.cluster.until_finished(job)
        assert term.cluster.clock.now() == before
        assert finished.status.succeeded == 1


async def test_that_counted_pods_are_cleared_away_is_no_urgent_news(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        await term.cluster.create_job(completions=1000, parallelism=20)
        await settled()
        ended = await term.cluster.pods()
        # The replacement Pods must cause no events of their own.
        term.cluster.tasks.pop().cancel()
        await end_pods(term, ended)
        await settled()
        await asyncio.sleep(1)
        before = syncs(term.cluster.metrics)
        client = term.cluster.client
        for pod in ended:
            await client.write(Delete(pod.key, uid=pod.metadata.uid))
        await asyncio.sleep(1)
        assert len(await term.cluster.pods()) == 20
        assert syncs(term.cluster.metrics) == before + 1


async def test_changes_during_sync_are_batched_into_next_sync(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        await term.cluster.create_job(completions=1000, parallelism=200)
        await settled()
        # The node would start the next ones one by one, each a change of its own.
        term.cluster.tasks.pop().cancel()
        before = syncs(term.cluster.metrics)
        await end_pods(term, await term.cluster.pods())
        await settled()
        job = await term.cluster.job(Key("jobs.batch", "default", "job"))
        assert job.status.succeeded == 200
        assert 1 <= syncs(term.cluster.metrics) - before <= 5, "not one for each of 200 Pods"


async def test_a_job_at_rest_is_left_alone(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        await term.cluster.create_job(completions=20, parallelism=10)
        await settled()
        before, revision = syncs(term.cluster.metrics), term.cluster.store.revision
        await asyncio.sleep(3600)
        assert syncs(term.cluster.metrics) == before
        assert term.cluster.store.revision == revision, "and nothing is written"


async def test_a_sync_asks_only_of_pods_that_changed_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the Job's other Pods nor unrelated ones of its namespace are examined."""
    asked: list[str] = []
    real = claiming.claim_of

    def asking(job: Any, matcher: Any, pod: Pod) -> claiming.Claim:
        asked.append(pod.metadata.name)
        return real(job, matcher, pod)

    async with a_term(tmp_path) as term:
        for number in range(50):
            stranger = a_pod(f"stranger-{number}", metadata={"labels": {"app": "x"}})
            await term.cluster.client.write(creation(stranger))
        await term.cluster.create_job(completions=100, parallelism=50)
        await settled()
        monkeypatch.setattr(claiming, "claim_of", asking)
        own = [pod for pod in await term.cluster.pods() if pod.metadata.controller_ref]
        await end_pods(term, own[:1])
        await settled()
        job = await term.cluster.job(Key("jobs.batch", "default", "job"))
        assert job.status.succeeded == 1
        assert len(asked) == 1, "only of the one that took its place"


@pytest.mark.parametrize("selector", [{"app": "x"}, {}])
async def test_matching_foreign_pod_is_found_for_any_selector(
    tmp_path: Path, selector: dict[str, str]
) -> None:
    async with a_term(tmp_path) as term:
        labelled = template()
        labelled["metadata"]["labels"] = {"app": "x", "tier": "y"}
        stranger = a_pod("stranger", metadata={"labels": {"app": "x", "tier": "y"}})
        expressions = [{"key": "tier", "operator": "In", "values": ["y"]}]
        await term.cluster.create_job(
            template=labelled,
            manualSelector=True,
            selector={"matchLabels": selector, "matchExpressions": expressions},
            parallelism=0,
        )
        await settled()
        await term.cluster.client.write(creation(stranger))
        await asyncio.sleep(0.5)
        pods = await term.cluster.pods()
        assert not pods or pods[0].metadata.controller_ref is not None
        assert "SuccessfulDelete" in await term.reasons(), "adopted, and then one too many"


async def test_a_pod_that_no_longer_matches_is_let_go_without_being_counted(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        await term.cluster.create_job()
        await settled()
        (pod,) = await term.cluster.pods()
        body = {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "other"}}}
        await term.cluster.client.write(Patch(pod.key, msgspec.json.encode(body), "merge"))
        await settled()
        pods = {pod.metadata.name: pod for pod in await term.cluster.pods()}
        released = pods.pop(pod.metadata.name)
        assert released.metadata.controller_ref is None
        assert released.metadata.finalizers == ()
        assert len(pods) == 1, "another one has taken its place"


class CreateBatches(CountingClient):
    """Client that records the number of Pods created with each call."""

    def __init__(self, inner: Client) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        creates = sum(isinstance(op, Create) and op.resource == PODS for op in ops)
        if creates:
            self.sizes.append(creates)
        return await super().write_many(ops)


async def test_pods_are_created_in_batches_that_grow_from_sync_to_sync(tmp_path: Path) -> None:
    """Each batch is a round trip on a cluster: a successful Job needs one per sync."""
    async with a_cluster(tmp_path) as cluster:
        client = CreateBatches(cluster.client)
        cluster.start_node(lambda pod: None)
        controller = await cluster.start_job_controller(client)
        await cluster.create_job(completions=1000, parallelism=10)
        rounds = []
        body = msgspec.json.encode({"status": {"phase": "Succeeded"}})
        for _ in range(4):
            await settled()
            rounds.append(client.sizes)
            client.sizes = []
            running = [pod for pod in await cluster.pods() if not pod.terminal]
            await cluster.client.write_many(
                [Patch(pod.key, body, "merge", "status") for pod in running]
            )
        await controller.stop()
        assert rounds == [[1, 2, 4, 3], [8, 2], [10], [10]]
