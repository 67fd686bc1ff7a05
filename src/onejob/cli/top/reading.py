"""Requests for all the data of a snapshot."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from onejob.cli.reports.job_records import may_report, progress_of
from onejob.cli.sources.base import Api, list_all
from onejob.cli.sources.usage import Usage, usage_of_nodes, usage_of_pods
from onejob.cli.top.snapshot import TopSnapshot, take_snapshot
from onejob.clock import Clock
from onejob.objects.meta import JOBS, NODES, PODS
from onejob.planning.progress import JobProgress
from onejob.wire.errors import ApiError, Forbidden
from onejob.wire.kinds import BY_RESOURCE

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources
    from onejob.cli.top.run_usage import RunUsageMeter

T = TypeVar("T")

#: Jobs whose progress is read.
_MAX_ASKED = 20

#: Excludes ended Pods: there may be very many, and they use no resources.
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


def read_snapshot(api: Api, namespace: str, fallback: str, clock: Clock) -> TopSnapshot:
    """Read a snapshot of one namespace, or of all if `namespace` is "".

    Falls back to the namespace `fallback` if listing all of them is forbidden. Data that cannot be
    read otherwise becomes a note. Raises ApiError or CommandError if Pods or Jobs cannot be listed.
    """
    notes: list[str] = []

    def optional(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except ApiError as error:
            notes.append(f"cannot read {what}: {error.message}")
            return otherwise

    try:
        pods = _pods(api, namespace)
    except Forbidden:
        if namespace or not fallback:
            raise
        notes.append(f"showing only namespace {fallback}: no permission to list all namespaces")
        namespace = fallback
        pods = _pods(api, namespace)
    jobs = list_all(api, BY_RESOURCE[JOBS], namespace)
    nodes: list[dict[str, Any]] = optional(
        "nodes", lambda: list_all(api, BY_RESOURCE[NODES], ""), []
    )
    node_usage: Mapping[str, Usage] = optional("usage of nodes", lambda: usage_of_nodes(api), {})
    pod_usage: Mapping[tuple[str, str], Usage] = optional(
        "usage of Pods", lambda: usage_of_pods(api, namespace), {}
    )
    progress = _progress(api, jobs)
    return take_snapshot(clock.now(), nodes, jobs, pods, node_usage, pod_usage, notes, progress)


def _progress(api: Api, jobs: Sequence[dict[str, Any]]) -> dict[tuple[str, str], JobProgress]:
    """Return what active Jobs report. Only some are asked, because each needs a request."""
    found = {}
    asking = [job for job in jobs if job.get("status", {}).get("active") and may_report(job)]
    for job in asking[:_MAX_ASKED]:
        if (reported := progress_of(api, job)) is not None:
            found[job["metadata"]["namespace"], job["metadata"]["name"]] = reported
    return found


def _pods(api: Api, namespace: str) -> list[dict[str, Any]]:
    return list_all(api, BY_RESOURCE[PODS], namespace, fieldSelector=_NOT_ENDED)


def read_runs(where: "Sources", meter: "RunUsageMeter", clock: Clock) -> TopSnapshot:
    """Read a snapshot of the runs that are under way, or of the one chosen with --run."""
    jobs: list[dict[str, Any]] = []
    pods: list[dict[str, Any]] = []
    for api in where.runs():
        if api.ended is None:
            jobs += list_all(api, BY_RESOURCE[JOBS], where.namespace)
            pods += _pods(api, where.namespace)
    measured = meter.measure({pod["metadata"]["name"] for pod in pods})
    usage = {
        (pod["metadata"]["namespace"], pod["metadata"]["name"]): measured[pod["metadata"]["name"]]
        for pod in pods
        if pod["metadata"]["name"] in measured
    }
    notes = [] if jobs else ["no run is under way"]
    return take_snapshot(clock.now(), [], jobs, pods, {}, usage, notes)
