"""Which Jobs a change concerns, and which Pods nobody will ever account for."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.meta import JOBS, Key, OwnerReference
from onejob.objects.pod import Pod
from onejob.planning.job.claiming import job_matcher
from onejob.planning.job.fate import deadline_of
from onejob.planning.job.managing import is_ours
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.job.settings import Settings
from onejob.planning.names import STARTED_BY_MARK

#: Looks up a Job by its key; None if there is none (any more).
FindJob: TypeAlias = Callable[[Key], Job | None]


class JobRoute(Struct, frozen=True):
    """What a changed Job calls for."""

    #: Sync it at once; otherwise together with what comes soon after.
    at_once: bool = False
    #: None of the above: it is finished, so only look for Pods it left behind.
    finished: bool = False
    #: Also look when its new deadline passes.
    deadline: datetime | None = None


def route_job_update(old: Job, new: Job) -> JobRoute:
    if new.finished:
        return JobRoute(finished=True)
    deadline = None
    if new.spec.active_deadline_seconds != old.spec.active_deadline_seconds:
        deadline = deadline_of(new, new.status.start_time)
    return JobRoute(at_once=old.metadata.generation != new.metadata.generation, deadline=deadline)


class PodRoute(Struct, frozen=True, gc=False):
    """What a changed Pod calls for."""

    jobs: tuple[Key, ...] = ()
    #: Nobody may be left to take its finalizer off: ask `may_release_finalizer`.
    orphan: bool = False


#: One for most changes, which therefore need not build it.
_NOTHING = PodRoute()


def route_pod_change(
    old: Pod | None,
    new: Pod,
    find_job: FindJob,
    jobs_in: Callable[[str], Iterable[Job]],
    controller: Key | None = None,
    *,
    gone: bool = False,
) -> PodRoute:
    """`old` is None for a Pod that is new; `gone`: `new` is its last state. `jobs_in` gives those
    of a namespace, and is asked only for a Pod without a controller. `controller` is the Job that
    controls the Pod, where that was found out already."""
    version = new.metadata.resource_version
    if old is not None and not gone and version and old.metadata.resource_version == version:
        return _NOTHING
    if gone or new.metadata.deletion_timestamp is not None:
        return _route_ending(new, find_job, gone=gone)
    if controller is not None and (
        old is None or old.metadata.owner_references == new.metadata.owner_references
    ):
        return _route_to(controller)
    current = new.metadata.controller_ref
    former = current
    if old is not None and old.metadata.owner_references != new.metadata.owner_references:
        former = old.metadata.controller_ref
    moved = old is not None and former != current
    if current is not None and not moved:
        return PodRoute(_key_of(current, new, find_job))
    concerned: list[Key] = []
    if moved and former is not None:
        concerned.extend(_key_of(former, new, find_job))
    if current is not None:
        concerned.extend(_key_of(current, new, find_job))
        return PodRoute(tuple(concerned))
    if old is None or moved or old.metadata.labels != new.metadata.labels:
        neighbours = jobs_in(new.metadata.namespace)
        concerned.extend(job.key for job in jobs_wanting(new, neighbours))
    return PodRoute(tuple(dict.fromkeys(concerned)), orphan=is_tracked(new))


def jobs_wanting(pod: Pod, jobs: Iterable[Job]) -> list[Job]:
    """The Jobs whose selector would adopt a Pod that nobody controls."""
    if not pod.metadata.labels:
        return []
    return [
        job
        for job in jobs
        if job.metadata.namespace == pod.metadata.namespace
        and (matcher := job_matcher(job)) is not None
        and matcher.matches(pod.metadata.labels)
    ]


def may_release_finalizer(pod: Pod, find_job: FindJob, settings: Settings) -> bool:
    """Whether nobody is left to account for a Pod that holds the tracking finalizer."""
    if not is_tracked(pod):
        return False
    controller = pod.metadata.controller_ref
    if controller is None:
        return True
    if controller.kind != "Job" or controller.api_version != "batch/v1":
        return False
    job = _resolve(controller, pod, find_job)
    if job is None:
        return True
    if is_ours(job, settings):
        return job.finished
    return was_started_by(settings.manager, pod) and has_ended(pod)


def was_started_by(manager: str, pod: Pod) -> bool:
    """Whether this controller started a Pod of another controller's Job."""
    return pod.metadata.annotations.get(STARTED_BY_MARK) == manager


def has_ended(pod: Pod) -> bool:
    return pod.terminal or pod.metadata.deleting


def _route_ending(pod: Pod, find_job: FindJob, *, gone: bool) -> PodRoute:
    held = is_tracked(pod) and not gone
    controller = pod.metadata.controller_ref
    job = None if controller is None else _resolve(controller, pod, find_job)
    if job is None or job.finished:
        return PodRoute(orphan=held)
    return PodRoute((job.key,))


def _resolve(reference: OwnerReference, pod: Pod, find_job: FindJob) -> Job | None:
    """By name and UID: a namesake created later has no claim on the Pods of the first."""
    if reference.kind != "Job":
        return None
    job = find_job(_job_key(pod.metadata.namespace, reference.name))
    return job if job is not None and job.metadata.uid == reference.uid else None


def _key_of(reference: OwnerReference, pod: Pod, find_job: FindJob) -> tuple[Key, ...]:
    """The key of the Job that a reference names; empty if there is no such Job."""
    key = _job_key(pod.metadata.namespace, reference.name)
    job = find_job(key) if reference.kind == "Job" else None
    return (key,) if job is not None and job.metadata.uid == reference.uid else ()


@lru_cache(maxsize=256)
def _route_to(job: Key) -> PodRoute:
    return PodRoute((job,))


@lru_cache(maxsize=256)
def _job_key(namespace: str, name: str) -> Key:
    # Asked for with every change of a Pod, and most are of a few Jobs: building it anew was half
    # of what routing takes.
    return Key(JOBS, namespace, name)
