"""Pod Security admission: reject Pods that violate the namespace's level; warn about templates."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from onejob.api.strategy import Document
from onejob.objects.meta import PODS
from onejob.planning.pod_security.labels import PREFIX, Policy, read_policy
from onejob.store.base import Store
from onejob.wire.field_errors import FieldError

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_REMEMBERED: Final = 256


def policy_of(namespace: Document) -> Policy:
    return read_policy(namespace["metadata"].get("labels") or {})[0]


def pod_refusal(policy: Policy, pod: Document) -> str:
    return _judged(policy, _annotations(pod), msgspec.json.encode(pod.get("spec") or {}))[0]


def pod_warning(policy: Policy, pod: Document) -> str:
    """Return the warning for a Pod or Pod template; "" for none."""
    return _judged(policy, _annotations(pod), msgspec.json.encode(pod.get("spec") or {}))[1]


def pod_audit(policy: Policy, pod: Document) -> str:
    return _judged(policy, _annotations(pod), msgspec.json.encode(pod.get("spec") or {}))[2]


@lru_cache(maxsize=_REMEMBERED)
def _judged(
    policy: Policy, annotations: tuple[tuple[str, str], ...], spec: bytes
) -> tuple[str, str, str]:
    """Return (refusal, warning, audit annotation). Cached: all Pods of a Job have the same spec."""
    # Imported lazily: most servers have no namespace with a Pod Security level.
    from onejob.planning.pod_security.evaluation import refusal, warning

    decoded = msgspec.json.decode(spec)
    noted = dict(annotations)
    return (
        refusal(policy, noted, decoded),
        warning(policy.warn, noted, decoded),
        warning(policy.audit, noted, decoded),
    )


def _annotations(pod: Document) -> tuple[tuple[str, str], ...]:
    """Return the annotations that the checks read."""
    from onejob.planning.pod_security.baseline import READ_ANNOTATIONS

    annotations: Mapping[str, str] = (pod.get("metadata") or {}).get("annotations") or {}
    return tuple(item for item in annotations.items() if item[0].startswith(READ_ANNOTATIONS))


def images_changed(new: Document, old: Document) -> bool:
    """Return whether an update changes a Pod's images, the only mutable fields that Pod Security
    checks."""
    before, after = _images(old), _images(new)
    return any(before.get(name) != image for name, image in after.items()) or (
        len(before) != len(after)
    )


def _images(pod: Document) -> dict[tuple[str, str], Any]:
    """Return the image of each container, by field and container name."""
    spec = pod.get("spec") or {}
    return {
        (field, container["name"]): container.get("image")
        for field in _CONTAINERS
        for container in spec.get(field) or ()
    }


def label_errors(new: Document, old: Document | None) -> list[FieldError]:
    """Return errors for invalid Pod Security labels.

    Errors that `old` has as well are tolerated.
    """
    labels = new["metadata"].get("labels") or {}
    if not any(name.startswith(PREFIX) for name in labels):
        return []
    errors = read_policy(labels)[1]
    if errors and old is not None and errors == read_policy(_labels(old))[1]:
        return []
    return errors


def namespace_warnings(store: Store, new: Document, old: Document) -> Sequence[str]:
    """Return warnings about existing Pods that violate the namespace's new level."""
    from onejob.planning.pod_security.evaluation import (
        MAX_PODS_CHECKED,
        existing_warnings,
        may_reject_running_pods,
    )

    policy, before = read_policy(_labels(new))[0], read_policy(_labels(old))[0]
    if not may_reject_running_pods(policy, before):
        return ()
    name = new["metadata"]["name"]
    total = store.count(PODS, name)
    page = store.list(PODS, name, limit=MAX_PODS_CHECKED)
    pods = [msgspec.json.decode(stored.value, type=_PodSubset) for stored in page.items]
    return existing_warnings(
        name,
        policy.enforce,
        [(pod.metadata.name, pod.metadata.annotations, pod.spec) for pod in pods],
        total,
    )


def _labels(document: Document) -> Mapping[str, str]:
    """Return the labels of a document."""
    return document["metadata"].get("labels") or {}


class _MetadataSubset(msgspec.Struct):
    name: str
    annotations: dict[str, str] = {}


class _PodSubset(msgspec.Struct):
    metadata: _MetadataSubset
    spec: dict[str, Any]
