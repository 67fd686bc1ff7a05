"""Data collection and text layout of `onejob why`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from onejob.cli.reports.job_records import deleted_failures, progress_lines
from onejob.cli.sources.base import Api, ApiRequest, list_all, path_of
from onejob.cli.sources.pods import owners, pods_of_job
from onejob.clock import local_zone
from onejob.diagnosis.explanation import Document, Explanation
from onejob.objects.job import is_finished
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, NODES, PODS, WORKFLOWS
from onejob.planning.pod.placement import NodeView
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE

#: Pods measured per Job; `onejob top` shows them all.
_PODS_MEASURED: Final = 5


def why_lines(api: Api, resource: str, document: Document, now: datetime) -> list[str]:
    """Return the explanation. `resource` is a key of EXPLAINED."""
    answer = EXPLAINED[resource](api, document, now)
    lines = [answer.state]
    for title, texts in (
        ("Why", answer.cause),
        ("Evidence", answer.evidence),
        ("Next", answer.next),
    ):
        if texts:
            lines += ["", f"{title}:", *(f"  - {text}" for text in texts)]
        if title == "Evidence" and answer.shown_failure is not None:
            last = _last_log_lines(api, document["metadata"]["namespace"], *answer.shown_failure)
            lines += [f"    | {line}" for line in last]
    return lines


def _job(api: Api, job: Document, now: datetime) -> Explanation:
    from onejob.diagnosis.jobs import explain_job

    pods = pods_of_job(api, job)
    events = [] if api.ended is not None else _events_about(api, job)
    answer = explain_job(job, pods, now, events=events, node=_node(api, pods), ended=api.ended)
    records = [] if is_finished(job) else progress_lines(api, job)
    records += deleted_failures(api, job, now)
    return _with_evidence(answer, [*_usage_of_pods(api, pods), *records])


def _events_about(api: Api, document: Document) -> list[Document]:
    """Return the Events about an object; none if the user may not read Events."""
    metadata = document["metadata"]
    fields = f"involvedObject.uid={metadata['uid']}"
    try:
        return list_all(api, BY_RESOURCE[EVENTS], metadata["namespace"], fieldSelector=fields)
    except ApiError:
        return []


def _pod(api: Api, pod: Document, now: datetime) -> Explanation:
    from onejob.diagnosis.pods import explain_pod

    answer = explain_pod(pod, now, node=_node(api, [pod]), ended=api.ended)
    return _with_evidence(answer, usage_lines(api, pod))


def usage_lines(api: Api, pod: Document) -> list[str]:
    """Return lines on the usage of a Pod's containers; [] if it is not running or not measured."""
    from onejob.cli.reports.usage import container_usage_texts
    from onejob.cli.sources.usage import usage_of_pod

    if api.ended is not None or pod.get("status", {}).get("phase") != "Running":
        return []
    metadata = pod["metadata"]
    return container_usage_texts(pod, usage_of_pod(api, metadata["namespace"], metadata["name"]))


def _usage_of_pods(api: Api, pods: list[Document]) -> list[str]:
    from onejob.cli.reports.usage import pod_usage_text
    from onejob.cli.sources.usage import usage_of_pod

    if api.ended is not None:
        return []
    running = [pod["metadata"] for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    measured = (
        (pod["name"], usage_of_pod(api, pod["namespace"], pod["name"]))
        for pod in running[:_PODS_MEASURED]
    )
    return [pod_usage_text(name, usage) for name, usage in measured if usage]


def _with_evidence(answer: Explanation, lines: list[str]) -> Explanation:
    return replace(answer, evidence=(*answer.evidence, *lines)) if lines else answer


def _cronjob(api: Api, cronjob: Document, now: datetime) -> Explanation:
    from onejob.diagnosis.cronjobs import explain_cronjob

    metadata = cronjob["metadata"]
    jobs = list_all(api, BY_RESOURCE[JOBS], metadata["namespace"])
    own = [job for job in jobs if metadata["uid"] in owners(job)]
    events = [] if api.ended is not None else _events_about(api, cronjob)
    return explain_cronjob(cronjob, own, now, local_zone=local_zone(), events=events)


def _workflow(api: Api, workflow: Document, now: datetime) -> Explanation:
    from onejob.diagnosis.workflows import explain_workflow, tasks_to_explain

    metadata = workflow["metadata"]
    jobs = list_all(api, BY_RESOURCE[JOBS], metadata["namespace"])
    own = {job["metadata"]["name"]: job for job in jobs if metadata["uid"] in owners(job)}
    explained = {
        name: _job(api, own[name], now) for name in tasks_to_explain(workflow) if name in own
    }
    return explain_workflow(workflow, [*own.values()], explained, now, ended=api.ended)


EXPLAINED: Final[dict[str, Callable[[Api, Document, datetime], Explanation]]] = {
    JOBS: _job,
    PODS: _pod,
    CRONJOBS: _cronjob,
    WORKFLOWS: _workflow,
}


def _node(api: Api, pods: list[dict[str, Any]]) -> NodeView | None:
    """Return the only node; requested only if some Pod has no node yet. None with several nodes."""
    from onejob.diagnosis.pod_waits import read_node

    if all(pod["spec"].get("nodeName") for pod in pods):
        return None
    nodes = list_all(api, BY_RESOURCE[NODES], "")
    return read_node(nodes[0]) if len(nodes) == 1 else None


def _last_log_lines(api: Api, namespace: str, pod: str, container: str) -> list[str]:
    path = path_of(BY_RESOURCE[PODS], namespace, pod, "log")
    try:
        reply = api.send(ApiRequest("GET", path, {"container": container, "tailLines": "5"}))
    except ApiError:
        # Logs may be deleted before their Pod; the rest of the explanation is valid without them.
        return []
    return reply.body.decode("utf-8", "replace").splitlines()
