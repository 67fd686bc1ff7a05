"""A Job made from one that has run: all of it again, or what did not succeed.

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
    INDEX_ANNOTATION,
    INDEX_VARIABLE,
    LAST_APPLIED,
    TRACKING_NAMES,
)
from onejob.planning.queue.standing import QUEUED_ANNOTATION

#: On a Job: the name of the one that it repeats, and its uid.
RERUN_OF: Final = "onejob.dev/rerun-of"
RERUN_OF_UID: Final = "onejob.dev/rerun-of-uid"
#: On a Job: which indexes of the first Job of its lineage its own indexes stand for, in order.
RERUN_INDEXES: Final = "onejob.dev/rerun-indexes"
#: A label of all that repeats one Job: the name of that Job.
LINEAGE: Final = "onejob.dev/lineage"

_OWN_INDEX: Final = "ONEJOB_RERUN_INDEX"
_INDEXES: Final = "ONEJOB_RERUN_INDEXES"
#: What the server adds to a Job's template, and what others leave on a Job.
_SERVER_LABELS: Final = (
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)
_FOREIGN_ANNOTATIONS: Final = (
    *TRACKING_NAMES,
    QUEUED_ANNOTATION,
    LAST_APPLIED,
)
_SUFFIX: Final = re.compile(r"-rerun-[0-9]+$")
_LONGEST_NAME: Final = 63
#: A Job may say that it has two thousand million: nobody names these one by one.
_MOST_INDEXES: Final = 100_000

Document = dict[str, Any]


def rerun(
    job: Mapping[str, Any],
    params: Mapping[str, Any] | None,
    *,
    taken: Collection[str] | None = (),
    failed_only: bool = False,
    settings: Mapping[str, str] | None = None,
) -> list[Document]:
    """What to create, in order: the ConfigMap of its parameters, if it has any, and the Job.
    Nothing if `failed_only` and nothing is left to do.

    `params` is the ConfigMap of the old Job's parameters. `taken` are names of Jobs that exist;
    None keeps the name. `settings` are parameters or variables that shall have other values.
    """
    fresh = _fresh(job, taken)
    rows = None if params is None else _rows(job, params)
    if settings and rows is not None:
        rows = [_changed_row(row, settings) for row in rows]
    elif settings:
        _set_variables(fresh, settings)
    if failed_only:
        indexes = _unfinished(job)
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
    return [fresh] if rows is None else [put_rows(fresh, rows), fresh]


def _rows(job: Mapping[str, Any], params: Mapping[str, Any]) -> list[dict[str, str]]:
    """Anybody may have written the annotation that names `params`."""
    containers = job["spec"]["template"]["spec"]["containers"]
    try:
        rows = rows_of(params)
    except ValueError:
        rows = []
    if rows and len(containers) == 1 and containers[0].get("command") and "env" in containers[0]:
        return rows
    raise BadInput(
        f"its annotation {PARAMS_ANNOTATION} names a ConfigMap without rows of parameters for it",
        "remove the annotation to run it without",
    )


def _fresh(job: Mapping[str, Any], taken: Collection[str] | None) -> Document:
    """The Job as somebody may have written it."""
    old = job["metadata"]
    first = old.get("labels", {}).get(LINEAGE) or old["name"]
    spec = deepcopy(job["spec"])
    # Somebody who runs it again wants it to run; a queue suspends it anew.
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
    base = _SUFFIX.sub("", name)
    number = 1
    while True:
        suffix = f"-rerun-{number}"
        fresh = base[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix
        if fresh not in taken:
            return fresh
        number += 1


def _unfinished(job: Mapping[str, Any]) -> list[int] | None:
    """Its own indexes that did not succeed; None if it has none. Raises BadInput."""
    spec = job["spec"]
    if spec.get("completionMode") != "Indexed":
        return None
    completions = spec.get("completions") or 0
    if completions > _MOST_INDEXES:
        raise BadInput(
            f"job {job['metadata']['name']} has {completions:,} indexes, and those that are left "
            f"can be named for {_MOST_INDEXES:,} at most",
            "rerun all of it, without --failed-only",
        )
    done = parse_indexes(job.get("status", {}).get("completedIndexes", ""), completions)
    return [index for gap in done.gaps(completions) for index in gap]


def _succeeded(job: Mapping[str, Any]) -> int:
    status = job.get("status", {})
    uncounted = status.get("uncountedTerminatedPods", {}).get("succeeded", ())
    return int(status.get("succeeded", 0)) + len(uncounted)


def _note_origin(fresh: Document, job: Mapping[str, Any], indexes: list[int]) -> None:
    """Which indexes of the first Job these are: the old one may repeat another itself."""
    annotations = fresh["metadata"]["annotations"]
    before = annotations.get(RERUN_INDEXES)
    if before is not None:
        origins = list(islice(parse_indexes(before, 2**31), _MOST_INDEXES))
        indexes = [origins[index] for index in indexes if index < len(origins)]
    annotations[RERUN_INDEXES] = str(IndexSet((index, index) for index in indexes))
    fresh["spec"]["completions"] = len(indexes)


def _keep_indexes(fresh: Document) -> None:
    """Lets each Pod see the index that it stands for: the Job controller counts from 0."""
    indexes = parse_indexes(fresh["metadata"]["annotations"][RERUN_INDEXES], 2**31)
    for container in fresh["spec"]["template"]["spec"]["containers"]:
        variables = {item["name"]: item for item in container.get("env", ())}
        if _INDEXES not in variables:
            _wrap(container)
        field = f"metadata.annotations['{INDEX_ANNOTATION}']"
        variables[_OWN_INDEX] = {
            "name": _OWN_INDEX,
            "valueFrom": {"fieldRef": {"fieldPath": field}},
        }
        variables[_INDEXES] = {"name": _INDEXES, "value": " ".join(map(str, indexes))}
        variables.pop(INDEX_VARIABLE, None)
        container["env"] = list(variables.values())


def _wrap(container: Document) -> None:
    if not container.get("command"):
        raise BadInput(
            f"container {container['name']} has no command, so its indexes cannot be changed",
            "rerun all of it, without --failed-only",
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
    if unknown := [name for name in settings if name not in row]:
        raise BadInput(
            f"--set {unknown[0]}: there is no such parameter", f"there are {', '.join(row)}"
        )
    return {**row, **settings}


def _set_variables(fresh: Document, settings: Mapping[str, str]) -> None:
    for container in fresh["spec"]["template"]["spec"]["containers"]:
        kept = [item for item in container.get("env", ()) if item["name"] not in settings]
        changed = ({"name": name, "value": value} for name, value in settings.items())
        container["env"] = [*kept, *changed]
