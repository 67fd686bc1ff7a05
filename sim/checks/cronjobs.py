"""CronJobs: one Job per scheduled time, and none beside another where that is forbidden."""

from dataclasses import dataclass, field
from datetime import datetime

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from sim.checks.problems import Problems

CHECK = "one Job per scheduled time"
_SLOT = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@dataclass
class CronJobCheck:
    problems: Problems
    _cronjobs: dict[str, CronJob] = field(default_factory=dict)
    #: By CronJob, the Jobs that go on.
    _going_on: dict[str, set[str]] = field(default_factory=dict)
    _slots: dict[tuple[str, str], str] = field(default_factory=dict)

    def _is_on_record(self, slot: tuple[str, str]) -> bool:
        uid, time = slot
        cronjob = self._cronjobs.get(uid)
        last = None if cronjob is None else cronjob.status.last_schedule_time
        return last is not None and last >= datetime.fromisoformat(time)

    def see_cronjob(self, cronjob: CronJob, *, gone: bool) -> None:
        if gone:
            self._cronjobs.pop(cronjob.metadata.uid, None)
        else:
            self._cronjobs[cronjob.metadata.uid] = cronjob

    def see_job(self, job: Job, *, gone: bool) -> None:
        owner = job.metadata.controller_ref
        if owner is None or owner.kind != "CronJob":
            return
        uid, going_on = job.metadata.uid, self._going_on.setdefault(owner.uid, set())
        slot = owner.uid, job.metadata.annotations.get(_SLOT, "")
        if gone and not self._is_on_record(slot):
            # A crash or a lost answer came between the Job and the status that speaks of it, and
            # then somebody deleted it: nothing is left that could tell. So it is with Kubernetes.
            self._slots.pop(slot, None)
        if gone or job.finished:
            going_on.discard(uid)
            return
        if self._slots.setdefault(slot, uid) != uid:
            self.problems.add(CHECK, f"CronJob {owner.name} ran twice for {slot[1]}")
        cronjob = self._cronjobs.get(owner.uid)
        forbids = cronjob is not None and cronjob.spec.concurrency_policy == "Forbid"
        if forbids and uid not in going_on and going_on:
            self.problems.add(CHECK, f"CronJob {owner.name} forbids two Jobs at a time")
        going_on.add(uid)
