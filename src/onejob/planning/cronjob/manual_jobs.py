"""Jobs that people start by hand from a CronJob."""

from collections.abc import Mapping
from typing import Any, Final

#: So much of a generateName is kept.
_LONGEST_PREFIX: Final = 58


def manual_prefix(cronjob: str) -> str:
    """What names of Jobs begin with that are started by hand."""
    return f"{cronjob[: _LONGEST_PREFIX - len('-manual-')]}-manual-"


def job_of_cronjob(cronjob: Mapping[str, Any], name: Mapping[str, str]) -> dict[str, Any]:
    """The Job that the CronJob would start, owned by it, marked as kubectl marks it. `name` is
    `{"name": ...}` or `{"generateName": ...}`."""
    template = cronjob["spec"]["jobTemplate"]
    metadata = template.get("metadata", {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **name,
            "labels": metadata.get("labels", {}),
            "annotations": {
                **metadata.get("annotations", {}),
                "cronjob.kubernetes.io/instantiate": "manual",
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": cronjob["metadata"]["name"],
                    "uid": cronjob["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": template["spec"],
    }
