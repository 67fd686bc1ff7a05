"""Portability check: parts of a manifest that work in onejob, but fail or differ on Kubernetes."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from onejob.cli.manifests.job_from_command import HOST_IMAGE
from onejob.cli.manifests.loading import Manifest, Problem
from onejob.objects.meta import CRONJOBS, JOBS, PODS
from onejob.planning.names import (
    AFTER_ANNOTATION,
    BACKOFF_SECONDS_ANNOTATION,
    FAILED_PODS_LIMIT_ANNOTATION,
    FAILURE_TTL_ANNOTATION,
    INPUTS_ANNOTATION,
    JITTER_ANNOTATION,
    OOM_MEMORY_FACTOR_ANNOTATION,
    OUTPUT_PATH_ANNOTATION,
    OUTPUT_VARIABLE,
    OUTPUTS_ANNOTATION,
    PENDING_DEADLINE_ANNOTATION,
    POD_TTL_ANNOTATION,
    PROGRESS_VARIABLE,
    SUCCESS_TTL_ANNOTATION,
)
from onejob.planning.notify.annotations import NOTIFY_ANNOTATION
from onejob.planning.queue.limits import QUEUE_LABEL

#: Fields of our own in the specs of Jobs and Pods: the annotation that stands for each, or None.
JOB_EXTENSIONS: Final[Mapping[str, str | None]] = {
    "backoffSeconds": BACKOFF_SECONDS_ANNOTATION,
    "failedPodsLimit": FAILED_PODS_LIMIT_ANNOTATION,
}
POD_EXTENSIONS: Final[Mapping[str, str | None]] = {"ttlSecondsAfterFinished": POD_TTL_ANNOTATION}
#: Annotations that a Kubernetes cluster stores, but honours only for Jobs run by `onejob
#: controller`.
_PLANNED: Final = frozenset(
    {
        AFTER_ANNOTATION,
        BACKOFF_SECONDS_ANNOTATION,
        FAILED_PODS_LIMIT_ANNOTATION,
        OOM_MEMORY_FACTOR_ANNOTATION,
    }
)
#: Annotations and labels that a cluster stores and no component there acts on.
_UNHEEDED: Final = frozenset(
    {
        FAILURE_TTL_ANNOTATION,
        INPUTS_ANNOTATION,
        JITTER_ANNOTATION,
        OUTPUTS_ANNOTATION,
        OUTPUT_PATH_ANNOTATION,
        NOTIFY_ANNOTATION,
        PENDING_DEADLINE_ANNOTATION,
        QUEUE_LABEL,
        SUCCESS_TTL_ANNOTATION,
    }
)
#: Names used for "no image" where containers are processes of this machine.
_PLACEHOLDERS: Final = frozenset({HOST_IMAGE, "local", "localhost", "none", "process", "-"})
#: Prefixes of paths that nearly every image has; and `-` for options, which are no paths.
_NOT_OURS: Final = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/lib", "/dev/", "/proc/", "-")

_CRONJOB_POD: Final = "spec.jobTemplate.spec.template.spec"

#: Pairs of field and message.
_Found = Iterator[tuple[str, str]]
Exists = Callable[[str], bool]


def portability_problems(manifest: Manifest, exists: Exists = os.path.exists) -> list[Problem]:
    """Return the portability problems. `exists` reports whether this machine has a path."""
    return [manifest.problem(field, text) for field, text in _extensions_in(manifest, exists)]


def portability_warnings(manifest: Manifest) -> list[str]:
    """Return what a cluster accepts, but may treat differently: hostPath volumes."""
    spec = manifest.document.get("spec") or {}
    path = "spec"
    match manifest.kind.resource:
        case resource if resource == CRONJOBS:
            spec, path = spec["jobTemplate"]["spec"]["template"]["spec"], _CRONJOB_POD
        case resource if resource == JOBS:
            spec, path = spec["template"]["spec"], "spec.template.spec"
        case resource if resource != PODS:
            return []
    return [
        str(
            manifest.problem(
                f"{path}.volumes[{index}].hostPath",
                f"{volume['hostPath'].get('path')} must exist on the node that runs the Pod "
                "(use a ConfigMap, a persistentVolumeClaim or the image)",
            )
        )
        for index, volume in enumerate(spec.get("volumes") or ())
        if volume.get("hostPath")
    ]


def _extensions_in(manifest: Manifest, exists: Exists) -> _Found:
    document = manifest.document
    spec = document.get("spec", {})
    match manifest.kind.resource:
        case resource if resource == CRONJOBS:
            yield from _marks(document, "")
            yield from _job(spec["jobTemplate"], "spec.jobTemplate.", exists)
        case resource if resource == JOBS:
            yield from _job(document, "", exists)
        case resource if resource == PODS:
            yield from _marks(document, "")
            yield from _pod(spec, "spec", exists)


def _job(job: Mapping[str, Any], path: str, exists: Exists) -> _Found:
    spec = job["spec"]
    # With another managedBy, the user has chosen a controller that may honour these annotations.
    yield from _marks(job, path, planned=not spec.get("managedBy"))
    yield from _extensions(spec, f"{path}spec", JOB_EXTENSIONS)
    yield from _marks(spec["template"], f"{path}spec.template.")
    yield from _pod(spec["template"]["spec"], f"{path}spec.template.spec", exists)


def _marks(of: Mapping[str, Any], path: str, *, planned: bool = False) -> _Found:
    """Yield annotations and labels that are onejob's extensions of Kubernetes."""
    for field in ("annotations", "labels"):
        for name in (of.get("metadata") or {}).get(field) or ():
            if name in _UNHEEDED:
                yield f"{path}metadata.{field}[{name}]", "it has no effect in a cluster"
            elif planned and name in _PLANNED:
                yield (
                    f"{path}metadata.{field}[{name}]",
                    "Kubernetes' Job controller ignores it (only `onejob controller` supports it)",
                )


def _extensions(spec: Mapping[str, Any], path: str, names: Mapping[str, str | None]) -> _Found:
    for name, annotation in names.items():
        if spec.get(name) is not None:
            text = "this field exists only in onejob; a Kubernetes API server drops it"
            if annotation is not None:
                text += f" (use the annotation {annotation} and `onejob controller`)"
            yield f"{path}.{name}", text


def _pod(spec: Mapping[str, Any], path: str, exists: Exists) -> _Found:
    yield from _extensions(spec, path, POD_EXTENSIONS)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container(container, f"{path}.{field}[{index}]", exists)


def _container(container: Mapping[str, Any], path: str, exists: Exists) -> _Found:
    image = str(container.get("image") or "")
    if image.lower() in _PLACEHOLDERS:
        yield f"{path}.image", f"a cluster cannot pull the image {image!r}"
    folder = str(container.get("workingDir") or "")
    if folder and folder not in ("/", "/tmp") and exists(folder):
        yield (
            f"{path}.workingDir",
            f"{folder} is a directory of this machine; in a cluster it must exist in the image",
        )
    for field in ("command", "args"):
        for index, word in enumerate(container.get(field) or ()):
            for variable in (OUTPUT_VARIABLE, PROGRESS_VARIABLE):
                if variable in word:
                    yield (
                        f"{path}.{field}[{index}]",
                        f"a cluster does not set {variable} (mount a PersistentVolumeClaim and "
                        "set the variable to its path)",
                    )
            if _is_own_file(word, folder, exists):
                yield (
                    f"{path}.{field}[{index}]",
                    f"{word} is a file of this machine; in a cluster it must exist in the image",
                )


def _is_own_file(word: str, folder: str, exists: Exists) -> bool:
    if word.startswith(_NOT_OURS) or word in ("/", ".", "..", ""):
        return False
    if "/" not in word and "." not in word:
        # A bare name is a program on the PATH or an ordinary word.
        return False
    return len(word) < 4096 and "\0" not in word and exists(os.path.join(folder, word))
