"""Memory-saving views of Jobs for the informer cache.

Most Jobs are finished. Their templates and labels are no longer needed and are dropped, and
repeated strings are shared.
"""

from functools import lru_cache
from sys import intern

import msgspec
from msgspec.structs import replace

from onejob.objects.job import Job, read_job
from onejob.objects.meta import Condition, LabelSelector
from onejob.planning.pod.restart_policy import read_restart_policy

_NO_LABELS: dict[str, str] = {}


def read_slim_job(document: bytes) -> Job:
    """Decode a Job; if it is finished, return a view that keeps no part of the document alive.

    The view of a finished Job has no labels, and of the template only the restartPolicy, which
    decides how Pods are counted. Unfinished Jobs are returned complete.
    """
    return slim(read_job(document))


def slim(job: Job) -> Job:
    """Return the view that `read_slim_job` would, for a Job that was decoded already."""
    if not job.finished:
        return job
    # After a restart this runs for a hundred thousand Jobs: few calls, and no helper functions.
    metadata, spec, status = job.metadata, job.spec, job.status
    selector = spec.selector
    if selector is not None:
        uid = metadata.uid
        wanted = {
            # Most selectors match the Job's own UID: share that string.
            intern(label): uid if value == uid else value
            for label, value in selector.match_labels.items()
        }
        selector = LabelSelector(wanted, selector.match_expressions)
    # The last times of a Job are mostly equal: share the object. They are compared in sequence
    # because a lookup by hash takes ten times as long.
    end = status.completion_time
    if end == status.start_time:
        end = status.start_time
    last = end
    conditions = []
    for condition in status.conditions:
        probe, transition = condition.last_probe_time, condition.last_transition_time
        if transition == last:
            transition = last
        last = transition
        if probe == transition:
            probe = transition
        conditions.append(
            Condition(
                intern(condition.type),
                intern(condition.status),
                probe,
                transition,
                intern(condition.reason),
                intern(condition.message),
            )
        )
    return Job(
        replace(metadata, namespace=intern(metadata.namespace), labels=_NO_LABELS),
        replace(
            spec,
            template=_bare_template(read_restart_policy(spec.template)),
            completion_mode=intern(spec.completion_mode),
            pod_replacement_policy=intern(spec.pod_replacement_policy),
            selector=selector,
        ),
        replace(status, conditions=tuple(conditions), completion_time=end),
    )


@lru_cache(maxsize=16)
def _bare_template(policy: str) -> msgspec.Raw:
    """Return an encoded template of only a restartPolicy, from a cache."""
    return msgspec.Raw(msgspec.json.encode({"spec": {"restartPolicy": policy}}))
