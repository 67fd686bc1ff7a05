"""Catch-up of missed slots: all of them are run, in order, one at a time.

Kubernetes runs only the latest of the missed slots (kubernetes/kubernetes#79995 asks for all). With
the annotation `onejob.dev/catch-up: all` the oldest slot since the last run is started, once the
previous Job has ended. `startingDeadlineSeconds` bounds how old a slot may be.
"""

from onejob.objects.cronjob import CronJob
from onejob.planning.names import CATCH_UP_ANNOTATION

_ALL = "all"


def catches_up(cronjob: CronJob) -> bool:
    """Return whether no missed slot is skipped. With Replace, a newer slot ends the older ones."""
    annotated = cronjob.metadata.annotations.get(CATCH_UP_ANNOTATION) == _ALL
    return annotated and cronjob.spec.concurrency_policy != "Replace"


def annotation_warning(value: str, concurrency_policy: str) -> str:
    """Return why the annotation has no effect, or "" if it has one."""
    path = f"metadata.annotations[{CATCH_UP_ANNOTATION}]"
    if value != _ALL:
        return f'{path}: has no effect: the only value is "{_ALL}"'
    if concurrency_policy == "Replace":
        return f"{path}: has no effect: concurrencyPolicy Replace ends older runs"
    return ""
