"""Targets of mirrored Jobs: the Jobs that use each target, and its state. Pure functions."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from onejob.client.inline_kubeconfig import read_inline_kubeconfig
from onejob.client.kubeconfig import InvalidKubeconfig
from onejob.objects.job import is_finished, read_job
from onejob.planning.mirror.annotations import record_of
from onejob.planning.mirror.names import KUBECONFIG_KEY, MANAGER, TARGET
from onejob.planning.mirror.status import ready_condition

Document: TypeAlias = dict[str, Any]


def is_mirrored(job: Document) -> bool:
    return bool(job["spec"].get("managedBy") == MANAGER)


def target_of(job: Document) -> str:
    """Return the target of the Job's copy, or the one it is to be created at."""
    record = record_of(read_job(msgspec.json.encode(job)))
    if record is not None:
        return record.target
    return str(job["metadata"].get("annotations", {}).get(TARGET, ""))


def describe_targets(secrets: Iterable[Document], jobs: Iterable[Document]) -> list[Document]:
    """Return one summary per target.

    `secrets` are targets, `jobs` are mirrored; a target serves the Jobs of its namespace.
    """
    by_target: dict[tuple[str, str], list[Document]] = {}
    for job in jobs:
        place = (job["metadata"]["namespace"], target_of(job))
        by_target.setdefault(place, []).append(job)
    return [
        _target(secret, by_target.get((_namespace(secret), secret["metadata"]["name"]), []))
        for secret in secrets
    ]


def _target(secret: Document, jobs: Sequence[Document]) -> Document:
    """Return the summary of a target."""
    server, problem = _server(secret)
    unfinished = [job for job in jobs if not is_finished(job)]
    conditions = [ready_condition(job.get("status", {})) or {} for job in unfinished or jobs]
    troubled = [one for one in conditions if one.get("status") == "False"]
    working = any(one.get("status") == "True" for one in conditions)
    state = troubled[0]["reason"] if troubled else "Ready" if working else "Unused"
    return {
        "name": secret["metadata"]["name"],
        "namespace": _namespace(secret),
        "server": server,
        "jobs": len(jobs),
        "unfinished": len(unfinished),
        "state": "InvalidKubeconfig" if problem else state,
        "message": problem or (troubled[0]["message"] if troubled else ""),
    }


def _namespace(secret: Document) -> str:
    """Return the namespace of a Secret."""
    return str(secret["metadata"]["namespace"])


def _server(secret: Document) -> tuple[str, str]:
    """Return the server in a target's kubeconfig and "", or "<none>" and the problem."""
    try:
        text = base64.b64decode(secret.get("data", {}).get(KUBECONFIG_KEY, ""))
        return read_inline_kubeconfig(text, "its kubeconfig").server, ""
    except InvalidKubeconfig as error:
        return "<none>", str(error)
