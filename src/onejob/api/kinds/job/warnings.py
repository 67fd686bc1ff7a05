"""Warnings about accepted but probably unintended fields in Jobs."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.api.kinds.pod.warnings import name_warnings, pod_spec_warnings

_MANY_COMPLETIONS: Final = 100_000
_MUCH_PARALLELISM: Final = 10_000

#: Fields of the original proposal that apply only to Pods without restarts.
_ONLY_WITHOUT_RESTARTS: Final = ("backoffSeconds", "failedPodsLimit")


def job_name_warnings(name: str) -> list[str]:
    return name_warnings(name, "Pod names and hostnames")


def job_spec_warnings(spec: Mapping[str, Any], path: str) -> list[str]:
    warnings = []
    if (
        spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > _MANY_COMPLETIONS
        and (spec.get("parallelism") or 0) > _MUCH_PARALLELISM
    ):
        warnings.append(
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a "
            "parallelism higher than 10^4, Kubernetes might not be able to track "
            "completedIndexes when a big number of indexes fail"
        )
    template = spec.get("template", {}).get("spec", {})
    if template.get("restartPolicy") == "OnFailure":
        warnings += [
            f'{path}.{field}: ignored unless the restartPolicy of the pod template is "Never"'
            for field in _ONLY_WITHOUT_RESTARTS
            if field in spec
        ]
    return warnings + pod_spec_warnings(template, f"{path}.template.spec")
