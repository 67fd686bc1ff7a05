"""Warnings about fields of Pods that the node will not enforce or that have no effect."""

from collections.abc import Mapping, Sequence
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


#: Fields of a Job's `scheduling` that are copied to its PodGroup only.
_IDLE_SCHEDULING: Final = ("disruptionMode", "resourceClaims", "schedulingConstraints")


def security_warnings(kind: Kind, document: Mapping[str, Any], means: Means) -> list[str]:
    """Return the warnings about a Pod's or template's fields that have no effect or are unsafe in
    this runtime."""
    path = _SPEC_OF.get(kind.resource, ())
    spec = _section(document, path)
    shown = ".".join(path)
    warnings = []
    if spec and means.runtime:
        warnings = [f"{shown}.{text}" for text in without_effect(spec, means.runtime)]
    if not _has_context(spec):
        return warnings
    fields = not_enforced(msgspec.convert(spec, NodePodSpec), means)
    return warnings + [f"{shown}.{field}: not enforced by the process runtime" for field in fields]


def gang_warnings(kind: Kind, document: Mapping[str, Any], means: Means) -> list[str]:
    """Return warnings about gang scheduling that is switched off, or has no effect on one node."""
    path = _SPEC_OF.get(kind.resource, ())
    warnings = []
    if means.runtime and not means.gangs and "schedulingGroup" in _section(document, path):
        shown = f"{'.'.join(path)}.schedulingGroup"
        warnings.append(f"{shown}: has no effect: the feature gate GenericWorkload is off")
    scheduling = _section(document, path[:-2]).get("scheduling")
    if scheduling is None:
        return warnings
    shown = f"{'.'.join(path[:-2])}.scheduling"
    if not means.job_gangs:
        return [*warnings, f"{shown}: dropped: the feature gate WorkloadWithJob is off"]
    idle = [field for field in _IDLE_SCHEDULING if scheduling.get(field)]
    why = "there is one node, without preemption and claims"
    return warnings + [f"{shown}.{field}: has no effect: {why}" for field in idle]


def _section(document: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    section: Mapping[str, Any] = document if path else {}
    for name in path:
        section = section.get(name) or {}
    return section


def _has_context(spec: Mapping[str, Any]) -> bool:
    """Return whether there is any securityContext; most specs have none and need no further
    check."""
    containers = (*spec.get("initContainers", ()), *spec.get("containers", ()))
    return bool(spec.get("securityContext")) or any("securityContext" in c for c in containers)
