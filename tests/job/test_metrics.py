"""All metrics of the Job controller, read from the exposition after Jobs have run."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Op, Patch, Result
from onejob.metrics import Metrics
from onejob.objects.meta import CRONJOBS, JOBS, PODS
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import completion_index
from onejob.wire.errors import Forbidden
from tests import build
from tests.job.clients import Interceptor
from tests.job.terms import a_plane, a_term, create, create_job, settled, template

pytestmark = pytest.mark.virtual_time

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures(exposition: str) -> Figures:
    read: Figures = {}
    for line in exposition.splitlines():
        if line.startswith("#"):
            continue
        found = _LINE.match(line)
        assert found, line
        name, labels, value = found.groups()
        read[name, frozenset(_LABEL.findall(labels or ""))] = float(value)
    return read


def figure(read: Figures, name: str, **labels: str) -> float:
    return read.get((name, frozenset(labels.items())), 0)


def rule(action: str, code: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}


#: The metrics of SEMANTICS 8.2 with their labels, and the ones of the proposals.
DECLARED = {
    "job_controller_job_sync_duration_seconds": "completion_mode result action",
    "job_sync_duration_seconds": "completion_mode result action",
    "job_controller_job_syncs_total": "completion_mode result action",
    "job_sync_total": "completion_mode result action",
    "job_controller_jobs_finished_total": "completion_mode result reason",
    "job_finished_total": "completion_mode result reason",
    "job_controller_job_pods_finished_total": "completion_mode result",
    "job_pod_finished": "completion_mode result",
    "job_controller_job_finished_indexes_total": "status backoffLimit",
    "job_controller_pod_failures_handled_by_failure_policy_total": "action",
    "job_controller_terminated_pods_tracking_finalizer_total": "event",
    "job_terminated_pod_tracking_finalizer": "",
    "job_controller_job_pods_creation_total": "reason status",
    "job_controller_jobs_by_external_controller_total": "controller_name",
    "jobs_by_external_controller_total": "controller_name",
    "job_controller_stale_sync_skips_total": "group resource",
    "cronjob_controller_job_creation_skew_duration_seconds": "",
    "kube_cronjob_status_active": "namespace cronjob",
    "kube_cronjob_status_last_schedule_time": "namespace cronjob",
    "kube_cronjob_status_last_successful_time": "namespace cronjob",
    "onejob_job_duration_seconds": "result owner",
    "ttl_after_finished_controller_job_deletion_duration_seconds": "",
    "pod_gc_collector_force_delete_pods_total": "namespace reason",
    "pod_gc_collector_force_delete_pod_errors_total": "namespace reason",
    "garbagecollector_controller_resources_sync_error_total": "",
    "workqueue_depth": "name",
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_metric_is_declared_with_its_labels(name: str) -> None:
    metric = next(m for m in Metrics() if name in (m.name, *m.aliases))
    assert list(metric.label_names) == DECLARED[name].split()


def test_buckets_are_upstreams() -> None:
    metrics = Metrics()
    syncs = metrics.job_sync_duration.buckets
    assert (syncs[0], syncs[-1], len(syncs)) == (0.004, 65.536, 15)
    skews = metrics.cronjob_skew.buckets
    assert (skews[0], skews[-1], len(skews)) == (1, 512, 10)
    deletions = metrics.ttl_deletion_delay.buckets
    assert (deletions[0], deletions[-1], len(deletions)) == (0.1, 819.2, 14)


async def test_a_plain_job_is_measured(tmp_path: Path) -> None:
    async with a_term(tmp_path, script=lambda pod: 0) as term:
        await term.cluster.until_finished(
            await term.cluster.create_job(completions=3, parallelism=2)
        )
        await settled()
        read = figures(term.cluster.metrics.exposition())
    mode = {"completion_mode": "NonIndexed"}
    finished = {**mode, "result": "succeeded", "reason": "CompletionsReached"}
    for name in ("job_controller_jobs_finished_total", "job_finished_total"):
        assert figure(read, name, **finished) == 1
    assert figure(read, "job_controller_job_pods_finished_total", **mode, result="succeeded") == 3
    assert figure(read, "job_pod_finished", **mode, result="completed") == 3
    duration = {"result": "succeeded", "owner": "none"}
    assert figure(read, "onejob_job_duration_seconds_count", **duration) == 1
    assert figure(read, "job_pod_finished", **mode, result="succeeded") == 0
    created = {"reason": "new", "status": "succeeded"}
    assert figure(read, "job_controller_job_pods_creation_total", **created) == 3
    for event in ("add", "delete"):
        held = "job_controller_terminated_pods_tracking_finalizer_total"
        assert figure(read, held, event=event) == 3
    assert figure(read, "job_terminated_pod_tracking_finalizer") == 0
    synced = {**mode, "result": "success", "action": "pods_created"}
    for name in ("job_controller_job_syncs_total", "job_sync_total"):
        assert figure(read, name, **synced) >= 1
    for name in ("job_controller_job_sync_duration_seconds", "job_sync_duration_seconds"):
        assert figure(read, f"{name}_count", **synced) == figure(read, "job_sync_total", **synced)
        assert figure(read, f"{name}_bucket", **synced, le="65.536") >= 1
    # Skipped syncs of finished Jobs are not measured.
    actions = {
        dict(labels)["action"]
        for name, labels in read
        if name == "job_sync_total" and read[name, labels]
    }
    assert actions <= {"pods_created", "tracking"}


async def test_an_indexed_job_with_failing_indexes_is_measured(tmp_path: Path) -> None:
    def index_two_fails(pod: Pod) -> int:
        return 1 if completion_index(pod) == 2 else 0

    async with a_term(tmp_path, script=index_two_fails) as term:
        await term.cluster.until_finished(
            await term.cluster.create_job(
                completions=4,
                parallelism=4,
                completionMode="Indexed",
                backoffLimitPerIndex=1,
                backoffSeconds=1,
            )
        )
        await settled()
        read = figures(term.cluster.metrics.exposition())
    mode = {"completion_mode": "Indexed"}
    indexes = "job_controller_job_finished_indexes_total"
    assert figure(read, indexes, status="succeeded", backoffLimit="perIndex") == 3
    assert figure(read, indexes, status="failed", backoffLimit="perIndex") == 1
    pods = "job_controller_job_pods_finished_total"
    assert figure(read, pods, **mode, result="succeeded") == 3
    assert figure(read, pods, **mode, result="failed") == 2
    assert (
        figure(
            read,
            "job_controller_jobs_finished_total",
            **mode,
            result="failed",
            reason="FailedIndexes",
        )
        == 1
    )
    again = {"reason": "recreate_terminating_or_failed", "status": "succeeded"}
    assert figure(read, "job_controller_job_pods_creation_total", **again) == 1


async def test_indexes_of_a_job_with_a_common_limit_are_measured(tmp_path: Path) -> None:
    async with a_term(tmp_path, script=lambda pod: 0) as term:
        await term.cluster.until_finished(
            await term.cluster.create_job(completions=2, parallelism=2, completionMode="Indexed")
        )
        await settled()
        read = figures(term.cluster.metrics.exposition())
    indexes = "job_controller_job_finished_indexes_total"
    assert figure(read, indexes, status="succeeded", backoffLimit="global") == 2


async def test_rulings_of_a_failure_policy_are_measured(tmp_path: Path) -> None:
    codes = {0: 11, 1: 12, 2: 13, 3: 14}
    tried: set[int] = set()

    def once_each(pod: Pod) -> int | None:
        index = completion_index(pod)
        assert index is not None
        if index in tried:
            return None
        if index == 3 and len(tried) < 3:
            return None
        tried.add(index)
        return codes[index]

    policy = {
        "rules": [
            rule("Ignore", 11),
            rule("Count", 12),
            rule("FailIndex", 13),
            rule("FailJob", 14),
        ]
    }
    async with a_term(tmp_path, script=once_each) as term:
        job = await term.cluster.create_job(
            completions=4,
            parallelism=3,
            completionMode="Indexed",
            backoffLimitPerIndex=5,
            podFailurePolicy=policy,
            backoffSeconds=1,
        )
        await settled()
        await term.cluster.until_finished(job)
        read = figures(term.cluster.metrics.exposition())
    handled = "job_controller_pod_failures_handled_by_failure_policy_total"
    for action in ("Ignore", "Count", "FailIndex", "FailJob"):
        assert figure(read, handled, action=action) == 1, action
    again = {"reason": "recreate_failed", "status": "succeeded"}
    assert figure(read, "job_controller_job_pods_creation_total", **again) >= 1


async def test_refused_creations_and_deletions_are_measured(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        await term.controller.stop()
        refusals = [Forbidden("quota")]

        async def refuses(op: Op) -> Result | None:
            creates_pod = isinstance(op, Create) and op.resource == PODS
            return refusals.pop() if creates_pod and refusals else None

        client = Interceptor(term.cluster.client, before=refuses)
        controller = await term.cluster.start_job_controller(client)
        job = await term.cluster.create_job(parallelism=2, completions=2)
        await settled()
        suspend = msgspec.json.encode({"spec": {"suspend": True}})
        await term.cluster.client.write(Patch(job, suspend, "merge"))
        await settled()
        await controller.stop()
        read = figures(term.cluster.metrics.exposition())
    creation = "job_controller_job_pods_creation_total"
    assert figure(read, creation, reason="new", status="failed") == 1
    assert figure(read, creation, reason="new", status="succeeded") == 2, "and not three"
    syncs = {"completion_mode": "NonIndexed"}
    total = "job_controller_job_syncs_total"
    assert figure(read, total, **syncs, result="error", action="pods_created") == 1
    assert figure(read, total, **syncs, result="success", action="pods_deleted") >= 1


async def test_a_failed_claim_is_measured_as_a_failed_reconciling(tmp_path: Path) -> None:
    async with a_term(tmp_path) as term:
        await term.controller.stop()
        refusals = [Forbidden("no")]

        async def refuses(op: Op) -> Result | None:
            adopts = isinstance(op, Patch) and op.key.resource == PODS
            return refusals.pop() if adopts and refusals else None

        stray = build.a_pod("stray", metadata={"labels": {"app": "x"}})
        await term.cluster.client.write(build.creation(stray))
        labelled = template()
        labelled["metadata"]["labels"] = {"app": "x"}
        await term.cluster.create_job(
            template=labelled,
            manualSelector=True,
            selector={"matchLabels": {"app": "x"}},
        )
        client = Interceptor(term.cluster.client, before=refuses)
        controller = await term.cluster.start_job_controller(client)
        await settled()
        await controller.stop()
        (pod,) = await term.cluster.pods()
        assert pod.metadata.controller_ref is not None, "the second try adopts it"
        read = figures(term.cluster.metrics.exposition())
    failed = {"completion_mode": "NonIndexed", "result": "error", "action": "reconciling"}
    assert figure(read, "job_controller_job_syncs_total", **failed) == 1


@pytest.mark.parametrize(
    ("late", "group", "resource"), [(PODS, "", "pods"), (JOBS, "batch", "jobs")]
)
async def test_syncs_put_off_for_a_stale_cache_are_measured(
    tmp_path: Path, late: str, group: str, resource: str
) -> None:
    async with a_term(tmp_path) as term:
        await term.controller.stop()
        client = Interceptor(term.cluster.client)
        controller = await term.cluster.start_job_controller(client)
        job = await term.cluster.create_job(completions=9)
        await settled()
        client.hold_back(late)
        # It cannot see its own writes now, and is then triggered again.
        if late == PODS:
            for parallelism in (2, 3):
                body = msgspec.json.encode({"spec": {"parallelism": parallelism}})
                await term.cluster.client.write(Patch(job, body, "merge"))
                await asyncio.sleep(1)
        else:
            (pod,) = await term.cluster.pods()
            await term.cluster.client.write(Delete(pod.key))
        await asyncio.sleep(20)
        client.release(late)
        await settled()
        await controller.stop()
        read = figures(term.cluster.metrics.exposition())
    stale = "job_controller_stale_sync_skips_total"
    assert figure(read, stale, group=group, resource=resource) >= 1


async def test_the_other_controllers_and_the_queues_are_measured(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create_job(plane, "brief", ttlSecondsAfterFinished=5)
        await create_job(plane, "theirs", managedBy="example.com/other")
        an_hour = template(**{"onejob.dev/simulated-duration": "3600"})
        await create(plane, CRONJOBS, build.a_cronjob("cron", job={"template": an_hour}))
        await create(plane, PODS, build.a_pod("lost", nodeName="vanished"))
        await asyncio.sleep(130)
        read = figures(plane.metrics.exposition())
    assert figure(read, "ttl_after_finished_controller_job_deletion_duration_seconds_count") == 1
    assert figure(read, "cronjob_controller_job_creation_skew_duration_seconds_count") == 2
    assert figure(read, "kube_cronjob_status_active", namespace="default", cronjob="cron") == 2
    for name in (
        "job_controller_jobs_by_external_controller_total",
        "jobs_by_external_controller_total",
    ):
        assert figure(read, name, controller_name="example.com/other") == 1
    assert (
        figure(
            read,
            "pod_gc_collector_force_delete_pods_total",
            namespace="default",
            reason="orphaned",
        )
        == 1
    )
    assert ("garbagecollector_controller_resources_sync_error_total", frozenset()) in read
    for queue in ("job", "job_orphan_pod", "cronjob", "ttl_jobs_to_delete"):
        assert ("workqueue_depth", frozenset({("name", queue)})) in read
        assert ("workqueue_retries_total", frozenset({("name", queue)})) in read
    assert read["workqueue_adds_total", frozenset({("name", "job")})] > 0


async def test_a_terminated_pod_that_vanishes_with_its_finalizer_leaves_the_gauge(
    tmp_path: Path,
) -> None:
    async with a_term(tmp_path, script=lambda pod: 0) as term:
        await term.controller.stop()
        controller = await term.cluster.start_job_controller()
        job = await term.cluster.create_job()
        await asyncio.sleep(0.5)
        (pod,) = await term.cluster.pods()
        await term.cluster.client.write(Delete(pod.key))
        await term.cluster.until_finished(job)
        await settled()
        await controller.stop()
        read = figures(term.cluster.metrics.exposition())
    held = "job_controller_terminated_pods_tracking_finalizer_total"
    assert figure(read, held, event="add") == figure(read, held, event="delete") >= 1
    assert figure(read, "job_terminated_pod_tracking_finalizer") == 0
