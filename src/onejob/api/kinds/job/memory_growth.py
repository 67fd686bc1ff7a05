"""Validation of the annotations that let the memory of a Job's Pods grow after an OOM kill."""

from collections.abc import Mapping
from typing import Any

from onejob.planning.job.oom import read_factor, read_maximum
from onejob.planning.names import OOM_MEMORY_FACTOR_ANNOTATION, OOM_MEMORY_MAX_ANNOTATION
from onejob.wire.field_errors import FieldError, forbidden, invalid


def validate_memory_growth(
    job: Mapping[str, Any], old: Mapping[str, Any] | None, path: str = ""
) -> list[FieldError]:
    """Return the errors of a Job or a job template at `path`.

    Values that are already stored are not checked.
    """
    annotations = _annotations(job)
    known = _annotations(old or {})
    errors: list[FieldError] = []
    for name, read, detail in (
        (
            OOM_MEMORY_FACTOR_ANNOTATION,
            read_factor,
            'must be a number above 1 and up to 100 with at most three decimals, such as "1.5"',
        ),
        (
            OOM_MEMORY_MAX_ANNOTATION,
            read_maximum,
            'must be an amount of memory above 0, such as "8Gi"',
        ),
    ):
        value = annotations.get(name)
        if value is None or value == known.get(name):
            continue
        place = f"{path}metadata.annotations[{name}]"
        if read(value) is None:
            errors.append(invalid(place, value, detail))
        elif _restart_policy(job) == "OnFailure":
            errors.append(
                forbidden(
                    place,
                    "restartPolicy OnFailure restarts containers in their Pod, which cannot get "
                    "more memory: use Never",
                )
            )
    return errors


def _annotations(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of a Job."""
    return (job.get("metadata") or {}).get("annotations") or {}


def _restart_policy(job: Mapping[str, Any]) -> str:
    template = (job.get("spec") or {}).get("template") or {}
    policy: str = (template.get("spec") or {}).get("restartPolicy", "")
    return policy
