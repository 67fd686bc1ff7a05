"""Data of a report about one Job: results, attempts, explanation, and logs of failed Pods."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.cli.reports.lineage import results_of_lineage
from onejob.cli.reports.log_reading import LogQuery, containers_of, whole_lines
from onejob.cli.reports.why import why_lines
from onejob.cli.sources.base import Api, ApiRequest, get
from onejob.cli.sources.pods import pods_of_job
from onejob.cli.sources.selection import Sources
from onejob.diagnosis.results import Result
from onejob.objects.job import is_finished
from onejob.objects.meta import JOBS
from onejob.objects.pod import read_pod
from onejob.planning.job.pod_facts import finish_time
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE

#: Failed Pods whose logs are included, and lines of each container.
_MAX_FAILURES: Final = 20
_LOG_LINES: Final = 30
_LOG_BYTES: Final = 64 * 1024


class Attempt(msgspec.Struct, frozen=True):
    """A Pod on the timeline."""

    pod: str
    phase: str
    started: datetime
    #: None while it runs.
    ended: datetime | None


class FailedPod(msgspec.Struct, frozen=True):
    pod: str
    log: Sequence[str]


class JobReport(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    #: Explanation as by `onejob why`; its first line is the state.
    why: Sequence[str]
    succeeded: bool
    finished: bool
    results: Sequence[Result]
    attempts: Sequence[Attempt]
    failures: Sequence[FailedPod]
    #: Number of failed Pods beyond those in `failures`.
    more_failures: int


def report_of_job(where: Sources, api: Api, namespace: str, name: str, now: datetime) -> JobReport:
    """Collect the data of a report. Raises NotFound."""
    job = get(api, BY_RESOURCE[JOBS], namespace, name)
    pods = pods_of_job(api, job)
    failed = [pod for pod in pods if pod.get("status", {}).get("phase") == "Failed"]
    conditions = job.get("status", {}).get("conditions", ())
    return JobReport(
        name=name,
        namespace=job["metadata"]["namespace"],
        why=why_lines(api, JOBS, job, now),
        succeeded=any(c["type"] == "Complete" and c["status"] == "True" for c in conditions),
        finished=is_finished(job),
        results=results_of_lineage(where, api, job),
        attempts=sorted(filter(None, map(_attempt, pods)), key=lambda attempt: attempt.started),
        failures=[_failed_pod(api, pod) for pod in failed[:_MAX_FAILURES]],
        more_failures=max(0, len(failed) - _MAX_FAILURES),
    )


def _attempt(document: dict[str, Any]) -> Attempt | None:
    pod = read_pod(msgspec.json.encode(document))
    if pod.status.start_time is None:
        return None
    ended = finish_time(pod) if pod.phase in ("Succeeded", "Failed") else None
    return Attempt(pod.metadata.name, pod.phase, pod.status.start_time, ended)


def _failed_pod(api: Api, pod: dict[str, Any]) -> FailedPod:
    lines: list[str] = []
    query = LogQuery(tail_lines=_LOG_LINES, limit_bytes=_LOG_BYTES)
    for reading in containers_of(pod, "", all_of_them=True):
        ask = ApiRequest("GET", reading.path, query.parameters(reading.container))
        try:
            lines += [line.rstrip("\n") for line in whole_lines(api.stream(ask))][-_LOG_LINES:]
        except ApiError:
            continue  # The container never started, so there is no log.
    return FailedPod(pod["metadata"]["name"], lines)
