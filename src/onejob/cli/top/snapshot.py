"""Snapshot of nodes, Jobs and Pods with their resource usage, built from documents. Pure.

Rows are sorted by `in_order`; `onejob top -o json` prints the snapshot as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import Struct

from onejob.cli.sources.usage import Usage, total
from onejob.diagnosis.job_states import job_state
from onejob.objects.job import is_finished
from onejob.planning.progress import JobProgress
from onejob.wire.quantity import InvalidQuantity, parse_quantity

Document = dict[str, Any]


class NodeRow(Struct, frozen=True, rename="camel"):
    name: str
    cpu_capacity_millicores: int
    memory_capacity_bytes: int
    pods: int
    pods_capacity: int
    usage: Usage | None = None


class ObjectRow(Struct, frozen=True, rename="camel", kw_only=True):
    """Row of a Job or a Pod."""

    namespace: str
    name: str
    state: str
    age_seconds: float
    #: None if it is not measured.
    usage: Usage | None = None


class JobRow(ObjectRow, frozen=True, rename="camel", kw_only=True):
    #: Pods that exist and have not ended.
    active: int
    succeeded: int
    failed: int
    #: None for a work queue, where one success is enough.
    completions: int | None
    #: What its containers report; None if they report nothing.
    progress: JobProgress | None = None


class PodUsageRow(ObjectRow, frozen=True, rename="camel", kw_only=True):
    job: str
    restarts: int


class TopSnapshot(Struct, frozen=True):
    at: datetime
    nodes: Sequence[NodeRow] = ()
    jobs: Sequence[JobRow] = ()
    pods: Sequence[PodUsageRow] = ()
    #: Messages on data that could not be read.
    notes: Sequence[str] = ()


def take_snapshot(
    now: datetime,
    nodes: Iterable[Document],
    jobs: Iterable[Document],
    pods: Iterable[Document],
    node_usage: Mapping[str, Usage],
    pod_usage: Mapping[tuple[str, str], Usage],
    notes: Sequence[str] = (),
    progress: Mapping[tuple[str, str], JobProgress] | None = None,
) -> TopSnapshot:
    """Return a snapshot of the nodes and of all Jobs and Pods that have not ended."""
    pods = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    pod_lines = [_pod_line(pod, pod_usage, now) for pod in pods]
    used: dict[tuple[str, str], list[Usage]] = {}
    for line in pod_lines:
        if line.usage is not None:
            used.setdefault((line.namespace, line.job), []).append(line.usage)
    return TopSnapshot(
        now,
        [_node_line(node, pods, node_usage) for node in nodes],
        [_job_line(job, used, now, progress or {}) for job in jobs if not is_finished(job)],
        pod_lines,
        notes,
    )


L = TypeVar("L", bound=ObjectRow)


def in_order(lines: Sequence[L], key: str) -> list[L]:
    """Sort by cpu, memory or age in descending order; or by namespace and name."""
    ordered = sorted(lines, key=lambda line: (line.namespace, line.name))
    if key != "name":
        ordered.sort(key=_AMOUNTS[key], reverse=True)
    return ordered


_AMOUNTS: Final[Mapping[str, Callable[[ObjectRow], float]]] = {
    "cpu": lambda line: line.usage.cpu_millicores if line.usage else -1,
    "memory": lambda line: line.usage.memory_bytes if line.usage else -1,
    "age": lambda line: line.age_seconds,
}


def _job_line(
    job: Document,
    used: Mapping[tuple[str, str], list[Usage]],
    now: datetime,
    progress: Mapping[tuple[str, str], JobProgress],
) -> JobRow:
    metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
    place = metadata["namespace"], metadata["name"]
    active = status.get("active", 0)
    return JobRow(
        namespace=place[0],
        name=place[1],
        state=job_state(job),
        age_seconds=_age(metadata, now),
        usage=total(used[place]) if place in used else None,
        active=active,
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        completions=spec.get("completions"),
        progress=progress.get(place),
    )


def _pod_line(pod: Document, usage: Mapping[tuple[str, str], Usage], now: datetime) -> PodUsageRow:
    metadata, status = pod["metadata"], pod["status"]
    owners = metadata.get("ownerReferences", ())
    restarts = sum(one.get("restartCount", 0) for one in status.get("containerStatuses", ()))
    return PodUsageRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        state="Terminating" if "deletionTimestamp" in metadata else status.get("phase", ""),
        age_seconds=_age(metadata, now),
        usage=usage.get((metadata["namespace"], metadata["name"])),
        job=next((owner["name"] for owner in owners if owner["kind"] == "Job"), ""),
        restarts=restarts,
    )


def _node_line(node: Document, pods: Iterable[Document], usage: Mapping[str, Usage]) -> NodeRow:
    name = node["metadata"]["name"]
    capacity = node.get("status", {}).get("capacity", {})
    return NodeRow(
        name,
        _amount(capacity, "cpu", milli=True),
        _amount(capacity, "memory"),
        sum(pod["spec"].get("nodeName") == name for pod in pods),
        _amount(capacity, "pods"),
        usage.get(name),
    )


def _amount(capacity: Mapping[str, str], name: str, *, milli: bool = False) -> int:
    try:
        quantity = parse_quantity(capacity.get(name, "0"))
    except InvalidQuantity:
        return 0
    return quantity.milli if milli else quantity.whole


def _age(metadata: Document, now: datetime) -> float:
    """Return the age in seconds; never negative, because clocks of servers differ."""
    created: datetime = datetime.fromisoformat(metadata["creationTimestamp"])
    return max(0.0, (now - created).total_seconds())
