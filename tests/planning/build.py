"""Builders of Jobs, Pods and plans for planner tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.counting import JobPods
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import (
    Accounting,
    Observed,
    Plan,
    PodOutcomes,
    RemovalOutcomes,
    Settlement,
)
from onejob.planning.job.planner import account, plan_job, settle
from onejob.planning.names import INDEX_ANNOTATION, TRACKING

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB_UID = "job-uid"
LABELS = {"batch.kubernetes.io/controller-uid": JOB_UID}
OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "demo",
    "uid": JOB_UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
#: Phases of Pods by letter.
PHASES = {"P": "Pending", "R": "Running", "S": "Succeeded", "F": "Failed", "U": "Unknown"}


def job_document(
    *,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    template: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a Job as the server would store it.

    A None value such as `completions=None` omits a field.
    """
    fields: dict[str, Any] = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
        "selector": {"matchLabels": LABELS},
        "template": template
        or {
            "metadata": {"labels": LABELS},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        },
    }
    fields.update(spec)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "demo",
            "namespace": "default",
            "uid": JOB_UID,
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": stamp(NOON),
            **(metadata or {}),
        },
        "spec": {name: value for name, value in fields.items() if value is not None},
        "status": status or {},
    }


def a_job(**fields: Any) -> Job:
    return read_job(msgspec.json.encode(job_document(**fields)))


def an_indexed_job(**fields: Any) -> Job:
    return a_job(**{"completionMode": "Indexed", **fields})


def a_pod(
    name: str = "pod",
    phase: str = "R",
    *,
    index: int | str | None = None,
    tracked: bool = True,
    deleting: bool = False,
    ended_at: datetime | None = None,
    exit_code: int | None = None,
    annotations: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """Return a Pod; `phase` is a letter of PHASES; Running Pods are ready."""
    notes = dict(annotations or {})
    if index is not None:
        notes[INDEX_ANNOTATION] = str(index)
    full_status: dict[str, Any] = {"phase": PHASES[phase]}
    if phase == "R":
        full_status["conditions"] = [{"type": "Ready", "status": "True"}]
    if ended_at is not None or exit_code is not None:
        terminated = {"exitCode": exit_code or 0, "finishedAt": stamp(ended_at or NOON)}
        full_status["containerStatuses"] = [{"name": "c", "state": {"terminated": terminated}}]
    full_status.update(status or {})
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "labels": LABELS,
        "annotations": notes,
        "creationTimestamp": stamp(NOON),
        "ownerReferences": [OWNER],
        "finalizers": [TRACKING] if tracked else [],
    }
    if deleting:
        meta["deletionTimestamp"] = stamp(NOON)
    meta.update(metadata or {})
    document = {"metadata": meta, "spec": {"nodeName": "n", **spec}, "status": full_status}
    return read_pod(msgspec.json.encode(document))


def some_pods(phases: str, **fields: Any) -> list[Pod]:
    """Return Pods, e.g. `"R S F"`: pod-0 runs, pod-1 succeeded, pod-2 failed long ago."""
    return [
        a_pod(f"pod-{number}", phase, **{"ended_at": long_ago(phase), **fields})
        for number, phase in enumerate(phases.split())
    ]


def indexed_pods(text: str, **fields: Any) -> list[Pod]:
    """Return Pods, e.g. `"0:R 1:S"`: one Pod of each index, in that phase."""
    pods = []
    for number, piece in enumerate(text.split()):
        index, _, phase = piece.partition(":")
        ended_at = long_ago(phase)
        pods.append(a_pod(f"pod-{number}", phase, index=index, ended_at=ended_at, **fields))
    return pods


def long_ago(phase: str) -> datetime | None:
    return NOON - timedelta(hours=1) if phase in "SF" else None


def plan(
    job: Job,
    pods: list[Pod],
    *,
    observed: Observed | None = None,
    now: datetime = NOON,
    settings: Settings | None = None,
) -> Plan:
    return plan_job(job, JobPods(pods), observed or Observed(), now, settings or Settings())


def carried_out(planned: Plan) -> Accounting:
    """Return the accounting after every Pod change of the plan succeeded."""
    outcomes = PodOutcomes(
        deleted=frozenset(deletion.uid for deletion in planned.deletions),
        created=len(planned.creations),
    )
    return account(planned, outcomes)


def settled(accounting: Accounting) -> Settlement:
    """Return the settlement after every finalizer was removed."""
    removed = frozenset(removal.uid for removal in accounting.removals)
    return settle(accounting, RemovalOutcomes(removed))


def sync(
    job: Job,
    pods: list[Pod],
    *,
    observed: Observed | None = None,
    now: datetime = NOON,
    settings: Settings | None = None,
) -> tuple[Plan, Accounting, Settlement]:
    """Run all three stages without failures."""
    planned = plan(job, pods, observed=observed, now=now, settings=settings)
    accounting = carried_out(planned)
    return planned, accounting, settled(accounting)


def stamp(moment: datetime) -> str:
    text: str = msgspec.to_builtins(moment)
    return text
