"""Failures of the Job and CronJob controllers reported by Events: Pods or Jobs not created,
finalizers not removed.

Pure functions. The documents of a Job and its Pods only show that something is missing; the reason
is in the Events of the Job.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from onejob.diagnosis.explanation import Document, ago_text
from onejob.objects.pod import Pod
from onejob.planning.counts import counted
from onejob.planning.cronjob.history import CronJobEvent as JobEvent
from onejob.planning.cronjob.history import read_event
from onejob.planning.job.pod_facts import finish_time, is_tracked
from onejob.planning.names import TRACKING_NAMES

#: Ended Pods are counted within moments; after this time the controller must be prevented from it.
_COUNTED_WITHIN: Final = timedelta(seconds=10)

_QUOTA: Final = re.compile(r"exceeded quota: ([^,\s]+)")
_PRIORITY_CLASS: Final = re.compile(r"no PriorityClass with name (\S+) was found")
_ACCOUNT: Final = re.compile(r"error looking up service account [^/\s]+/(\S+?):")
_INVALID_POD: Final = re.compile(r'Pod "[^"]*" is invalid: \[?(spec\.[^:\s]+): ')
_INVALID_JOB: Final = re.compile(r'Job\.batch "[^"]*" is invalid: \[?(spec\.[^:\s]+): ')
_POD_SECURITY: Final = re.compile(r'violates PodSecurity "([^":]+)')


class Failure(msgspec.Struct, frozen=True):
    """Repeated failure of an action, from the Event that reports it."""

    reason: str
    message: str
    first_at: datetime
    last_at: datetime

    def text(self, now: datetime) -> str:
        """Return the failure in words, with its age."""
        since = f", first {ago_text(self.first_at, now)}" if self.first_at < self.last_at else ""
        return f"{self.reason} ({ago_text(self.last_at, now)}{since}): {self.message}"


class Uncounted(msgspec.Struct, frozen=True):
    """Ended Pods that keep their tracking finalizer for longer than counting takes."""

    names: tuple[str, ...]
    finalizer: str
    since: datetime
    failure: Failure | None

    def text(self, now: datetime) -> str:
        """Return the uncounted Pods in words."""
        more = f" and {counted(len(self.names) - 1, 'other')}" if len(self.names) > 1 else ""
        verb = "hold" if more else "holds"
        what = f"pod {self.names[0]}{more} still {verb} the finalizer {self.finalizer}"
        return f"{what}, although it ended {ago_text(self.since, now)}"


def create_failure(events: Sequence[Document]) -> Failure | None:
    """Return the last failed creation of a Pod or Job, unless one has succeeded since."""
    return _last_failure(events, "FailedCreate", overcome_by="SuccessfulCreate")


def uncounted_pods(
    pods: Sequence[Pod], events: Sequence[Document], now: datetime
) -> Uncounted | None:
    """Return the Pods that ended a while ago and still have the finalizer; None if there are
    none."""
    held = sorted(
        (
            pod
            for pod in pods
            if pod.terminal and is_tracked(pod) and finish_time(pod) + _COUNTED_WITHIN < now
        ),
        key=finish_time,
    )
    if not held:
        return None
    finalizers = [name for name in held[0].metadata.finalizers if name in TRACKING_NAMES]
    return Uncounted(
        tuple(pod.metadata.name for pod in held),
        finalizers[0],
        finish_time(held[0]),
        _last_failure(events, "FailedFinalizerRemoval"),
    )


def create_remedy(failure: Failure, namespace: str) -> str:
    """Return the next step after a failed creation of a Pod."""
    if match := _QUOTA.search(failure.message):
        return (
            f"raise the ResourceQuota {match[1]} or reduce its usage (onejob get resourcequotas "
            f"-n {namespace})"
        )
    if match := _PRIORITY_CLASS.search(failure.message):
        return f"create the PriorityClass {match[1]}"
    if match := _ACCOUNT.search(failure.message):
        return f"create the ServiceAccount {match[1]} in namespace {namespace}"
    if match := _POD_SECURITY.search(failure.message):
        return (
            f"make spec.template comply with the level {match[1]} and create the Job again, or "
            f"change the label pod-security.kubernetes.io/enforce of namespace {namespace}"
        )
    if match := _INVALID_POD.search(failure.message):
        return (
            f"correct spec.template.{match[1]}: delete the Job and create it anew, because its "
            "template is immutable"
        )
    return "resolve the problem, or delete the Job and create it with another spec.template"


def job_create_remedy(failure: Failure) -> str:
    """Return the next step after a failed creation of a CronJob's Job."""
    if match := _INVALID_JOB.search(failure.message):
        return f"correct spec.jobTemplate.{match[1]}"
    return "remove the cause, or change spec.jobTemplate"


def _last_failure(
    events: Sequence[Document], reason: str, *, overcome_by: str = ""
) -> Failure | None:
    """Return the newest failure of this reason; None if there is none, or a newer Event shows
    success."""
    read = [event for event in map(read_event, events) if event is not None]
    failed = _newest(read, reason)
    done = _newest(read, overcome_by)
    if failed is None or (done is not None and done.last_at > failed.last_at):
        return None
    return Failure(failed.reason, failed.message, failed.first_at, failed.last_at)


def _newest(events: Sequence[JobEvent], reason: str) -> JobEvent | None:
    """Return the newest Event of this reason, or None."""
    found = [event for event in events if event.reason == reason]
    return max(found, key=lambda event: event.last_at, default=None)
