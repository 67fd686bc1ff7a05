"""Routing of Job and Pod changes to sync requests, and detection of orphaned finalizers."""

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
from onejob.planning.job.operator_settings import Settings, is_ours
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.names import STARTED_BY_MARK

#: Look up a Job by its key; None if it does not exist (any more).
FindJob: TypeAlias = Callable[[Key], Job | None]


class JobRoute(Struct, frozen=True):
    """Sync request that follows from a Job update."""

    #: True to sync at once; otherwise the sync is batched with changes that follow shortly.
    at_once: bool = False
    #: True if the Job is finished: skip the sync and only look for orphaned Pods.
    finished: bool = False
    #: Additional sync time: the Job's new deadline.
    deadline: datetime | None = None


def route_job_update(old: Job, new: Job) -> JobRoute:
    if new.finished:
        return JobRoute(finished=True)
    deadline = None
    if new.spec.active_deadline_seconds != old.spec.active_deadline_seconds:
        deadline = deadline_of(new, new.status.start_time)
    return JobRoute(at_once=old.metadata.generation != new.metadata.generation, deadline=deadline)


class PodRoute(Struct, frozen=True, gc=False):
    """Sync requests that follow from a Pod change."""

    jobs: tuple[Key, ...] = ()
    #: True if there may be no controller left to remove the finalizer; check
    #: `may_release_finalizer`.
    orphan: bool = False


#: Shared instance: most changes route nowhere, so none is allocated for them.
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
    """Return the Jobs to sync after a Pod change.

    Args:
        old: Previous state; None for a new Pod.
        new: Current state, or the last one if `gone`.
        jobs_in: List the Jobs of a namespace; called only for a Pod without a controller.
        controller: Key of the Job that controls the Pod, if the caller has resolved it already.
    """
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
        concerned.extend(job.key for job in adopting_jobs(new, neighbours))
    return PodRoute(tuple(dict.fromkeys(concerned)), orphan=is_tracked(new))


def adopting_jobs(pod: Pod, jobs: Iterable[Job]) -> list[Job]:
    """Return the Jobs whose selector would adopt a Pod without a controller."""
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
    """Return whether the Pod holds the tracking finalizer and no controller will account for it."""
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
    """Return whether this controller created a Pod of another controller's Job."""
    annotations = pod.metadata.annotations
    return STARTED_BY_MARK in annotations and annotations[STARTED_BY_MARK] == manager


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
    """Return the referenced Job, matched by name and UID, or None.

    A later Job of the same name does not own the Pods of the first.
    """
    if reference.kind != "Job":
        return None
    job = find_job(_job_key(pod.metadata.namespace, reference.name))
    return job if job is not None and job.metadata.uid == reference.uid else None


def _key_of(reference: OwnerReference, pod: Pod, find_job: FindJob) -> tuple[Key, ...]:
    """Return the key of the referenced Job; empty if it does not exist."""
    key = _job_key(pod.metadata.namespace, reference.name)
    job = find_job(key) if reference.kind == "Job" else None
    return (key,) if job is not None and job.metadata.uid == reference.uid else ()


@lru_cache(maxsize=256)
def _route_to(job: Key) -> PodRoute:
    """Return the route to one Job, from a cache."""
    return PodRoute((job,))


@lru_cache(maxsize=256)
def _job_key(namespace: str, name: str) -> Key:
    # Cached because every Pod change needs it, mostly for a few Jobs: constructing the key was half
    # the cost of routing.
    return Key(JOBS, namespace, name)
