"""Human-readable log of one world: faults, user actions and every stored version, one line each."""

from collections.abc import Sequence

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.objects.pod import Pod
from sim.history import Subject, Version
from sim.world import Verdict


def story(verdict: Verdict) -> Sequence[tuple[float, str]]:
    """Return the lines in chronological order; at equal times, stored versions come last."""
    stored = [(version.at, _line(version)) for version in verdict.versions]
    return sorted([*verdict.trace, *stored], key=lambda line: line[0])


def _line(version: Version) -> str:
    what = "gone" if version.gone else _state(version.subject)
    metadata = version.subject.metadata
    marks = [
        *(["deleting"] if metadata.deleting else []),
        *(f"held by {name}" for name in metadata.finalizers),
    ]
    return f"  {version.revision:6} {version.key} {what} {', '.join(marks)}"


def _state(subject: Subject) -> str:
    match subject:
        case Pod() as pod:
            index = pod.metadata.annotations.get("batch.kubernetes.io/job-completion-index", "")
            place = "bound" if pod.spec.node_name else "unbound"
            return f"{index} {pod.metadata.uid[:8]} {place} {pod.phase}"
        case Job() as job:
            return f"{_spec(job)} {_status(job)}"
        case CronJob() as cronjob:
            return f"last {cronjob.status.last_schedule_time}, {len(cronjob.status.active)} active"
        case _:
            return ""


def _spec(job: Job) -> str:
    spec = job.spec
    return (
        f"{spec.completions}/{spec.parallelism} {spec.completion_mode}"
        f"{' suspended' if spec.suspend else ''}"
    )


def _status(job: Job) -> str:
    status, conditions = job.status, [c.type for c in job.status.conditions if c.status == "True"]
    uncounted = status.uncounted_terminated_pods
    lists = (
        ""
        if uncounted is None
        else f" uncounted {_short(uncounted.succeeded)}{_short(uncounted.failed)}"
    )
    return (
        f"active {status.active} ok {status.succeeded} [{status.completed_indexes}]"
        f" failed {status.failed}{lists} {' '.join(conditions)}"
    )


def _short(uids: Sequence[str]) -> str:
    return "+" + ",".join(uid[:8] for uid in uids)
