import pytest

from onejob.metrics import METRICS, Metrics


def test_counters_gauges_and_histograms_are_shown_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.count("job_controller_jobs_finished_total", "Indexed", "succeeded", "SuccessPolicy")
    metrics.set("workqueue_depth", 3, "job")
    metrics.observe("cronjob_controller_job_creation_skew_duration_seconds", 3.5)
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
    metrics.count("job_controller_jobs_by_external_controller_total", 'a"b\\c\nd')
    assert r'{controller_name="a\"b\\c\nd"} 1' in metrics.exposition()


def test_ends_of_jobs_are_shown_before_there_are_any() -> None:
    """Without it, Prometheus sees no increase at the first failure, and alerts miss it."""
    metrics = Metrics()
    labels = 'completion_mode="NonIndexed",result="failed",reason="BackoffLimitExceeded"'
    assert f"job_controller_jobs_finished_total{{{labels}}} 0\n" in metrics.exposition()
    metrics.count(
        "job_controller_jobs_finished_total", "NonIndexed", "failed", "BackoffLimitExceeded"
    )
    assert f"job_controller_jobs_finished_total{{{labels}}} 1\n" in metrics.exposition()
    assert f"job_controller_jobs_finished_total{{{labels}}} 0\n" not in metrics.exposition()
    pods = 'job_pod_finished{completion_mode="Indexed",result="completed"} 0\n'
    assert pods in metrics.exposition()


def test_a_value_on_a_bucket_bound_belongs_to_that_bucket() -> None:
    metrics = Metrics()
    metrics.observe("cronjob_controller_job_creation_skew_duration_seconds", 4.0)
    assert '_bucket{le="4"} 1' in metrics.exposition()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_described_and_only_histograms_have_buckets(metric: object) -> None:
    found = next(m for m in METRICS if m is metric)
    assert found.help
    assert bool(found.buckets) == (found.type == "histogram")


def test_no_two_metrics_share_a_name() -> None:
    names = [name for metric in METRICS for name in (metric.name, *metric.aliases)]
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
    [metric] = [one for one in METRICS if name in (one.name, *one.aliases)]
    assert (metric.type, metric.labels, len(metric.buckets)) == UPSTREAM[name]
    assert f"# TYPE {name} {metric.type}\n" in Metrics().exposition()
