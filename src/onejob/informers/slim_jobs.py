"""Jobs as their cache keeps them. Most are finished: no Pod is made of their templates any more,
and what their conditions say is the same over and over."""

from functools import lru_cache
from sys import intern

import msgspec
from msgspec.structs import replace

from onejob.objects.job import Job, read_job
from onejob.objects.meta import Condition
from onejob.planning.restart_policy import restart_policy_of


def read_slim_job(document: bytes) -> Job:
    """A view of a finished Job holds on to nothing of its document; of the template only the
    restartPolicy is left, by which Pods are counted."""
    job = read_job(document)
    if not job.finished:
        return job
    metadata, spec, status = job.metadata, job.spec, job.status
    return Job(
        replace(metadata, namespace=intern(metadata.namespace)),
        replace(
            spec,
            template=_bare_template(restart_policy_of(job)),
            completion_mode=intern(spec.completion_mode),
            pod_replacement_policy=intern(spec.pod_replacement_policy),
        ),
        replace(status, conditions=tuple(map(_with_shared_words, status.conditions))),
    )


@lru_cache(maxsize=16)
def _bare_template(policy: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"spec": {"restartPolicy": policy}}))


def _with_shared_words(condition: Condition) -> Condition:
    return replace(
        condition,
        type=intern(condition.type),
        status=intern(condition.status),
        reason=intern(condition.reason),
        message=intern(condition.message),
    )
