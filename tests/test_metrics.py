from typing import Any

import pytest

from onejob.metrics import Metrics
from onejob.prometheus import Histogram, Metric


def test_counters_gauges_and_histograms_are_shown_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.jobs_finished.inc(completion_mode="Indexed", result="succeeded", reason="SuccessPolicy")
    metrics.queue_depth.set(3, name="job")
    metrics.cronjob_skew.observe(3.5)
    lines = metrics.exposition().splitlines()
    labels = 'completion_mode="Indexed",result="succeeded",reason="SuccessPolicy"'
    assert f"job_controller_jobs_finished_total{{{labels}}} 1" in lines
    assert f"job_finished_total{{{labels}}} 1" in lines, "the seed's name shows the same figure"
    assert 'workqueue_depth{name="job"} 3' in lines
    skew = "cronjob_controller_job_creation_skew_duration_seconds"
    assert f'{skew}_bucket{{le="2"}} 0' in lines
    assert f'{skew}_bucket{{le="4"}} 1' in lines
    assert f'{skew}_bucket{{le="+Inf"}} 1' in lines
    assert f"{skew}_sum 3.5" in lines


def test_label_values_are_escaped() -> None:
    metrics = Metrics()
    metrics.external_jobs.inc(controller_name='a"b\\c\nd')
    assert r'{controller_name="a\"b\\c\nd"} 1' in metrics.exposition()


def test_ends_of_jobs_are_shown_before_there_are_any() -> None:
    """Without it, Prometheus sees no increase at the first failure, and alerts miss it."""
    metrics = Metrics()
    labels = 'completion_mode="NonIndexed",result="failed",reason="BackoffLimitExceeded"'
    assert f"job_controller_jobs_finished_total{{{labels}}} 0\n" in metrics.exposition()
    metrics.jobs_finished.inc(
        completion_mode="NonIndexed", result="failed", reason="BackoffLimitExceeded"
    )
    assert f"job_controller_jobs_finished_total{{{labels}}} 1\n" in metrics.exposition()
    assert f"job_controller_jobs_finished_total{{{labels}}} 0\n" not in metrics.exposition()
    pods = 'job_pod_finished{completion_mode="Indexed",result="completed"} 0\n'
    assert pods in metrics.exposition()


def test_a_value_on_a_bucket_bound_belongs_to_that_bucket() -> None:
    metrics = Metrics()
    metrics.cronjob_skew.observe(4.0)
    assert '_bucket{le="4"} 1' in metrics.exposition()


def test_dropped_series_is_not_exposed() -> None:
    metrics = Metrics()
    metrics.cronjob_active.set(1, namespace="default", cronjob="tick")
    assert (
        'kube_cronjob_status_active{namespace="default",cronjob="tick"} 1' in metrics.exposition()
    )
    metrics.cronjob_active.drop(namespace="default", cronjob="tick")
    assert "kube_cronjob_status_active{" not in metrics.exposition()


def test_series_can_be_updated_without_its_labels() -> None:
    metrics = Metrics()
    series = metrics.open_streams.series(verb="WATCH", resource="jobs")
    series.value += 1
    metrics.open_streams.add(1, verb="WATCH", resource="jobs")
    assert metrics.open_streams.value(verb="WATCH", resource="jobs") == 2


@pytest.mark.parametrize("metric", [*Metrics()], ids=lambda metric: metric.name)
def test_every_metric_is_described_and_its_histogram_has_buckets(
    metric: Metric[..., Any],
) -> None:
    assert metric.help_text
    assert not isinstance(metric, Histogram) or metric.buckets


def test_no_two_metrics_share_a_name() -> None:
    names = [name for metric in Metrics() for name in (metric.name, *metric.aliases)]
    assert len(names) == len(set(names))


_SYNC = ("completion_mode", "result", "action")
_GC = "pod_gc_collector_force_delete_pod"
#: Metrics of Kubernetes' controllers, and the names that the original proposals gave them.
UPSTREAM = {
    "job_controller_job_sync_duration_seconds": ("histogram", _SYNC, 15),
    "job_controller_job_syncs_total": ("counter", _SYNC, 0),
    "job_controller_jobs_finished_total": ("counter", ("completion_mode", "result", "reason"), 0),
    "job_controller_job_pods_finished_total": ("counter", ("completion_mode", "result"), 0),
    "job_controller_job_finished_indexes_total": ("counter", ("status", "backoffLimit"), 0),
    "job_controller_pod_failures_handled_by_failure_policy_total": ("counter", ("action",), 0),
    "job_controller_terminated_pods_tracking_finalizer_total": ("counter", ("event",), 0),
    "job_controller_job_pods_creation_total": ("counter", ("reason", "status"), 0),
    "job_controller_jobs_by_external_controller_total": ("counter", ("controller_name",), 0),
    "job_controller_stale_sync_skips_total": ("counter", ("group", "resource"), 0),
    "cronjob_controller_job_creation_skew_duration_seconds": ("histogram", (), 10),
    "ttl_after_finished_controller_job_deletion_duration_seconds": ("histogram", (), 14),
    f"{_GC}s_total": ("counter", ("namespace", "reason"), 0),
    f"{_GC}_errors_total": ("counter", ("namespace", "reason"), 0),
    "garbagecollector_controller_resources_sync_error_total": ("counter", (), 0),
    "workqueue_depth": ("gauge", ("name",), 0),
    "workqueue_adds_total": ("counter", ("name",), 0),
    "workqueue_retries_total": ("counter", ("name",), 0),
    "apiserver_request_total": (
        "counter",
        ("verb", "group", "version", "resource", "subresource", "code"),
        0,
    ),
    "kube_cronjob_status_active": ("gauge", ("namespace", "cronjob"), 0),
    "job_terminated_pod_tracking_finalizer": ("gauge", (), 0),
    "job_pod_finished": ("counter", ("completion_mode", "result"), 0),
    "job_sync_total": ("counter", _SYNC, 0),
    "job_finished_total": ("counter", ("completion_mode", "result", "reason"), 0),
    "job_sync_duration_seconds": ("histogram", _SYNC, 15),
    "jobs_by_external_controller_total": ("counter", ("controller_name",), 0),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_every_name_of_upstream_and_of_the_proposals_is_served(name: str) -> None:
    [metric] = [one for one in Metrics() if name in (one.name, *one.aliases)]
    buckets = len(metric.buckets) if isinstance(metric, Histogram) else 0
    assert (metric.type, metric.label_names, buckets) == UPSTREAM[name]
    assert f"# TYPE {name} {metric.type}\n" in Metrics().exposition()
