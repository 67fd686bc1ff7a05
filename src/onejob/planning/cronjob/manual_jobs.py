"""Jobs started manually from a CronJob."""

from collections.abc import Mapping
from typing import Any, Final

#: Characters of a generateName that the server keeps.
_MAX_PREFIX_LENGTH: Final = 58


def manual_prefix(cronjob: str) -> str:
    """Return the generateName prefix of manually started Jobs."""
    return f"{cronjob[: _MAX_PREFIX_LENGTH - len('-manual-')]}-manual-"


def job_of_cronjob(cronjob: Mapping[str, Any], name: Mapping[str, str]) -> dict[str, Any]:
    """Return the Job that the CronJob would start, owned by it and annotated as kubectl does.

    `name` is `{"name": ...}` or `{"generateName": ...}`.
    """
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
