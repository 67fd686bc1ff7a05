"""Items of a run, completed and remaining, read from documents as a container would."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.indexes import parse_indexes

Document = Mapping[str, Any]
PARAMS = "onejob.dev/params"
_INDEXES = "ONEJOB_RERUN_INDEXES"
_INDEX = "batch.kubernetes.io/job-completion-index"
_FINALIZER = "batch.kubernetes.io/job-tracking"


def items_of(job: Document, others: Sequence[Document]) -> list[str] | None:
    """Return the item of each index of a Job, in order; None for a NonIndexed Job."""
    spec = job["spec"]
    if spec.get("completionMode") != "Indexed":
        return None
    name = job["metadata"].get("annotations", {}).get(PARAMS)
    if name is not None:
        found = [one for one in others if _is_config_map(one, name)]
        return _rows(found[0]) if found else []
    environment = spec["template"]["spec"]["containers"][0].get("env", ())
    chosen = [item["value"] for item in environment if item["name"] == _INDEXES]
    return chosen[0].split() if chosen else [str(n) for n in range(spec["completions"])]


def left_of(job: Job, pods: Iterable[Pod], items: Sequence[str]) -> list[str]:
    """Return the items that neither the status nor a Pod records as completed."""
    done = set(parse_indexes(job.status.completed_indexes, len(items)))
    done |= {int(pod.metadata.annotations[_INDEX]) for pod in _uncounted(job, pods)}
    return [item for index, item in enumerate(items) if index not in done]


def completions_left(job: Job, pods: Iterable[Pod]) -> int:
    """Return the missing completions of a NonIndexed Job, uncounted successes deducted."""
    recorded = job.status.uncounted_terminated_pods
    succeeded = job.status.succeeded + (len(recorded.succeeded) if recorded is not None else 0)
    return (job.spec.completions or 1) - succeeded - len(_uncounted(job, pods))


def _uncounted(job: Job, pods: Iterable[Pod]) -> list[Pod]:
    """Return the Pods that succeeded and that the status does not count in any form."""
    recorded = job.status.uncounted_terminated_pods
    known = recorded.succeeded if recorded is not None else ()
    return [
        pod
        for pod in pods
        if (owner := pod.metadata.controller_ref) is not None
        and owner.uid == job.metadata.uid
        and _FINALIZER in pod.metadata.finalizers
        and pod.phase == "Succeeded"
        and pod.metadata.uid not in known
    ]


def _is_config_map(document: Document, name: str) -> bool:
    return bool(document["kind"] == "ConfigMap" and document["metadata"]["name"] == name)


def _rows(config_map: Document) -> list[str]:
    """The value of ITEM in each row."""
    lines = [line for text in config_map["data"].values() for line in text.split("\n")]
    pairs = [dict(_pair(word) for word in shlex.split(line)[1:]) for line in lines]
    return [row["ITEM"] for row in pairs]


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
