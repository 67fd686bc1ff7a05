"""Warnings about accepted but probably unintended fields in Jobs and pod specs."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.wire.names import label_errors

_MANY_COMPLETIONS: Final = 100_000
_MUCH_PARALLELISM: Final = 10_000

#: Fields of the original proposal that apply only to Pods without restarts.
_ONLY_WITHOUT_RESTARTS: Final = ("backoffSeconds", "failedPodsLimit")


def job_name_warnings(name: str) -> list[str]:
    return _name_warnings(name, "Pod names and hostnames")


def pod_name_warnings(name: str) -> list[str]:
    return _name_warnings(name, "the Pod's hostname")


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


def pod_spec_warnings(spec: Mapping[str, Any], path: str) -> list[str]:
    warnings = [
        f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'
        for i, secret in enumerate(spec.get("imagePullSecrets", ()))
        if not secret.get("name")
    ]
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field, ())):
            warnings += _environment_warnings(container, f"{path}.{field}[{i}].env")
    return warnings


def _name_warnings(name: str, used_in: str) -> list[str]:
    texts = label_errors(name)
    if not texts:
        return []
    return [
        f"metadata.name: this is used in {used_in}, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(texts)}]"
    ]


def _environment_warnings(container: Mapping[str, Any], path: str) -> list[str]:
    warnings = []
    seen: dict[str, Mapping[str, Any]] = {}
    for i, variable in enumerate(container.get("env", ())):
        name = variable.get("name", "")
        # A definition that refers to the previous one hides nothing.
        if name in seen and f"$({name})" not in variable.get("value", ""):
            warnings.append(
                f'{path}[{i}]: hides previous definition of "{name}", '
                "which may be dropped when using apply"
            )
        seen[name] = variable
    return warnings
