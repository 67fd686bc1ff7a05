"""Rerun of a finished Job: all of it, or only the part that did not succeed.

Pure: documents in, documents out.
"""

import re
import shlex
from collections.abc import Collection, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any, Final

from onejob.planning.bad_input import BadInput
from onejob.planning.job.indexes import IndexSet, parse_indexes
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION, put_rows, rows_of
from onejob.planning.names import (
    AFTER_ANNOTATION,
    AFTER_HELD_ANNOTATION,
    AFTER_STATE_ANNOTATION,
    INDEX_ANNOTATION,
    INDEX_VARIABLE,
    LAST_APPLIED,
    TRACKING_NAMES,
)
from onejob.planning.queue.membership import QUEUED_ANNOTATION

#: Job annotations: name and UID of the Job that this one repeats.
RERUN_OF: Final = "onejob.dev/rerun-of"
RERUN_OF_UID: Final = "onejob.dev/rerun-of-uid"
#: Job annotation: for each index of this Job, in order, the index in the first Job of its lineage.
RERUN_INDEXES: Final = "onejob.dev/rerun-indexes"
#: Label on every rerun of a Job: the name of the original Job.
LINEAGE: Final = "onejob.dev/lineage"

_OWN_INDEX: Final = "ONEJOB_RERUN_INDEX"
_INDEXES: Final = "ONEJOB_RERUN_INDEXES"
#: Labels that the server adds to a Job's template, and annotations set by other components.
_SERVER_LABELS: Final = (
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)
_FOREIGN_ANNOTATIONS: Final = (
    *TRACKING_NAMES,
    QUEUED_ANNOTATION,
    # A rerun starts at once: what the Job waited for has ended, and may be gone.
    AFTER_ANNOTATION,
    AFTER_STATE_ANNOTATION,
    AFTER_HELD_ANNOTATION,
    LAST_APPLIED,
)
_SUFFIX: Final = re.compile(r"-rerun-[0-9]+$")
_MAX_NAME_LENGTH: Final = 63
#: A Job may have up to 2^31 completions; listing more than this many individually is refused.
_MAX_INDEXES: Final = 100_000

Document = dict[str, Any]


def rerun(
    job: Mapping[str, Any],
    params: Mapping[str, Any] | None,
    *,
    taken: Collection[str] | None = (),
    failed_only: bool = False,
    from_index: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[Document]:
    """Return the objects to create, in order: the ConfigMap of parameters, if any, and the Job.

    Returns an empty list if `failed_only` is set and everything has succeeded.

    Args:
        params: ConfigMap of the old Job's parameters.
        taken: Names of existing Jobs; None keeps the old name.
        from_index: First index to run, numbered as in the first Job of the lineage; None for all.
        settings: New values of parameters or environment variables.

    Raises:
        BadInput: if the Job cannot be rerun in this way.
    """
    fresh = _fresh(job, taken)
    rows = None if params is None else _rows(job, params)
    if settings and rows is not None:
        rows = [_changed_row(row, settings) for row in rows]
    elif settings:
        _set_variables(fresh, settings)
    if failed_only or from_index is not None:
        indexes = _unfinished(job) if from_index is None else _indexes_from(job, from_index)
        if indexes is None:
            spec = fresh["spec"]
            spec["completions"] = spec.get("completions", 1) - _succeeded(job)
            if spec["completions"] <= 0:
                return []
        elif not indexes:
            return []
        else:
            _note_origin(fresh, job, indexes)
            if rows is not None:
                rows = [rows[index] for index in indexes if index < len(rows)]
            else:
                _keep_indexes(fresh)
    if rows is None:
        return [fresh]
    origins = origins_of(fresh)
    numbers = None if origins is None else [*islice(origins, _MAX_INDEXES)]
    return [put_rows(fresh, rows, numbers), fresh]


def origins_of(job: Mapping[str, Any]) -> IndexSet | None:
    """Return, for each index of a partial rerun in order, that of the first Job; else None."""
    noted = job["metadata"].get("annotations", {}).get(RERUN_INDEXES)
    return None if noted is None else parse_indexes(noted, 2**31)


def repeated_uid(job: Mapping[str, Any]) -> str:
    """Return the uid of the Job that this one reruns in part; "" if it is no partial rerun."""
    annotations = job["metadata"].get("annotations", {})
    text: str = annotations.get(RERUN_OF_UID, "") if RERUN_INDEXES in annotations else ""
    return text


def _rows(job: Mapping[str, Any], params: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows in `params`.

    Raises `BadInput` if they do not fit the Job: the annotation that names the ConfigMap may have
    been written by a user.
    """
    containers = job["spec"]["template"]["spec"]["containers"]
    try:
        rows = rows_of(params)
    except ValueError:
        rows = []
    if rows and len(containers) == 1 and containers[0].get("command") and "env" in containers[0]:
        return rows
    raise BadInput(
        f"its annotation {PARAMS_ANNOTATION} refers to a ConfigMap without its parameter rows",
        "remove the annotation to run it without parameters",
    )


def _fresh(job: Mapping[str, Any], taken: Collection[str] | None) -> Document:
    """Return the Job as a user would have submitted it, without fields set by the server."""
    old = job["metadata"]
    first = old.get("labels", {}).get(LINEAGE) or old["name"]
    spec = deepcopy(job["spec"])
    # A rerun is meant to run; if a queue applies, it suspends the Job again.
    spec.pop("suspend", None)
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
    metadata = spec["template"].get("metadata", {})
    labels = metadata.get("labels", {})
    for label in _SERVER_LABELS:
        labels.pop(label, None)
    for field in ("labels", "creationTimestamp"):
        if not metadata.get(field):
            metadata.pop(field, None)
    if not metadata:
        spec["template"].pop("metadata", None)
    kept = {
        name: text
        for name, text in old.get("annotations", {}).items()
        if name not in _FOREIGN_ANNOTATIONS
    }
    own_labels = {
        name: text for name, text in old.get("labels", {}).items() if name not in _SERVER_LABELS
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": old["name"] if taken is None else _free_name(old["name"], taken),
            "labels": {**own_labels, LINEAGE: first},
            "annotations": {**kept, RERUN_OF: old["name"], RERUN_OF_UID: old.get("uid", "")},
        },
        "spec": spec,
    }


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return an unused name for the rerun of a Job."""
    base = _SUFFIX.sub("", name)
    number = 1
    while True:
        suffix = f"-rerun-{number}"
        fresh = base[: _MAX_NAME_LENGTH - len(suffix)].rstrip("-.") + suffix
        if fresh not in taken:
            return fresh
        number += 1


def _unfinished(job: Mapping[str, Any]) -> list[int] | None:
    """Return the indexes that did not succeed; None for a NonIndexed Job. Raises `BadInput`."""
    spec = job["spec"]
    if spec.get("completionMode") != "Indexed":
        return None
    completions = spec.get("completions") or 0
    if completions > _MAX_INDEXES:
        raise _too_many(job, completions)
    done = parse_indexes(job.get("status", {}).get("completedIndexes", ""), completions)
    return [index for gap in done.gaps(completions) for index in gap]


def _indexes_from(job: Mapping[str, Any], first: int) -> list[int]:
    """Return the indexes from `first`, which counts as in the first Job of the lineage.

    Raises `BadInput`.
    """
    spec = job["spec"]
    if spec.get("completionMode") != "Indexed":
        raise BadInput(f"job {job['metadata']['name']} has no indexes", "rerun the whole Job")
    completions = spec.get("completions") or 0
    origins = origins_of(job)
    if origins is None:
        if completions - first > _MAX_INDEXES:
            raise _too_many(job, completions - first)
        found = [*range(first, completions)]
    else:
        if completions > _MAX_INDEXES:
            raise _too_many(job, completions)
        found = [own for own, origin in enumerate(islice(origins, completions)) if origin >= first]
    if not found:
        raise BadInput(f"job {job['metadata']['name']} has no index {first} or above")
    return found


def _too_many(job: Mapping[str, Any], count: int) -> BadInput:
    return BadInput(
        f"job {job['metadata']['name']} has {count:,} indexes; only up to "
        f"{_MAX_INDEXES:,} remaining indexes can be selected",
        "rerun the whole Job",
    )


def _succeeded(job: Mapping[str, Any]) -> int:
    """Return the number of succeeded Pods, including those not counted yet."""
    status = job.get("status", {})
    uncounted = status.get("uncountedTerminatedPods", {}).get("succeeded", ())
    return int(status.get("succeeded", 0)) + len(uncounted)


def _note_origin(fresh: Document, job: Mapping[str, Any], indexes: list[int]) -> None:
    """Record the indexes of the first Job in the lineage; the old Job may itself be a rerun."""
    annotations = fresh["metadata"]["annotations"]
    before = annotations.get(RERUN_INDEXES)
    if before is not None:
        origins = list(islice(parse_indexes(before, 2**31), _MAX_INDEXES))
        indexes = [origins[index] for index in indexes if index < len(origins)]
    annotations[RERUN_INDEXES] = str(IndexSet((index, index) for index in indexes))
    fresh["spec"]["completions"] = len(indexes)


def _keep_indexes(fresh: Document) -> None:
    """Expose the original index to each Pod; the Job controller numbers its Pods from 0."""
    indexes = parse_indexes(fresh["metadata"]["annotations"][RERUN_INDEXES], 2**31)
    for container in fresh["spec"]["template"]["spec"]["containers"]:
        variables = {item["name"]: item for item in container.get("env", ())}
        if _INDEXES not in variables:
            _wrap_command(container)
        field = f"metadata.annotations['{INDEX_ANNOTATION}']"
        variables[_OWN_INDEX] = {
            "name": _OWN_INDEX,
            "valueFrom": {"fieldRef": {"fieldPath": field}},
        }
        variables[_INDEXES] = {"name": _INDEXES, "value": " ".join(map(str, indexes))}
        variables.pop(INDEX_VARIABLE, None)
        container["env"] = list(variables.values())


def _wrap_command(container: Document) -> None:
    """Have the container's command map its index, in place. Raises BadInput if it has no
    command."""
    if not container.get("command"):
        raise BadInput(
            f"container {container['name']} has no command, so its indexes cannot be mapped",
            "rerun the whole Job, without --failed-only",
        )
    words = [*container["command"], *container.pop("args", ())]
    container["command"] = [
        "sh",
        "-c",
        f'i=${_OWN_INDEX}; for {INDEX_VARIABLE} in ${_INDEXES}; do [ "$i" = 0 ] && break; '
        f"i=$((i - 1)); done; export {INDEX_VARIABLE}; unset {_OWN_INDEX} {_INDEXES} i; "
        f"exec {shlex.join(words)}",
    ]


def _changed_row(row: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return a row with new values. Raises BadInput for an unknown parameter."""
    if unknown := [name for name in settings if name not in row]:
        raise BadInput(
            f"--set {unknown[0]}: unknown parameter", f"known parameters: {', '.join(row)}"
        )
    return {**row, **settings}


def _set_variables(fresh: Document, settings: Mapping[str, str]) -> None:
    for container in fresh["spec"]["template"]["spec"]["containers"]:
        kept = [item for item in container.get("env", ()) if item["name"] not in settings]
        changed = ({"name": name, "value": value} for name, value in settings.items())
        container["env"] = [*kept, *changed]
