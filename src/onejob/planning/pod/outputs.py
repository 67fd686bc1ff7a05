"""Outputs of Pods: which containers get an output directory, which inputs a Pod mounts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.objects.meta import View
from onejob.objects.pod_spec import Container
from onejob.planning.metadata_values import whole_second
from onejob.planning.names import (
    INPUTS_ANNOTATION,
    OUTPUT_ANNOTATIONS,
    OUTPUT_PATH_ANNOTATION,
    OUTPUT_VARIABLE,
    PROGRESS_VARIABLE,
)

#: Reason in the status of a Pod that wrote too much.
QUOTA_EXCEEDED: Final = "OutputQuotaExceeded"
#: Condition that a podFailurePolicy rule can match for such a Pod.
CONDITION: Final = "onejob.dev/OutputQuotaExceeded"
MAX_INPUTS: Final = 100


def may_have_outputs(annotations: Mapping[str, str], container: Container) -> bool:
    """Return whether a container may have outputs or inputs.

    Creating a directory costs more than all else that a Pod without volumes needs on disk, so only
    containers that mention a variable get one, and all containers of Pods with an annotation.
    """
    if annotations and not OUTPUT_ANNOTATIONS.isdisjoint(annotations):
        return True
    for words in (container.command, container.args):
        for word in words:
            if OUTPUT_VARIABLE in word or PROGRESS_VARIABLE in word:
                return True
    return any(
        OUTPUT_VARIABLE in each.value or PROGRESS_VARIABLE in each.value for each in container.env
    )


class InvalidInputs(ValueError):
    """Invalid annotation about outputs or inputs; the message has the reason."""


class Input(View, frozen=True):
    """Outputs of an earlier Job, mounted read-only."""

    job: str
    mount_path: str
    #: UID of the Job.
    uid: str = ""


def validated_path(path: str) -> str:
    """Return a mount path that is absolute and has no `..`. Raises InvalidInputs."""
    if not path.startswith("/") or ".." in path.split("/") or path.strip("/") == "" or "\0" in path:
        raise InvalidInputs(f"{path[:100]!r} is no absolute path of a directory")
    return path.rstrip("/")


def output_path(annotations: Mapping[str, str]) -> str:
    """Return the path of the output directory chosen by the Pod; "" if none is.

    Raises InvalidInputs.
    """
    path = annotations.get(OUTPUT_PATH_ANNOTATION)
    return "" if path is None else validated_path(path)


def parse_inputs(annotations: Mapping[str, str]) -> Sequence[Input]:
    """Return the inputs of a Pod. Raises InvalidInputs."""
    text = annotations.get(INPUTS_ANNOTATION)
    if text is None:
        return ()
    try:
        found = msgspec.json.decode(text, type=tuple[Input, ...])
    except msgspec.DecodeError as error:
        raise InvalidInputs(
            'expected a list such as [{"job": "extract", "uid": "…", "mountPath": "/in"}]: '
            f"{error}"
        ) from error
    if len(found) > MAX_INPUTS:
        raise InvalidInputs(f"{len(found)} inputs; the maximum is {MAX_INPUTS}")
    for each in found:
        validated_path(each.mount_path)
        if not each.uid:
            raise InvalidInputs(f"the input from job {each.job[:100]} has no uid")
    if len({each.mount_path.rstrip("/") for each in found}) < len(found):
        raise InvalidInputs("two inputs have the same mountPath")
    return found


def quota_patch(document: Mapping[str, Any], message: str, now: datetime) -> bytes:
    """Return a strategic merge patch for `/status` that fails a Pod.

    The server rejects it if the Pod has changed.
    """
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": QUOTA_EXCEEDED,
        "message": message,
        "lastTransitionTime": whole_second(now),
    }
    return msgspec.json.encode(
        {
            "metadata": {"resourceVersion": document["metadata"]["resourceVersion"]},
            "status": {
                "phase": "Failed",
                "reason": QUOTA_EXCEEDED,
                "message": message,
                "conditions": [condition],
            },
        }
    )
