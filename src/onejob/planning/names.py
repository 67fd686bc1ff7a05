"""The names by which Jobs and their Pods recognise each other on the API."""

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

#: What Pods carry until they are counted, and what tracked Jobs carry in annotation mode.
TRACKING = "batch.kubernetes.io/job-tracking"
#: The name in the original tracking proposal. Never written unless asked for, always understood.
TRACKING_AS_PROPOSED = "batch.kubernetes.io/job-completion"
TRACKING_NAMES = (TRACKING, TRACKING_AS_PROPOSED)

BUILT_IN_MANAGER = "kubernetes.io/job-controller"
#: On Pods of a Job that is another controller's, and was run by us all the same, because its
#: managedBy was not looked at: once it is, nobody else will take our finalizer off.
STARTED_BY_MARK = "onejob.dev/started-by"

#: Stand-ins for the extension fields, for API servers that would prune those.
#: Where kubectl apply keeps the whole manifest.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
BACKOFF_SECONDS_ANNOTATION = "onejob.dev/backoff-seconds"
FAILED_PODS_LIMIT_ANNOTATION = "onejob.dev/failed-pods-limit"
#: On a Job: by how much the memory of a Pod grows that replaces one killed for lack of it.
OOM_MEMORY_FACTOR_ANNOTATION = "onejob.dev/oom-memory-factor"
OOM_MEMORY_MAX_ANNOTATION = "onejob.dev/oom-memory-max"
OOM_MEMORY_ANNOTATIONS = frozenset({OOM_MEMORY_FACTOR_ANNOTATION, OOM_MEMORY_MAX_ANNOTATION})
#: On Pods of such a Job: how often in a row those before ran out of memory.
OOM_RETRIES = "onejob.dev/oom-retries"
#: On a CronJob: how many seconds after its slots it may start.
JITTER_ANNOTATION = "onejob.dev/jitter-seconds"
#: On a Pod, or in a template: how many seconds after its creation it has to have started.
PENDING_DEADLINE_ANNOTATION = "onejob.dev/pending-deadline-seconds"
#: Instead of a Job's ttlSecondsAfterFinished, by how it finished.
SUCCESS_TTL_ANNOTATION = "onejob.dev/ttl-seconds-after-success"
FAILURE_TTL_ANNOTATION = "onejob.dev/ttl-seconds-after-failure"
POD_TTL_ANNOTATION = "onejob.dev/ttl-seconds-after-finished"
