"""Annotations, labels and finalizers of Jobs and their Pods."""

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

#: Finalizer of Pods until they are counted, and annotation of tracked Jobs in annotation mode.
TRACKING = "batch.kubernetes.io/job-tracking"
#: Name in the original tracking proposal. Always accepted, but written only if configured.
TRACKING_AS_PROPOSED = "batch.kubernetes.io/job-completion"
TRACKING_NAMES = (TRACKING, TRACKING_AS_PROPOSED)

BUILT_IN_MANAGER = "kubernetes.io/job-controller"
#: Annotation of Pods that we created for another controller's Job while managedBy was ignored. Once
#: managedBy is respected, no other controller would remove our finalizer from them.
STARTED_BY_MARK = "onejob.dev/started-by"

#: Annotation in which kubectl apply keeps the whole manifest.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: Substitutes for the extension fields, for API servers that would prune those.
BACKOFF_SECONDS_ANNOTATION = "onejob.dev/backoff-seconds"
FAILED_PODS_LIMIT_ANNOTATION = "onejob.dev/failed-pods-limit"
#: Job annotations: memory growth factor for the replacement of an OOM-killed Pod, and its maximum.
OOM_MEMORY_FACTOR_ANNOTATION = "onejob.dev/oom-memory-factor"
OOM_MEMORY_MAX_ANNOTATION = "onejob.dev/oom-memory-max"
OOM_MEMORY_ANNOTATIONS = frozenset({OOM_MEMORY_FACTOR_ANNOTATION, OOM_MEMORY_MAX_ANNOTATION})
#: Annotation of Pods of such a Job: number of preceding OOM kills in a row.
OOM_RETRIES = "onejob.dev/oom-retries"
#: CronJob annotation: maximum delay in seconds after each slot.
#: Why a user suspended or deleted the object; only shown.
REASON_ANNOTATION = "onejob.dev/reason"
JITTER_ANNOTATION = "onejob.dev/jitter-seconds"
#: CronJob annotation: `all` runs every missed slot.
CATCH_UP_ANNOTATION = "onejob.dev/catch-up"
#: Annotation of a Pod or template: seconds after creation within which the Pod must have started.
PENDING_DEADLINE_ANNOTATION = "onejob.dev/pending-deadline-seconds"
#: Replace a Job's ttlSecondsAfterFinished, depending on its outcome.
SUCCESS_TTL_ANNOTATION = "onejob.dev/ttl-seconds-after-success"
FAILURE_TTL_ANNOTATION = "onejob.dev/ttl-seconds-after-failure"
POD_TTL_ANNOTATION = "onejob.dev/ttl-seconds-after-finished"
#: Job annotation: the Jobs that must end before this one starts, `extract,clean:Finished`.
AFTER_ANNOTATION = "onejob.dev/after"
#: Set by the server: the dependencies as pinned by UID, and how they ended.
AFTER_STATE_ANNOTATION = "onejob.dev/after-state"
#: Annotation of a Job that was suspended because it waits for its dependencies.
AFTER_HELD_ANNOTATION = "onejob.dev/after-held"
AFTER_ANNOTATIONS = frozenset({AFTER_ANNOTATION, AFTER_STATE_ANNOTATION, AFTER_HELD_ANNOTATION})
#: Finalizer of a workflow's Job whose UID may not be recorded yet.
WORKFLOW_START_FINALIZER = "onejob.dev/workflow-start"
#: Pod annotations: provide $ONEJOB_OUTPUT and $ONEJOB_PROGRESS though the manifest does not name
#: them, and the path at which the container finds its output directory.
OUTPUTS_ANNOTATION = "onejob.dev/outputs"
OUTPUT_PATH_ANNOTATION = "onejob.dev/output-path"
#: Pod annotation: outputs of earlier Jobs to mount read-only, as a JSON list.
INPUTS_ANNOTATION = "onejob.dev/inputs"
OUTPUT_ANNOTATIONS = frozenset({OUTPUTS_ANNOTATION, OUTPUT_PATH_ANNOTATION, INPUTS_ANNOTATION})
OUTPUT_VARIABLE = "ONEJOB_OUTPUT"
PROGRESS_VARIABLE = "ONEJOB_PROGRESS"
#: A Job whose document has none of these reports no progress.
PROGRESS_MARKS = (PROGRESS_VARIABLE, OUTPUTS_ANNOTATION, OUTPUT_PATH_ANNOTATION)
#: Reason of containers that wait for an allocation of Slurm.
WAITING_FOR_SLURM = "WaitingForSlurm"
