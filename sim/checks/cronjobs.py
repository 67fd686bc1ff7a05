"""Invariants of CronJobs: one Job per slot, Forbid is kept, every recorded slot ran."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.planning.cronjob.documents import job_name
from sim.checks.problems import Problems

CHECK = "one Job per scheduled time"
_SLOT = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class _Slot(NamedTuple):
    cronjob: str
    time: datetime


@dataclass
class CronJobCheck:
    """Check of all CronJobs and their Jobs."""

    problems: Problems
    #: Times at which the clock was set back.
    set_back_at: Sequence[float] = ()
    #: The slot that ran last does not run again, although the clock reaches it again.
    last_slot_counts: bool = False
    _cronjobs: dict[str, CronJob] = field(default_factory=dict)
    #: Unfinished Jobs by UID, per CronJob.
    _going_on: dict[str, dict[str, Job]] = field(default_factory=dict)
    #: UID of the Job of each slot, and the time at which it ran.
    _slots: dict[_Slot, tuple[str, float]] = field(default_factory=dict)
    #: CronJob UIDs and Job names. Slots within one minute share a name, and one of them runs.
    _ran: set[tuple[str, str]] = field(default_factory=set)
    #: CronJobs with an edited policy: Jobs started before the controller saw the edit are no bug.
    _fickle: set[str] = field(default_factory=set)

    def _is_on_record(self, slot: _Slot) -> bool:
        cronjob = self._cronjobs.get(slot.cronjob)
        last = None if cronjob is None else cronjob.status.last_schedule_time
        return last is not None and last >= slot.time

    def see_cronjob(self, cronjob: CronJob, *, gone: bool) -> None:
        uid = cronjob.metadata.uid
        if gone:
            self._cronjobs.pop(uid, None)
            return
        before = self._cronjobs.get(uid, cronjob)
        self._cronjobs[uid] = cronjob
        if cronjob.spec.concurrency_policy != before.spec.concurrency_policy:
            self._fickle.add(uid)
        uids = [reference.uid for reference in cronjob.status.active]
        if len(set(uids)) < len(uids):
            self.problems.add(CHECK, f"CronJob {cronjob.metadata.name} lists a Job twice")
        last, earlier = cronjob.status.last_schedule_time, before.status.last_schedule_time
        if last is None or last == earlier:
            return
        if (uid, job_name(cronjob, last)) not in self._ran:
            self.problems.add(CHECK, f"CronJob {cronjob.metadata.name} never ran for {last}")
        if earlier is not None and last < earlier:
            # The clock was set back: slots that come again run again.
            for slot in [slot for slot in self._slots if slot.cronjob == uid and slot.time > last]:
                del self._slots[slot]

    def see_job(self, job: Job, at: float, *, gone: bool) -> None:
        owner = job.metadata.controller_ref
        if owner is None or owner.kind != "CronJob":
            return
        uid, going_on = job.metadata.uid, self._going_on.setdefault(owner.uid, {})
        slot = _Slot(owner.uid, datetime.fromisoformat(job.metadata.annotations[_SLOT]))
        self._ran.add((owner.uid, job.metadata.name))
        if gone and not self._is_on_record(slot):
            # A crash or a lost response came between the creation of the Job and the status write,
            # and a user then deleted the Job: no trace is left. Kubernetes behaves the same way.
            self._slots.pop(slot, None)
        if gone or job.finished:
            going_on.pop(uid, None)
            return
        self._see_run(slot, owner.name, uid, at)
        if uid not in going_on and owner.uid not in self._fickle:
            self._see_started(owner.uid, list(going_on.values()))
        going_on[uid] = job

    def _see_run(self, slot: _Slot, name: str, uid: str, at: float) -> None:
        before, ran_at = self._slots.setdefault(slot, (uid, at))
        if before == uid:
            return
        # A slot that comes again runs again.
        cronjob = self._cronjobs.get(slot.cronjob)
        is_last = cronjob is not None and cronjob.status.last_schedule_time == slot.time
        if (self.last_slot_counts and is_last) or not any(
            ran_at <= set_back < at for set_back in self.set_back_at
        ):
            self.problems.add(CHECK, f"CronJob {name} ran twice for {slot.time}")
        self._slots[slot] = uid, at

    def _see_started(self, uid: str, others: list[Job]) -> None:
        cronjob = self._cronjobs.get(uid)
        if cronjob is None:
            return
        name, policy = cronjob.metadata.name, cronjob.spec.concurrency_policy
        if policy == "Forbid" and others:
            self.problems.add(CHECK, f"CronJob {name} forbids two Jobs at a time")
        if policy == "Replace" and not all(other.metadata.deleting for other in others):
            self.problems.add(CHECK, f"CronJob {name} does not replace the Job before")
