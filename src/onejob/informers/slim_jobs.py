"""Jobs as their cache keeps them. Most are finished: their templates and labels are not needed any
more and are dropped, and repeated strings are shared, to save memory."""

from functools import lru_cache
from sys import intern

import msgspec
from msgspec.structs import replace

from onejob.objects.job import Job, JobSpec, JobStatus, read_job
from onejob.objects.meta import Condition, LabelSelector, Meta
from onejob.planning.pod.restart_policy import restart_policy_of

_NO_LABELS: dict[str, str] = {}


def read_slim_job(document: bytes) -> Job:
    """The view of a finished Job keeps no part of its document alive: it has no labels, and of the
    template only the restartPolicy, which decides how Pods are counted."""
    job = read_job(document)
    if not job.finished:
        return job
    return Job(_metadata(job.metadata), _spec(job), _status(job.status))


def _metadata(metadata: Meta) -> Meta:
    return replace(metadata, namespace=intern(metadata.namespace), labels=_NO_LABELS)


def _spec(job: Job) -> JobSpec:
    spec = job.spec
    return replace(
        spec,
        template=_bare_template(restart_policy_of(job)),
        completion_mode=intern(spec.completion_mode),
        pod_replacement_policy=intern(spec.pod_replacement_policy),
        selector=spec.selector and _selector(spec.selector, job.metadata.uid),
    )


def _selector(selector: LabelSelector, uid: str) -> LabelSelector:
    """Most selectors match the Job's own UID: share that string."""
    wanted = {
        intern(label): uid if value == uid else value
        for label, value in selector.match_labels.items()
    }
    return replace(selector, match_labels=wanted)


def _status(status: JobStatus) -> JobStatus:
    # The last times of a Job are mostly equal: share the object.
    times = {time: time for time in (status.start_time, status.completion_time)}
    return replace(
        status,
        conditions=tuple(
            Condition(
                intern(condition.type),
                intern(condition.status),
                times.setdefault(condition.last_probe_time, condition.last_probe_time),
                times.setdefault(condition.last_transition_time, condition.last_transition_time),
                intern(condition.reason),
                intern(condition.message),
            )
            for condition in status.conditions
        ),
        completion_time=times[status.completion_time],
    )


@lru_cache(maxsize=16)
def _bare_template(policy: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"spec": {"restartPolicy": policy}}))
