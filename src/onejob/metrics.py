"""Prometheus metrics: counters, gauges and histograms, declared in one table.

Incrementing is a dictionary update, cheap enough for every Pod. No client library is used:
importing one costs more time and memory than the rest of an idle server's API
(docs/decisions/0002-own-metrics.md).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field


class Metric(Struct, frozen=True):
    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    #: Further names of the metric, from older proposals.
    aliases: tuple[str, ...] = ()
    #: Label values that differ under the aliases.
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: Label values exposed as 0 before the first increment: Prometheus sees no increase in a series
    #: that begins with 1, so that an alert would miss the first failure.
    preset: tuple[tuple[str, ...], ...] = ()


def doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2**power for power in range(count))


_SYNC_LABELS = ("completion_mode", "result", "action")
_MODES = ("Indexed", "NonIndexed")
_REASONS = {
    "succeeded": ("CompletionsReached", "SuccessPolicy"),
    "failed": (
        *("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy"),
        *("FailedIndexes", "MaxFailedIndexesExceeded"),
    ),
}
_ENDS_OF_JOBS = tuple(
    (mode, result, reason)
    for mode in _MODES
    for result, reasons in _REASONS.items()
    for reason in reasons
)
_ENDS_OF_PODS = tuple((mode, result) for mode in _MODES for result in _REASONS)

METRICS: Sequence[Metric] = (
    Metric(
        "job_controller_job_sync_duration_seconds", "histogram",
        "The time it took to sync a Job", _SYNC_LABELS, doubling(0.004, 15),
        ("job_sync_duration_seconds",),
    ),
    Metric(
        "job_controller_job_syncs_total", "counter",
        "The number of Job syncs", _SYNC_LABELS, aliases=("job_sync_total",),
    ),
    Metric(
        "job_controller_jobs_finished_total", "counter",
        "The number of finished Jobs", ("completion_mode", "result", "reason"),
        aliases=("job_finished_total",), preset=_ENDS_OF_JOBS,
    ),
    Metric(
        "job_controller_job_pods_finished_total", "counter",
        "The number of finished Pods that are fully tracked", ("completion_mode", "result"),
        aliases=("job_pod_finished",), renamed={"succeeded": "completed"}, preset=_ENDS_OF_PODS,
    ),
    Metric(
        "job_controller_job_finished_indexes_total", "counter",
        "The number of finished indexes", ("status", "backoffLimit"),
    ),
    Metric(
        "job_controller_pod_failures_handled_by_failure_policy_total", "counter",
        "The number of failed Pods that a failure policy rule handled", ("action",),
    ),
    Metric(
        "job_controller_terminated_pods_tracking_finalizer_total", "counter",
        "The number of terminated Pods that gained or lost the tracking finalizer", ("event",),
    ),
    Metric(
        "job_terminated_pod_tracking_finalizer", "gauge",
        "How many terminated Pods hold the tracking finalizer",
    ),
    Metric(
        "job_controller_job_pods_creation_total", "counter",
        "The number of Pods that the Job controller tried to create", ("reason", "status"),
    ),
    Metric(
        "job_controller_jobs_by_external_controller_total", "counter",
        "The number of Jobs managed by an external controller", ("controller_name",),
        aliases=("jobs_by_external_controller_total",),
    ),
    Metric(
        "job_controller_stale_sync_skips_total", "counter",
        "The number of syncs skipped because a cache was older than our own writes",
        ("group", "resource"),
    ),
    Metric(
        "cronjob_controller_job_creation_skew_duration_seconds", "histogram",
        "The time between when a Job was scheduled and when it was created",
        buckets=doubling(1, 10),
    ),
    Metric(
        "kube_cronjob_status_active", "gauge",
        "The number of running Jobs of a CronJob", ("namespace", "cronjob"),
    ),
    Metric(
        "kube_cronjob_status_last_schedule_time", "gauge",
        "When a CronJob last started a Job, in seconds since 1970", ("namespace", "cronjob"),
    ),
    Metric(
        "kube_cronjob_status_last_successful_time", "gauge",
        "When a Job of a CronJob last succeeded, in seconds since 1970", ("namespace", "cronjob"),
    ),
    Metric(
        "onejob_job_duration_seconds", "histogram",
        "The time between the start of a Job and its end", ("result", "owner"), doubling(0.25, 20),
    ),
    Metric(
        "ttl_after_finished_controller_job_deletion_duration_seconds", "histogram",
        "The time it took to delete a Job since it expired", buckets=doubling(0.1, 14),
    ),
    Metric(
        "pod_gc_collector_force_delete_pods_total", "counter",
        "The number of Pods deleted by the Pod garbage collector", ("namespace", "reason"),
    ),
    Metric(
        "pod_gc_collector_force_delete_pod_errors_total", "counter",
        "The number of errors when deleting such Pods", ("namespace", "reason"),
    ),
    Metric(
        "garbagecollector_controller_resources_sync_error_total", "counter",
        "The number of garbage collector synchronisation errors",
    ),
    Metric(
        "apiserver_request_total", "counter", "The number of API requests",
        ("verb", "group", "version", "resource", "subresource", "code"),
    ),
    Metric(
        "apiserver_request_duration_seconds", "histogram", "The time API requests took",
        ("verb", "group", "version", "resource", "subresource"),
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    ),
    Metric(
        "apiserver_longrunning_requests", "gauge", "Watches and streams that are open",
        ("verb", "resource"),
    ),
    Metric("onejob_store_revision", "gauge", "The newest durable revision"),
    Metric(
        "onejob_store_damaged_documents", "gauge", "The number of documents that cannot be read"
    ),
    Metric("apiserver_audit_event_total", "counter", "The number of audit events written"),
    Metric(
        "apiserver_audit_error_total", "counter", "The number of audit events that were lost",
        ("plugin",),
    ),
    Metric(
        "onejob_apiserver_requests_waited_total", "counter",
        "The number of requests that waited because their user had too many",
    ),
    Metric(
        "onejob_apiserver_requests_refused_total", "counter",
        "The number of requests that were refused because too many of their user waited",
    ),
    Metric("onejob_store_commits_total", "counter", "The number of commits"),
    Metric("onejob_store_writes_total", "counter", "The number of objects written"),
    Metric(
        "onejob_controller_leading", "gauge",
        "Whether this replica of `onejob controller` runs the controllers",
    ),
    Metric(
        "onejob_controller_requests_total", "counter",
        "The number of requests that the controllers sent to the API server",
    ),
    Metric("onejob_pods", "gauge", "The number of Pods that have not ended", ("phase",)),
    Metric(
        "process_cpu_seconds_total", "counter", "Time that the server used processors, in seconds"
    ),
    Metric("process_resident_memory_bytes", "gauge", "The memory that the server uses"),
    Metric("process_open_fds", "gauge", "The number of file descriptors that the server has open"),
    Metric("process_max_fds", "gauge", "The number of file descriptors that it may have open"),
    Metric(
        "onejob_notifications_total", "counter",
        "The number of attempts to deliver a notification", ("target", "result"),
    ),
    Metric(
        "onejob_notifications_waiting", "gauge",
        "The number of notifications that wait to be delivered", ("target",),
    ),
    Metric(
        "onejob_admission_denied_total", "counter", "The number of objects that were refused",
        ("plugin",),
    ),
    Metric("workqueue_depth", "gauge", "The number of keys that are due", ("name",)),
    Metric("workqueue_adds_total", "counter", "The number of keys that became due", ("name",)),
    Metric("workqueue_retries_total", "counter", "The number of keys that failed", ("name",)),
)  # fmt: skip

_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


class _Histogram(Struct):
    counts: list[int]
    total: float = 0.0


class Metrics:
    """Metric registry. Label values are passed in the order of the table's declaration."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], _Histogram]] = {}
        self._readers: dict[str, Callable[[], Mapping[tuple[str, ...], float]]] = {}

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        values = self._values.setdefault(name, {})
        values[labels] = values.get(labels, 0) + by

    def counter(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the mutable values of a counter by label values, for very frequent updates."""
        return self._values.setdefault(name, {})

    def set(self, name: str, value: float, *labels: str) -> None:
        self._values.setdefault(name, {})[labels] = value

    def drop(self, name: str, *labels: str) -> None:
        """Remove a gauge whose object no longer exists."""
        self._values.get(name, {}).pop(labels, None)

    def observe(self, name: str, value: float, *labels: str) -> None:
        histograms = self._histograms.setdefault(name, {})
        histogram = histograms.get(labels)
        buckets = _BY_NAME[name].buckets
        if histogram is None:
            histogram = histograms[labels] = _Histogram([0] * (len(buckets) + 1))
        histogram.counts[bisect_left(buckets, value)] += 1
        histogram.total += value

    def read(self, name: str, reader: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Call `reader` for the values at each scrape."""
        self._readers[name] = reader

    def value(self, name: str, *labels: str) -> float:
        """Return one value; for a histogram the number of observations. For tests and `bench`."""
        if name in self._histograms:
            histogram = self._histograms[name].get(labels)
            return sum(histogram.counts) if histogram else 0
        if name in self._readers:
            return self._readers[name]().get(labels, 0)
        return self._values.get(name, {}).get(labels, 0)

    def exposition(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return "".join(f"{line}\n" for metric in METRICS for line in self._lines(metric))

    def _lines(self, metric: Metric) -> Iterator[str]:
        for name in (metric.name, *metric.aliases):
            yield f"# HELP {name} {metric.help}"
            yield f"# TYPE {name} {metric.type}"
            if metric.type == "histogram":
                yield from self._histogram_lines(metric, name)
                continue
            reader = self._readers.get(metric.name)
            values = reader() if reader else self._values.get(metric.name, {})
            if not metric.labels:
                values = {(): 0, **values}
            elif metric.preset:
                values = {**dict.fromkeys(metric.preset, 0), **values}
            renamed = {} if name == metric.name else metric.renamed
            for labels, value in sorted(values.items()):
                shown = [renamed.get(label, label) for label in labels]
                yield f"{name}{_render(metric.labels, shown)} {_number(value)}"

    def _histogram_lines(self, metric: Metric, name: str) -> Iterator[str]:
        for labels, histogram in sorted(self._histograms.get(metric.name, {}).items()):
            seen = 0
            for bound, count in zip((*metric.buckets, None), histogram.counts, strict=True):
                seen += count
                limit = "+Inf" if bound is None else _number(bound)
                tags = _render((*metric.labels, "le"), (*labels, limit))
                yield f"{name}_bucket{tags} {seen}"
            yield f"{name}_sum{_render(metric.labels, labels)} {_number(histogram.total)}"
            yield f"{name}_count{_render(metric.labels, labels)} {seen}"


def _render(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = ",".join(
        f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
