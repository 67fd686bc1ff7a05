"""Metrics of onejob: one typed attribute of `Metrics` for each, in the order of `/metrics`.

`docs/reference/write_metrics.py` writes the reference page from these declarations.
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, TypedDict

from onejob.prometheus import Counter, Gauge, Histogram, Labels, Metric, NoLabels, doubling

CompletionMode: TypeAlias = Literal["Indexed", "NonIndexed"]
Result: TypeAlias = Literal["succeeded", "failed"]
SyncAction: TypeAlias = Literal["reconciling", "tracking", "pods_created", "pods_deleted"]
CreationReason: TypeAlias = Literal["new", "recreate_terminating_or_failed", "recreate_failed"]
FailurePolicyAction: TypeAlias = Literal["FailJob", "FailIndex", "Ignore", "Count"]
RemovalReason: TypeAlias = Literal["terminated", "orphaned", "out-of-service", "unscheduled"]
AdmissionPlugin: TypeAlias = Literal[
    "Confinement",
    "LimitRanger",
    "PersistentVolumeClaimResize",
    "PodResizeValidator",
    "PodSecurity",
    "Priority",
    "ResourceQuota",
    "ServiceAccount",
]
QueueName: TypeAlias = Literal[
    "job",
    "job_orphan_pod",
    "cronjob",
    "ttl_jobs_to_delete",
    "pending_deadline",
    "disruption",
    "deployment",
    "replicaset",
    "endpoint",
    "workflow",
    "cronworkflow",
    "claims",
    "certificates",
]
TaskState: TypeAlias = Literal["Complete", "Failed", "Skipped"]


class JobSync(Labels, frozen=True, kw_only=True):
    completion_mode: CompletionMode
    result: Literal["success", "error"]
    action: SyncAction


class JobFinished(Labels, frozen=True, kw_only=True):
    completion_mode: CompletionMode
    result: Result
    reason: str


class PodsFinished(Labels, frozen=True, kw_only=True):
    completion_mode: CompletionMode
    result: Result


class IndexesFinished(Labels, frozen=True, kw_only=True):
    status: Result
    backoffLimit: Literal["perIndex", "global"]


class FailurePolicyMatch(Labels, frozen=True, kw_only=True):
    action: FailurePolicyAction


class FinalizerChange(Labels, frozen=True, kw_only=True):
    event: Literal["add", "delete"]


class PodCreation(Labels, frozen=True, kw_only=True):
    reason: CreationReason
    status: Result


#: Labels of the counters that follow from plans of the Job controller.
JobCounterLabels: TypeAlias = (
    JobFinished | PodsFinished | IndexesFinished | FailurePolicyMatch | PodCreation
)


class ExternalController(Labels, frozen=True, kw_only=True):
    controller_name: str


class StaleCache(Labels, frozen=True, kw_only=True):
    group: str
    resource: str


class CronJobName(Labels, frozen=True, kw_only=True):
    namespace: str
    cronjob: str


class JobOwner(Labels, frozen=True, kw_only=True):
    result: Result
    owner: Literal["CronJob", "other", "none"]


class PodRemoval(Labels, frozen=True, kw_only=True):
    namespace: str
    reason: RemovalReason


class Request(Labels, frozen=True, kw_only=True):
    verb: str
    group: str
    version: str
    resource: str
    subresource: str


class Response(Request, frozen=True, kw_only=True):
    code: str


class RequestLabels(TypedDict):
    """Fields of `Request` that are kept for many calls with `**`."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str


class Stream(Labels, frozen=True, kw_only=True):
    verb: str
    resource: str


class AuditBackend(Labels, frozen=True, kw_only=True):
    plugin: Literal["log"]


class PodPhase(Labels, frozen=True, kw_only=True):
    phase: str


class WebhookCall(Labels, frozen=True, kw_only=True):
    name: str
    type: Literal["admit", "validating"]
    operation: str
    rejected: Literal["true", "false"]


class WebhookCallLabels(TypedDict):
    name: str
    type: Literal["admit", "validating"]
    operation: str
    rejected: Literal["true", "false"]


class WebhookResponse(WebhookCall, frozen=True, kw_only=True):
    code: str


class WebhookRejection(Labels, frozen=True, kw_only=True):
    name: str
    type: Literal["admit", "validating"]
    operation: str
    error_type: Literal["calling_webhook_error", "no_error"]
    rejection_code: str


class WebhookFailOpen(Labels, frozen=True, kw_only=True):
    name: str
    type: Literal["admit", "validating"]


class MutatingPolicyCheck(Labels, frozen=True, kw_only=True):
    policy: str
    policy_binding: str
    error_type: Literal["compile_error", "invalid_error", "no_error", "out_of_budget"]


class MutatingPolicyCheckLabels(TypedDict):
    policy: str
    policy_binding: str
    error_type: Literal["compile_error", "invalid_error", "no_error", "out_of_budget"]


class ValidatingPolicyCheckLabels(MutatingPolicyCheckLabels):
    enforcement_action: Literal["allow", "audit", "deny", "warn"]


class ValidatingPolicyCheck(MutatingPolicyCheck, frozen=True, kw_only=True):
    enforcement_action: Literal["allow", "audit", "deny", "warn"]


class Delivery(Labels, frozen=True, kw_only=True):
    target: str
    result: Literal["sent", "failed", "dropped"]


class Target(Labels, frozen=True, kw_only=True):
    target: str


class Plugin(Labels, frozen=True, kw_only=True):
    plugin: AdmissionPlugin


class WorkflowFinished(Labels, frozen=True, kw_only=True):
    result: Result
    reason: str


class TaskEnded(Labels, frozen=True, kw_only=True):
    state: TaskState


class Queue(Labels, frozen=True, kw_only=True):
    name: QueueName


_MODES: tuple[CompletionMode, ...] = ("Indexed", "NonIndexed")
_REASONS: dict[Result, tuple[str, ...]] = {
    "succeeded": ("CompletionsReached", "SuccessPolicy"),
    "failed": (
        *("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy"),
        *("FailedIndexes", "MaxFailedIndexesExceeded"),
    ),
}


class Metrics:
    """Metrics of one server or controller process."""

    def __init__(self) -> None:
        self.job_sync_duration = Histogram(
            "job_controller_job_sync_duration_seconds",
            "The time it took to sync a Job",
            JobSync,
            doubling(0.004, 15),
            aliases=("job_sync_duration_seconds",),
        )
        self.job_syncs = Counter(
            "job_controller_job_syncs_total",
            "The number of Job syncs",
            JobSync,
            aliases=("job_sync_total",),
        )
        self.jobs_finished = Counter(
            "job_controller_jobs_finished_total",
            "The number of finished Jobs",
            JobFinished,
            aliases=("job_finished_total",),
            preset=[
                JobFinished(completion_mode=mode, result=result, reason=reason)
                for mode in _MODES
                for result, reasons in _REASONS.items()
                for reason in reasons
            ],
        )
        self.pods_finished = Counter(
            "job_controller_job_pods_finished_total",
            "The number of finished Pods that are fully tracked",
            PodsFinished,
            aliases=("job_pod_finished",),
            renamed={"succeeded": "completed"},
            preset=[
                PodsFinished(completion_mode=mode, result=result)
                for mode in _MODES
                for result in _REASONS
            ],
        )
        self.indexes_finished = Counter(
            "job_controller_job_finished_indexes_total",
            "The number of finished indexes",
            IndexesFinished,
        )
        self.failure_policy_matches = Counter(
            "job_controller_pod_failures_handled_by_failure_policy_total",
            "The number of failed Pods that a failure policy rule handled",
            FailurePolicyMatch,
        )
        self.finalizer_changes = Counter(
            "job_controller_terminated_pods_tracking_finalizer_total",
            "The number of terminated Pods that gained or lost the tracking finalizer",
            FinalizerChange,
        )
        self.pods_with_finalizer = Gauge(
            "job_terminated_pod_tracking_finalizer",
            "How many terminated Pods hold the tracking finalizer",
            NoLabels,
        )
        self.pod_creations = Counter(
            "job_controller_job_pods_creation_total",
            "The number of Pods that the Job controller tried to create",
            PodCreation,
        )
        self.external_jobs = Counter(
            "job_controller_jobs_by_external_controller_total",
            "The number of Jobs managed by an external controller",
            ExternalController,
            aliases=("jobs_by_external_controller_total",),
        )
        self.stale_sync_skips = Counter(
            "job_controller_stale_sync_skips_total",
            "The number of syncs skipped because a cache was older than our own writes",
            StaleCache,
        )
        self.cronjob_skew = Histogram(
            "cronjob_controller_job_creation_skew_duration_seconds",
            "The time between when a Job was scheduled and when it was created",
            NoLabels,
            doubling(1, 10),
        )
        self.cronjob_active = Gauge(
            "kube_cronjob_status_active",
            "The number of running Jobs of a CronJob",
            CronJobName,
        )
        self.cronjob_last_schedule = Gauge(
            "kube_cronjob_status_last_schedule_time",
            "When a CronJob last started a Job, in seconds since 1970",
            CronJobName,
        )
        self.cronjob_last_success = Gauge(
            "kube_cronjob_status_last_successful_time",
            "When a Job of a CronJob last succeeded, in seconds since 1970",
            CronJobName,
        )
        self.job_duration = Histogram(
            "onejob_job_duration_seconds",
            "The time between the start of a Job and its end",
            JobOwner,
            doubling(0.25, 20),
        )
        self.workflows_finished = Counter(
            "onejob_workflows_finished_total",
            "The number of finished workflows",
            WorkflowFinished,
        )
        self.workflow_tasks_ended = Counter(
            "onejob_workflow_tasks_ended_total",
            "The number of tasks of workflows that have ended",
            TaskEnded,
        )
        self.ttl_deletion_delay = Histogram(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete a Job since it expired",
            NoLabels,
            doubling(0.1, 14),
        )
        self.pods_removed = Counter(
            "pod_gc_collector_force_delete_pods_total",
            "The number of Pods deleted by the Pod garbage collector",
            PodRemoval,
        )
        self.pod_removal_errors = Counter(
            "pod_gc_collector_force_delete_pod_errors_total",
            "The number of errors when deleting such Pods",
            PodRemoval,
        )
        self.garbage_sync_errors = Counter(
            "garbagecollector_controller_resources_sync_error_total",
            "The number of garbage collector synchronisation errors",
            NoLabels,
        )
        self.requests = Counter("apiserver_request_total", "The number of API requests", Response)
        self.request_duration = Histogram(
            "apiserver_request_duration_seconds",
            "The time API requests took",
            Request,
            (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )
        self.open_streams = Gauge(
            "apiserver_longrunning_requests", "Watches and streams that are open", Stream
        )
        self.store_revision = Gauge(
            "onejob_store_revision", "The newest durable revision", NoLabels
        )
        self.damaged_documents = Gauge(
            "onejob_store_damaged_documents",
            "The number of documents that cannot be read",
            NoLabels,
        )
        self.audit_events = Counter(
            "apiserver_audit_event_total", "The number of audit events written", NoLabels
        )
        self.audit_errors = Counter(
            "apiserver_audit_error_total", "The number of audit events that were lost", AuditBackend
        )
        self.requests_waited = Counter(
            "onejob_apiserver_requests_waited_total",
            "The number of requests that waited because their user had too many",
            NoLabels,
        )
        self.requests_refused = Counter(
            "onejob_apiserver_requests_refused_total",
            "The number of requests that were refused because too many of their user waited",
            NoLabels,
        )
        self.store_commits = Counter(
            "onejob_store_commits_total", "The number of commits", NoLabels
        )
        self.store_writes = Counter(
            "onejob_store_writes_total", "The number of objects written", NoLabels
        )
        self.controller_leading = Gauge(
            "onejob_controller_leading",
            "Whether this replica of `onejob controller` runs the controllers",
            NoLabels,
        )
        self.controller_requests = Counter(
            "onejob_controller_requests_total",
            "The number of requests that the controllers sent to the API server",
            NoLabels,
        )
        self.pods = Gauge("onejob_pods", "The number of Pods that have not ended", PodPhase)
        self.process_cpu = Counter(
            "process_cpu_seconds_total",
            "Time that the server used processors, in seconds",
            NoLabels,
        )
        self.process_memory = Gauge(
            "process_resident_memory_bytes", "The memory that the server uses", NoLabels
        )
        self.process_open_fds = Gauge(
            "process_open_fds",
            "The number of file descriptors that the server has open",
            NoLabels,
        )
        self.process_max_fds = Gauge(
            "process_max_fds", "The number of file descriptors that it may have open", NoLabels
        )
        self.notifications = Counter(
            "onejob_notifications_total",
            "The number of attempts to deliver a notification",
            Delivery,
        )
        self.notifications_waiting = Gauge(
            "onejob_notifications_waiting",
            "The number of notifications that wait to be delivered",
            Target,
        )
        self.admission_denied = Counter(
            "onejob_admission_denied_total", "The number of objects that were refused", Plugin
        )
        self.webhook_duration = Histogram(
            "apiserver_admission_webhook_admission_duration_seconds",
            "The time calls of admission webhooks took",
            WebhookCall,
            doubling(0.005, 12),
        )
        self.webhook_requests = Counter(
            "apiserver_admission_webhook_request_total",
            "The number of calls of admission webhooks",
            WebhookResponse,
        )
        self.webhook_rejections = Counter(
            "apiserver_admission_webhook_rejection_count",
            "The number of requests that were rejected by admission webhooks or their failures",
            WebhookRejection,
        )
        self.webhook_fail_open = Counter(
            "apiserver_admission_webhook_fail_open_count",
            "The number of failed calls of admission webhooks that were ignored",
            WebhookFailOpen,
        )
        self.validating_policy_checks = Counter(
            "apiserver_validating_admission_policy_check_total",
            "The number of evaluated expressions of validating admission policies",
            ValidatingPolicyCheck,
        )
        self.validating_policy_duration = Histogram(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "The time the evaluation of expressions of validating admission policies took",
            ValidatingPolicyCheck,
            (0.0000005, 0.001, 0.01, 0.1, 1.0),
        )
        self.mutating_policy_checks = Counter(
            "apiserver_mutating_admission_policy_check_total",
            "The number of evaluated expressions of mutating admission policies",
            MutatingPolicyCheck,
        )
        self.mutating_policy_duration = Histogram(
            "apiserver_mutating_admission_policy_check_duration_seconds",
            "The time the evaluation of expressions of mutating admission policies took",
            MutatingPolicyCheck,
            (0.0000005, 0.001, 0.01, 0.1, 1.0),
        )
        self.queue_depth = Gauge("workqueue_depth", "The number of keys that are due", Queue)
        self.queue_adds = Counter(
            "workqueue_adds_total", "The number of keys that became due", Queue
        )
        self.queue_retries = Counter(
            "workqueue_retries_total", "The number of keys that failed", Queue
        )

    def __iter__(self) -> Iterator[Metric[..., Any]]:
        return iter(vars(self).values())

    def exposition(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return "".join(f"{line}\n" for metric in self for line in metric.lines())
