"""Warnings about accepted but probably unintended fields in Pods and pod specs."""

from collections.abc import Mapping
from typing import Any

from onejob.wire.names import label_errors


def pod_name_warnings(name: str) -> list[str]:
    return name_warnings(name, "the Pod's hostname")


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


def name_warnings(name: str, used_in: str) -> list[str]:
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
