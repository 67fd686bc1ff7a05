"""Event handlers of the Job controller: turn changes of Jobs and Pods into queued syncs.

Every change takes the same steps: update the state of the Job, let `planning.job.routing` find the
Jobs affected by the change, and queue these, at once or a little later.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from onejob.controllers.context import ControllerContext
from onejob.controllers.job_orphans import OrphanPods
from onejob.controllers.job_state import JobState, JobStates, Urgency, is_accounted
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, Key
from onejob.objects.pod import Pod
from onejob.planning.job.operator_settings import Settings, is_ours
from onejob.planning.job.pod_facts import PodEnd, controlling_job_uid, end_of, same_owners
from onejob.planning.job.pruning import keeps_accounted_pods
from onejob.planning.job.routing import (
    route_job_update,
    route_pod_change,
    was_started_by,
)
from onejob.planning.mirror.names import MANAGER as MIRROR_MANAGER
from onejob.planning.names import BUILT_IN_MANAGER

log = logging.getLogger(__name__)

#: Seconds for which a change that only alters counts in the status (a Pod is bound, or ready) waits
#: for further ones, so that one sync serves them all.
_SOON_SECONDS = 0.1


class JobEvents:
    """Handlers of changes that queue the syncs they require."""

    def __init__(
        self,
        context: ControllerContext,
        *,
        settings: Settings,
        states: JobStates,
        queue: WorkQueue[Key],
        orphans: OrphanPods,
    ) -> None:
        self._jobs = context.informers.jobs
        self._clock = context.clock
        self._metrics = context.metrics
        self._settings = settings
        self._states = states
        self._queue = queue
        self._orphans = orphans
        self._jobs.on_change(self._jobs_changed)
        context.informers.pods.on_change(self._pods_changed)

    # --- Jobs -----------------------------------------------------------------------------

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        """Queue the syncs that changes of Jobs require."""
        for delta in deltas:
            old, new = delta.old, delta.new
            if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
                self._job_updated(old, new)
                continue
            # After a gap in the watch, a list may contain another Job of the same name.
            if old is not None:
                self._states.forget(old.metadata.uid)
                self._orphans.job_gone(old)
            if new is None:
                self._queue.drop(delta.key)
            else:
                self._job_added(new)

    def _job_added(self, job: Job) -> None:
        has_state = job.metadata.uid in self._states
        if has_state:
            keep_accounted = keeps_accounted_pods(job, self._settings)
            self._states.job_added(job, keep_accounted=keep_accounted)
        manager = job.spec.managed_by
        if manager not in (None, BUILT_IN_MANAGER) and not is_ours(job, self._settings):
            self._metrics.external_jobs.inc(controller_name=manager or "")
            if not job.finished:
                # There may be no controller of that name to run it. Jobs of our own mirror
                # controller are expected.
                level = logging.INFO if manager == MIRROR_MANAGER else logging.WARNING
                log.log(level, "%s is managed by the controller %s", job.key, manager)
        if job.finished and not has_state:
            # None of its Pods was observed yet; any that still have their finalizer trigger a sync
            # when they are. After a restart, most Jobs are like this.
            return
        self._queue.add(job.key)

    def _job_updated(self, old: Job, new: Job) -> None:
        if not new.finished and self._is_own_write(new):
            return
        settings = self._settings
        if keeps_accounted_pods(new, settings) and not keeps_accounted_pods(old, settings):
            self._states.of(new.metadata.uid).needs_relist = True
        route = route_job_update(old, new)
        if route.at_once or route.finished:
            self._queue.add(new.key)
        else:
            self._queue.add_after(new.key, _SOON_SECONDS)
        if route.deadline is not None:
            seconds = (route.deadline - self._clock.now()).total_seconds()
            self._queue.add_after(new.key, seconds)

    def _is_own_write(self, job: Job) -> bool:
        """Return whether this version is our own write, or older.

        Each of our writes names the version before it, so up to our last write every version is
        either ours or was observed.
        """
        return job.metadata.revision <= self._states.of(job.metadata.uid).job_revision

    # --- Pods -----------------------------------------------------------------------------

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Take over changes of Pods, and queue the syncs that they require."""
        at_once: set[Key] = set()
        soon: set[Key] = set()
        jobs = self._jobs.cache
        jobs_in = partial(jobs.find, "namespace")
        # Most changes concern Pods of a few Jobs: look these up once.
        owners: dict[str, _Owner] = {}
        began_to_hold = released = 0
        for delta in deltas:
            old, new = delta.old, delta.new
            gone = new is None
            pod = old if new is None else new
            if pod is None:
                continue
            before = "none" if old is None else end_of(old)
            after = "none" if new is None else end_of(new)
            if before != after:
                began_to_hold += after == "held"
                released += before == "held"
            urgency, owner = self._update_state(old, new, after, owners)
            if urgency == "not at all":
                continue
            route = route_pod_change(old, pod, jobs.get, jobs_in, owner.key, gone=gone)
            (at_once if urgency == "at once" else soon).update(route.jobs)
            has_ended = after != "none" or pod.metadata.deletion_timestamp is not None
            if route.orphan or (
                not gone and has_ended and was_started_by(self._settings.manager, pod)
            ):
                self._orphans.add(delta.key)
        self._count_tracked(began_to_hold, released)
        for key in at_once:
            self._queue.add(key)
        for key in soon - at_once:
            self._queue.add_after(key, _SOON_SECONDS)

    def _update_state(
        self, old: Pod | None, new: Pod | None, end: PodEnd, owners: "dict[str, _Owner]"
    ) -> "tuple[Urgency, _Owner]":
        """Update the state of the Jobs that controlled and control the Pod, whose end is `end`.

        Return how soon they are to be synced, and the Job that controls it now.
        """
        after = controlling_job_uid(new)
        if after in owners and (old is None or same_owners(old, new)):
            owner = owners[after]
            if new is not None and owner.state is not None:
                return owner.state.take(new, end, keep_accounted=owner.keep_accounted), owner
        before = after if same_owners(old, new) else controlling_job_uid(old)
        urgency: Urgency = "at once"
        owner = _NOBODY
        if old is not None and before is not None and before != after:
            urgency = self._remove_pod(before, old, self._owner(before, old, owners))
        if new is not None and after is not None:
            owner = self._owner(after, new, owners)
            put = self._put_pod(after, new, end, owner)
            # A Pod that was adopted or released concerns two Jobs.
            urgency = put if old is None or before == after else "at once"
        return urgency, owner

    def _remove_pod(self, uid: str, pod: Pod, owner: "_Owner") -> Urgency:
        accounted = is_accounted(pod)
        if accounted and owner.state is not None:
            owner.state.record_end(pod)
        self._states.pod_gone(uid, pod, job_known=owner.known)
        return "soon" if accounted and owner.known and not owner.keep_accounted else "at once"

    def _put_pod(self, uid: str, pod: Pod, end: PodEnd, owner: "_Owner") -> Urgency:
        """Take over a Pod in the state of its Job; return how soon a sync is needed."""
        if owner.state is not None:
            return owner.state.take(pod, end, keep_accounted=owner.keep_accounted)
        if not owner.known:
            # Until the Job is cached it is unknown whether its ended Pods matter: keep them.
            self._states.of(uid).take(pod, end, keep_accounted=True)
        elif owner.ours and owner.keep_accounted and not pod.metadata.deleting:
            self._states.of(uid).take(pod, end, keep_accounted=True)
        else:
            self._states.pod_gone(uid, pod, job_known=True)
            if end == "accounted":
                # The Job has finished or belongs to another controller: no controller acts on this
                # Pod.
                return "not at all"
        return "at once"

    def _owner(self, uid: str, pod: Pod, owners: "dict[str, _Owner]") -> "_Owner":
        """Return what is known of a Pod's owner, looked up once per batch."""
        known = owners.get(uid)
        if known is None:
            known = owners[uid] = self._look_up(uid, pod)
        return known

    def _look_up(self, uid: str, pod: Pod) -> "_Owner":
        """Return what is known of the Job that controls the Pod."""
        reference = pod.metadata.controller_ref
        assert reference is not None, "a Pod with a controlling Job"
        job = self._jobs.cache.get(Key(JOBS, pod.metadata.namespace, reference.name))
        if job is None or job.metadata.uid != uid:
            return _Owner(known=False)
        ours = is_ours(job, self._settings)
        return _Owner(
            known=True,
            key=job.key,
            ours=ours,
            state=self._states.of(uid) if ours and not job.finished else None,
            keep_accounted=keeps_accounted_pods(job, self._settings),
        )

    def _count_tracked(self, added: int, deleted: int) -> None:
        """Count tracked Pods that have ended, and tracked Pods that lost their finalizer since."""
        if added:
            self._metrics.finalizer_changes.add(added, event="add")
        if deleted:
            self._metrics.finalizer_changes.add(deleted, event="delete")
        if added or deleted:
            self._metrics.pods_with_finalizer.add(added - deleted)


class _Owner(NamedTuple):
    """The Job that controls a Pod, reduced to the facts needed to route changes of its Pods."""

    #: Whether the cache contains the Job,
    known: bool
    #: under this key.
    key: Key | None = None
    ours: bool = False
    #: State of a Job that is ours and not finished.
    state: JobState | None = None
    keep_accounted: bool = False


_NOBODY = _Owner(known=False)
