"""Invariants of mirrored Jobs: one copy runs, none is left behind, both sides finally agree."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace as with_changes

from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.go_duration import parse_duration
from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import record_of
from sim.checks.problems import Problems
from sim.clients.log import Entry, ServerLog
from sim.network.links import Network

ONE = "one copy of a Job runs"
RECORDED = "only a copy on record runs"
RELEASED = "a Job stays until its copy has ended"
GIVEN_UP = "a copy is given up only after the time without contact"
FOREIGN = "Jobs of others are left alone"
TERMINAL = "terminal status"
LEFT = "no copy is left behind"
AGREE = "both sides agree in the end"
_SLACK_SECONDS = 0.01
_ENDED = ("Succeeded", "Failed")


@dataclass
class CopyCheck:
    """Check of the Jobs of both sides, fed by the logs of both servers."""

    problems: Problems
    here: ServerLog
    there: ServerLog
    network: Network
    #: UIDs of Jobs here that users deleted with propagation policy Orphan.
    orphaned: set[str] = field(default_factory=set)
    #: Keys, and below UIDs, of Jobs there that users deleted.
    deleted_there: set[Key] = field(default_factory=set)
    unwanted_there: set[str] = field(default_factory=set)
    #: UIDs of copies that were ever recorded, and of Jobs here that ever had a timeout after which
    #: their copy is given up.
    _recorded: set[str] = field(default_factory=set)
    _may_give_up: set[str] = field(default_factory=set)
    #: Objects that exist now.
    _jobs_here: dict[str, Job] = field(default_factory=dict)
    _jobs_there: dict[str, Job] = field(default_factory=dict)
    _pods_there: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.here.on_entry.append(self._see_here)
        self.there.on_entry.append(self._see_there)

    # --- on each change

    def _see_here(self, key: Key, entry: Entry) -> None:
        if key.resource != JOBS:
            return
        job, uid = read_job(entry.document), entry.uid
        if names.LOST_AFTER in job.metadata.annotations:
            self._may_give_up.add(uid)
        before = self._jobs_here.get(uid)
        if before is not None:
            self._compare_here(before, job, entry)
        record = record_of(job)
        if record is not None and record.uid:
            self._recorded.add(record.uid)
        if entry.gone:
            self._see_released(job)
            self._jobs_here.pop(uid, None)
        else:
            self._jobs_here[uid] = job

    def _compare_here(self, before: Job, job: Job, entry: Entry) -> None:
        old, new = record_of(before), record_of(job)
        if before.finished and not entry.gone and _verdict(before) != _verdict(job):
            self._complain(TERMINAL, f"{job.metadata.name}: a finished status changed")
        if old is None or not old.uid:
            return
        left = new is None or new.uid != old.uid or entry.gone
        copy = self._jobs_there.get(old.uid)
        if left and copy is not None and not self._is_orphaned(job):
            self._see_given_up(job, entry.at)

    def _see_given_up(self, job: Job, at: float) -> None:
        """Check the record of a copy that was dropped although the copy exists."""
        text = job.metadata.annotations.get(names.LOST_AFTER, "")
        if not text:
            self._complain(
                ONE, f"the copy of {job.metadata.name} exists, and its record is dropped"
            )
            return
        silence = at - self.network.answered_at.get("here", 0.0)
        needed = parse_duration(text) / 10**9
        if silence < needed - _SLACK_SECONDS:
            name = job.metadata.name
            self._complain(GIVEN_UP, f"{name}: after {silence:.1f} s, and it says {text}")

    def _see_released(self, job: Job) -> None:
        uid = job.metadata.uid
        if uid in self._may_give_up or self._is_orphaned(job):
            return
        running = [pod.metadata.name for pod in self._running(uid)]
        if running:
            self._complain(RELEASED, f"{job.metadata.name} is gone, and {running} run there")

    def _see_there(self, key: Key, entry: Entry) -> None:
        if key.resource == PODS:
            self._see_pod(entry)
            return
        job, uid = read_job(entry.document), entry.uid
        before = self._jobs_there.get(uid)
        if names.ORIGIN not in job.metadata.labels:
            self._see_foreign(key, before, job, entry)
        elif uid not in self._recorded and not (entry.gone or job.spec.suspend or job.finished):
            self._complain(RECORDED, f"{job.metadata.name} ({uid[:8]}) runs and is not")
        if entry.gone:
            self._jobs_there.pop(uid, None)
        else:
            self._jobs_there[uid] = job

    def _see_foreign(self, key: Key, before: Job | None, job: Job, entry: Entry) -> None:
        deleted = entry.gone or job.metadata.deleting
        if deleted and entry.uid not in self.unwanted_there:
            self._complain(FOREIGN, f"{key.name} was deleted, and is no copy")
        if before is not None and before.spec != job.spec:
            self._complain(FOREIGN, f"{key.name} was changed, and is no copy")

    def _see_pod(self, entry: Entry) -> None:
        pod = read_pod(entry.document)
        origin = pod.metadata.labels.get(names.ORIGIN, "")
        if not origin:
            return
        if entry.gone:
            self._pods_there.pop(entry.uid, None)
            return
        self._pods_there[entry.uid] = pod
        owners = {
            owner.uid
            for other in self._running(origin)
            if (owner := other.metadata.controller_ref) is not None
        }
        if len(owners) > 1 and origin not in self._may_give_up:
            self._complain(ONE, f"Pods of {len(owners)} copies of {origin[:8]} run at once")

    def _running(self, origin: str) -> Iterable[Pod]:
        return [
            pod
            for pod in self._pods_there.values()
            if pod.metadata.labels.get(names.ORIGIN) == origin and not pod.terminal
        ]

    def _is_orphaned(self, job: Job) -> bool:
        return job.metadata.uid in self.orphaned

    # --- in the end

    def left_over(self) -> list[tuple[str, str]]:
        """Return checks and descriptions of objects that are not at rest."""
        return [*self._unfinished(), *self._left_behind(), *self._disagreements()]

    def _unfinished(self) -> Iterable[tuple[str, str]]:
        for job in self._jobs_here.values():
            name, status = job.metadata.name, job.status
            if job.metadata.deleting:
                yield "convergence", f"{name} is deleted and still here: {status.conditions}"
            elif not job.finished:
                yield "convergence", f"{name} has not finished: {status.conditions}"

    def _left_behind(self) -> Iterable[tuple[str, str]]:
        for copy in self._jobs_there.values():
            origin, uid = copy.metadata.labels.get(names.ORIGIN, ""), copy.metadata.uid
            job = self._jobs_here.get(origin)
            if not origin or origin in self.orphaned or origin in self._may_give_up:
                continue
            never_ran = uid not in self._recorded and bool(copy.spec.suspend)
            if job is None and not never_ran:
                yield LEFT, f"{copy.metadata.name} ({uid[:8]}), whose Job is gone"
            record = record_of(job) if job is not None else None
            if record is not None and record.uid != uid and not never_ran:
                yield LEFT, f"{copy.metadata.name} ({uid[:8]}), which is not on record"

    def _disagreements(self) -> Iterable[tuple[str, str]]:
        pods_here = self._stand_ins()
        for uid, job in self._jobs_here.items():
            record = record_of(job)
            copy = self._jobs_there.get(record.uid) if record is not None else None
            if copy is None or not job.finished or uid in self._may_give_up:
                continue
            mine, its = job.finished_condition, copy.finished_condition
            if its is None or mine is None or mine.type != its.type:
                yield (
                    AGREE,
                    f"{job.metadata.name} is {mine and mine.type}, there {its and its.type}",
                )
            there = {
                pod.metadata.name: pod.phase
                for pod in self._pods_there.values()
                if pod.metadata.labels.get(names.ORIGIN) == uid
            }
            here = pods_here.get(uid, {})
            for name, phase in here.items():
                # Pods of a finished Job stay as they were, whatever happens to the remote ones.
                if phase not in _ENDED:
                    yield AGREE, f"{name} is {phase} here and {there.get(name, 'gone')} there"

    def _stand_ins(self) -> dict[str, dict[str, str]]:
        """Return the phases of the stand-in Pods here by name, per UID of their Job."""
        found: dict[str, dict[str, str]] = {}
        for key, entries in self.here.entries.items():
            if key.resource == PODS and not entries[-1].gone:
                pod = read_pod(entries[-1].document)
                origin = pod.metadata.labels.get(names.ORIGIN, "")
                found.setdefault(origin, {})[pod.metadata.name] = pod.phase
        return found

    def _complain(self, check: str, text: str) -> None:
        self.problems.add(check, text)


def _verdict(job: Job) -> object:
    """Return the status of a finished Job, without the mirror's condition on deleting the copy."""
    conditions = tuple(one for one in job.status.conditions if one.type != names.READY)
    return with_changes(job.status, conditions=conditions)
