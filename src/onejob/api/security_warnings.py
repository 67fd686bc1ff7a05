"""Warnings about fields of Pods that the node will not enforce or that have no effect."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onejob.objects.meta import CRONJOBS, JOBS, PODS
from onejob.objects.pod_spec import NodePodSpec
from onejob.planning.pod.security import Means, not_enforced
from onejob.planning.pod.without_effect import without_effect
from onejob.wire.kinds import Kind

_SPEC_OF: Final = {
    PODS: ("spec",),
    JOBS: ("spec", "template", "spec"),
    CRONJOBS: ("spec", "jobTemplate", "spec", "template", "spec"),
}


def security_warnings(kind: Kind, document: Mapping[str, Any], means: Means) -> list[str]:
    """Return the warnings about a Pod's or template's fields that have no effect or are unsafe in
    this runtime."""
    path = _SPEC_OF.get(kind.resource, ())
    spec: Mapping[str, Any] = document if path else {}
    for name in path:
        spec = spec.get(name) or {}
    shown = ".".join(path)
    warnings = []
    if spec and means.runtime:
        warnings = [f"{shown}.{text}" for text in without_effect(spec, means.runtime)]
    if not _has_context(spec):
        return warnings
    fields = not_enforced(msgspec.convert(spec, NodePodSpec), means)
    return warnings + [f"{shown}.{field}: not enforced by the process runtime" for field in fields]


def dropped_field_warnings(kind: Kind, document: Mapping[str, Any]) -> list[str]:
    """Return warnings about fields of a new Job or CronJob that are about to be dropped."""
    path = _SPEC_OF.get(kind.resource, ())[:-2]
    spec: Mapping[str, Any] = document if path else {}
    for name in path:
        spec = spec.get(name) or {}
    if "scheduling" not in spec:
        return []
    return [f"{'.'.join(path)}.scheduling: dropped: gang scheduling is not supported"]


def _has_context(spec: Mapping[str, Any]) -> bool:
    """Return whether there is any securityContext; most specs have none and need no further
    check."""
    containers = (*spec.get("initContainers", ()), *spec.get("containers", ()))
    return bool(spec.get("securityContext")) or any("securityContext" in c for c in containers)
