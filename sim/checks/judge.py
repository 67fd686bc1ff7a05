"""All checks on a whole history."""

from dataclasses import dataclass, field

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.objects.pod import Pod
from sim.checks.cronjobs import CronJobCheck
from sim.checks.jobs import JobCheck
from sim.checks.pods import PodCheck
from sim.checks.problems import Problems
from sim.checks.queue import QueueCheck
from sim.checks.ran import Machinery
from sim.history import History, Version

SURVIVAL = "acknowledged writes survive"


@dataclass
class Judge:
    #: How many Jobs may run at once, if there is a limit.
    job_limit: int | None = None
    problems: Problems = field(default_factory=Problems)

    def __post_init__(self) -> None:
        self._pods = PodCheck(self.problems)
        self._cronjobs = CronJobCheck(self.problems)
        self._queue = QueueCheck(self.problems, self.job_limit)
        self._jobs: dict[str, JobCheck] = {}
        #: By Pod, the Job that it was made for.
        self._job_of: dict[str, str] = {}

    def judge(self, history: History, machine: Machinery | None = None) -> None:
        """`machine` is what ran the Pods, if that is to be compared."""
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
                self._cronjobs.see_job(job, gone=version.gone)
                self._queue.see_job(job, gone=version.gone)
                uid = job.metadata.uid
                if uid not in self._jobs:
                    self._jobs[uid] = JobCheck(self.problems, job)
                self._jobs[uid].see_job(job, gone=version.gone)
            case Pod() as pod:
                self._pods.see(pod, version.revision, gone=version.gone)
                self._see_pod_of_job(pod, gone=version.gone)
            case CronJob() as cronjob:
                self._cronjobs.see_cronjob(cronjob, gone=version.gone)
            case _:
                pass

    def _see_pod_of_job(self, pod: Pod, *, gone: bool) -> None:
        owner, uid = pod.metadata.controller_ref, pod.metadata.uid
        if owner is not None:
            self._job_of.setdefault(uid, owner.uid)
        job = self._jobs.get(self._job_of.get(uid, ""))
        if job is not None:
            job.see_pod(pod, gone=gone)
