"""Entry point of the checks: run all of them on a whole history."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.planning.queue.limits import Limits
from onejob.virtual_time import NOON
from sim.checks.cronjobs import CronJobCheck
from sim.checks.jobs import JobCheck
from sim.checks.memory import MemoryCheck
from sim.checks.pods import PodCheck
from sim.checks.problems import Problems
from sim.checks.queue import QueueCheck
from sim.checks.ran import Machinery
from sim.checks.verdicts import VerdictCheck
from sim.history import History, Version

SURVIVAL = "acknowledged writes survive"


@dataclass
class HistoryChecker:
    """All checks of one history; `problems` holds the violations."""

    #: Number of Jobs that may run at once.
    limits: Limits = field(default_factory=Limits)
    #: Feature gates were switched meanwhile, which allows many otherwise wrong states.
    gates_switched: bool = False
    problems: Problems = field(default_factory=Problems)
    priority_of: Callable[[Job], int] = lambda job: 0
    #: See `CronJobCheck`.
    last_slot_counts: bool = False

    def __post_init__(self) -> None:
        self._pods = PodCheck(self.problems)
        self._cronjobs = CronJobCheck(self.problems, last_slot_counts=self.last_slot_counts)
        self._memory = MemoryCheck(self.problems)
        self._queue = QueueCheck(self.problems, self.limits, self.priority_of)
        self._jobs: dict[str, JobCheck] = {}
        self._verdicts: dict[str, VerdictCheck] = {}
        self._steady_clock = True
        self._deleted_by_users: Set[Key] = frozenset()
        self._stripped_by_users: Set[str] = frozenset()
        #: UIDs of the Jobs that own or owned a Pod, in order, by the Pod's UID.
        self._jobs_of: dict[str, list[str]] = {}

    def check(
        self,
        history: History,
        machine: Machinery | None = None,
        *,
        steady_clock: bool = True,
        set_back_at: Sequence[float] = (),
        deleted_by_users: Set[Key] = frozenset(),
        stripped_by_users: Set[str] = frozenset(),
    ) -> None:
        """Check a history and add the violations to `problems`.

        `machine` ran the Pods, if its processes are to be compared with their status.
        `steady_clock`: the clock was never set. `set_back_at`: times at which it was set back.
        """
        self._steady_clock = steady_clock
        self._cronjobs.set_back_at = set_back_at
        self._deleted_by_users = deleted_by_users
        self._stripped_by_users = stripped_by_users
        for version in history.in_order():
            self._see(version)
        for job in self._jobs.values():
            job.see_the_end()
        if machine is not None:
            self._pods.compare(machine)
        for text in (*history.problems, *history.lost_writes()):
            self.problems.add(SURVIVAL, text)

    def _see(self, version: Version) -> None:
        match version.subject:
            case Job() as job:
                self._cronjobs.see_job(job, version.at, gone=version.gone)
                self._queue.see_job(job, gone=version.gone)
                uid = job.metadata.uid
                if uid not in self._jobs:
                    self._jobs[uid] = JobCheck(
                        self.problems, job, self._stripped_by_users, self.gates_switched
                    )
                    if not self.gates_switched:
                        self._verdicts[uid] = VerdictCheck(
                            self.problems,
                            job,
                            self._steady_clock,
                            self._deleted_by_users,
                            self._stripped_by_users,
                        )
                self._jobs[uid].see_job(job, gone=version.gone)
                at = NOON + timedelta(seconds=version.at)
                if uid in self._verdicts:
                    self._verdicts[uid].see_job(job, at, gone=version.gone)
            case Pod() as pod:
                self._pods.see(pod, version.revision, gone=version.gone)
                self._see_pod_of_job(pod, gone=version.gone)
            case CronJob() as cronjob:
                self._cronjobs.see_cronjob(cronjob, gone=version.gone)
            case _:
                pass

    def _see_pod_of_job(self, pod: Pod, *, gone: bool) -> None:
        owner, jobs = pod.metadata.controller_ref, self._jobs_of.setdefault(pod.metadata.uid, [])
        if owner is not None and owner.uid not in jobs:
            jobs.append(owner.uid)
        for job in jobs:
            self._see_pod_of(job, pod, gone=gone, adopted=job != jobs[0])

    def _see_pod_of(self, job: str, pod: Pod, *, gone: bool, adopted: bool) -> None:
        if job not in self._jobs:
            return
        self._jobs[job].see_pod(pod, gone=gone, adopted=adopted)
        if job in self._verdicts:
            self._verdicts[job].see_pod(pod, gone=gone, adopted=adopted)
        if not adopted:
            self._memory.see_pod(self._jobs[job].job, pod, gone=gone)
