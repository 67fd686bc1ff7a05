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
