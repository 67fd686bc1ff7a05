"""Pod documents from a Job's template.

The parts that all Pods of a Job share are parsed, completed and encoded once; creating a Pod then
only joins byte strings around its own values.
"""

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

#: Characters. The server truncates a generateName to this length and appends five characters.
_LONGEST_PREFIX = 58
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PER_POD_ANNOTATIONS = (
    INDEX_ANNOTATION,
    FAILURE_COUNT_ANNOTATION,
    IGNORED_FAILURE_COUNT_ANNOTATION,
)


class PodFactory:
    """Factory of Pod documents for one generation of a Job.

    The template changes only with the generation, so cache the factory by UID and generation.
    """

    __slots__ = ("_around_hostname", "_before_annotations", "_before_labels", "_job_name", "_whole")

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
        shared = {
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
            "finalizers": finalizers,
        }
        labels = dict(metadata.get("labels") or {})
        annotations = dict(metadata.get("annotations") or {})
        annotations.update(marks)
        annotations.pop(OOM_RETRIES, None)
        if not job.indexed:
            self._whole: bytes | None = _whole_document(
                {"generateName": generate_name(job.metadata.name), **shared},
                labels,
                annotations,
                spec,
            )
            return
        self._whole = None
        labels.pop(INDEX_ANNOTATION, None)
        for own in _PER_POD_ANNOTATIONS:
            annotations.pop(own, None)
        spec.pop("hostname", None)
        _add_index_variable(spec)
        # Each piece ends where a value specific to the Pod follows.
        self._before_labels = b'",' + _members(shared) + b',"labels":{' + _then(_members(labels))
        self._before_annotations = b'},"annotations":{' + _then(_members(annotations))
        self._around_hostname = (
            b'}},"spec":{"hostname":',
            _comma_before(_members(spec)) + b"}}",
        )

    def document(self, seed: PodSeed) -> bytes:
        """Return the JSON of the Pod to create.

        `hostname`, the only difference between the specs of an Indexed Job's Pods, is the first
        member of the spec.
        """
        document = self._document(seed)
        return document if seed.memory is None else grown_document(document, seed.memory)

    def _document(self, seed: PodSeed) -> bytes:
        if self._whole is not None:
            return self._whole
        assert seed.index is not None, "a Pod of an Indexed Job needs an index"
        index = b'"%d"' % seed.index
        before_hostname, after_hostname = self._around_hostname
        return b"".join(
            (
                b'{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"',
                generate_name_with_index(self._job_name, seed.index).encode(),
                self._before_labels,
                _INDEX_MEMBER,
                index,
                self._before_annotations,
                _INDEX_MEMBER,
                index,
                _failure_counts(seed),
                before_hostname,
                b'"%s-%d"' % (self._job_name.encode(), seed.index),
                after_hostname,
            )
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
    return job_name[: _LONGEST_PREFIX - len(suffix)] + suffix


_INDEX_MEMBER = f'"{INDEX_ANNOTATION}":'.encode()


def _failure_counts(seed: PodSeed) -> bytes:
    if seed.failure_count is None:
        return b""
    text = f',"{FAILURE_COUNT_ANNOTATION}":"{seed.failure_count}"'
    if seed.ignored_failure_count:
        text += f',"{IGNORED_FAILURE_COUNT_ANNOTATION}":"{seed.ignored_failure_count}"'
    return text.encode()


def _whole_document(
    metadata: dict[str, Any],
    labels: dict[str, str],
    annotations: dict[str, str],
    spec: dict[str, Any],
) -> bytes:
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if "hostname" in spec:
        spec = {"hostname": spec["hostname"], **spec}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )


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


def _members(values: dict[str, Any]) -> bytes:
    """Return the JSON object without its braces."""
    return msgspec.json.encode(values)[1:-1]


def _then(members: bytes) -> bytes:
    return members + b"," if members else b""


def _comma_before(members: bytes) -> bytes:
    return b"," + members if members else b""
