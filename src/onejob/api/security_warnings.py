"""Warnings about securityContext fields that the node will not enforce."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onejob.objects.meta import CRONJOBS, JOBS, PODS
from onejob.objects.pod_spec import NodePodSpec
from onejob.planning.pod.security import Means, not_enforced
from onejob.wire.kinds import Kind

_SPEC_OF: Final = {
    PODS: ("spec",),
    JOBS: ("spec", "template", "spec"),
    CRONJOBS: ("spec", "jobTemplate", "spec", "template", "spec"),
}


def security_warnings(kind: Kind, document: Mapping[str, Any], means: Means) -> list[str]:
    path = _SPEC_OF.get(kind.resource, ())
    spec: Mapping[str, Any] = document if path else {}
    for name in path:
        spec = spec.get(name) or {}
    if not _has_context(spec):
        return []
    fields = not_enforced(msgspec.convert(spec, NodePodSpec), means)
    return [f"{'.'.join(path)}.{field}: not enforced by the process runtime" for field in fields]


def _has_context(spec: Mapping[str, Any]) -> bool:
    """Return whether there is any securityContext; most specs have none and need no further
    check."""
    containers = (*spec.get("initContainers", ()), *spec.get("containers", ()))
    return bool(spec.get("securityContext")) or any("securityContext" in c for c in containers)
