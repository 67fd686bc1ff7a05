"""Pod documents from a Job's template, which all Pods of a Job share."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from onejob.objects.job import Job
from onejob.planning.job.claiming import owner_reference
from onejob.planning.job.oom import grown_document
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import PodSeed
from onejob.planning.names import (
    FAILURE_COUNT_ANNOTATION,
    IGNORED_FAILURE_COUNT_ANNOTATION,
    INDEX_ANNOTATION,
    INDEX_VARIABLE,
    OOM_RETRIES,
    TRACKING_NAMES,
)
from onejob.wire.requests import Variation

#: Characters. The server truncates a generateName to this length and appends five characters.
_MAX_PREFIX_LENGTH = 58
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PER_POD_ANNOTATIONS = (
    INDEX_ANNOTATION,
    FAILURE_COUNT_ANNOTATION,
    IGNORED_FAILURE_COUNT_ANNOTATION,
)


class NewPod(msgspec.Struct, frozen=True, gc=False):
    """A Pod to create: its document, or the template that `variation` is applied to."""

    body: bytes
    variation: Variation | None = None


class PodFactory:
    """Factory of Pod documents for one generation of a Job.

    The template changes only with the generation, so cache the factory by UID and generation.
    """

    __slots__ = ("_job_name", "_template", "_varies")

    def __init__(
        self,
        job: Job,
        settings: Settings,
        *,
        tracked: bool = True,
        marks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`marks` are annotations to add to the template's own."""
        template = msgspec.json.decode(job.spec.template)
        metadata = template.get("metadata") or {}
        spec = dict(template.get("spec") or {})
        self._job_name = job.metadata.name
        finalizers = list(metadata.get("finalizers") or ())
        if tracked and not any(name in finalizers for name in TRACKING_NAMES):
            finalizers.append(settings.tracking_finalizer)
        shared: dict[str, Any] = {
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
            "finalizers": finalizers,
        }
        labels = dict(metadata.get("labels") or {})
        annotations = dict(metadata.get("annotations") or {})
        annotations.update(marks)
        annotations.pop(OOM_RETRIES, None)
        self._varies = job.indexed
        if job.indexed:
            labels.pop(INDEX_ANNOTATION, None)
            for own in _PER_POD_ANNOTATIONS:
                annotations.pop(own, None)
            spec.pop("hostname", None)
            _add_index_variable(spec)
        shared["generateName"] = generate_name(job.metadata.name)
        if labels:
            shared["labels"] = labels
        if annotations:
            shared["annotations"] = annotations
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": shared, "spec": spec}
        self._template = msgspec.json.encode(pod)

    def creation(self, seed: PodSeed) -> NewPod:
        """Return the Pod to create."""
        if seed.memory is not None:
            return NewPod(self.document(seed))
        return NewPod(self._template, self._variation(seed) if self._varies else None)

    def document(self, seed: PodSeed) -> bytes:
        """Return the JSON of the Pod to create."""
        template = self._template
        document = self._variation(seed).of(template) if self._varies else template
        return document if seed.memory is None else grown_document(document, seed.memory)

    def _variation(self, seed: PodSeed) -> Variation:
        """Return the differences of a Pod of this index from the template."""
        assert seed.index is not None, "a Pod of an Indexed Job needs an index"
        own = {INDEX_ANNOTATION: str(seed.index)}
        return Variation(
            generate_name_with_index(self._job_name, seed.index),
            own,
            {**own, **_failure_counts(seed)},
            f"{self._job_name}-{seed.index}",
        )


def generate_name(job_name: str) -> str:
    """Return `<job>-`, or the Job's name alone if no valid Pod name can start with that prefix."""
    prefix = f"{job_name}-"
    # The server truncates and completes the prefix, so validate it as if characters followed.
    stem = prefix[:-2] + "a"
    return prefix if len(stem) <= 253 and _SUBDOMAIN.fullmatch(stem) else job_name


def generate_name_with_index(job_name: str, index: int) -> str:
    """Return `<job>-<index>-`; if too long, the Job's name is truncated, never the index."""
    suffix = f"-{index}-"
    return job_name[: _MAX_PREFIX_LENGTH - len(suffix)] + suffix


def _failure_counts(seed: PodSeed) -> dict[str, str]:
    if seed.failure_count is None:
        return {}
    counts = {FAILURE_COUNT_ANNOTATION: str(seed.failure_count)}
    if seed.ignored_failure_count:
        counts[IGNORED_FAILURE_COUNT_ANNOTATION] = str(seed.ignored_failure_count)
    return counts


def _add_index_variable(spec: dict[str, Any]) -> None:
    """Add the completion index variable to each container that does not define it already."""
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_ANNOTATION}']"}}
    variable = {"name": INDEX_VARIABLE, "valueFrom": source}
    for kind in ("initContainers", "containers"):
        containers = []
        for container in spec.get(kind) or ():
            environment = list(container.get("env") or ())
            if all(present.get("name") != INDEX_VARIABLE for present in environment):
                environment.append(variable)
            containers.append({**container, "env": environment})
        if containers:
            spec[kind] = containers
