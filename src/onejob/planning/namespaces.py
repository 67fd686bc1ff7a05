"""Default objects of a namespace, and its conditions during deletion."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, field

SERVICE_ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"

_FINALIZER = "kubernetes"


def service_account(namespace: str) -> bytes:
    """Return the ServiceAccount of Pods that specify none."""
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace},
        }
    )


def root_ca_map(namespace: str, root_ca: str) -> bytes:
    """Return the ConfigMap with the CA certificate.

    Clients in Pods use it to verify the API server.
    """
    description = "The certificate authority of this API server, for its clients in Pods."
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CA,
                "namespace": namespace,
                "annotations": {"kubernetes.io/description": description},
            },
            "data": _root_ca_data(root_ca),
        }
    )


def root_ca_repair(stored: bytes, root_ca: str) -> bytes | None:
    """Return a JSON patch that restores the certificate; None if it is intact."""
    document: dict[str, Any] = msgspec.json.decode(stored)
    if document.get("data") == _root_ca_data(root_ca):
        return None
    operation = {"op": "add", "path": "/data", "value": _root_ca_data(root_ca)}
    return msgspec.json.encode([operation])


class Remains(Struct):
    """Objects left in a namespace after the deletion of all of them was requested."""

    #: Number of objects, by resource and by finalizer.
    objects: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    #: Errors of failed deletions.
    failures: list[str] = field(default_factory=list)

    def add(self, resource: str, finalizers: Iterable[str]) -> None:
        """Count an object that still exists, and its finalizers."""
        self.objects[resource] += 1
        self.finalizers.update(set(finalizers))

    def __bool__(self) -> bool:
        return bool(self.objects or self.failures)


def deletion_conditions(stored: bytes, remains: Remains, now: datetime) -> bytes | None:
    """Return a merge patch of the status that reports the obstacles to the deletion.

    None if the conditions are up to date. Types, reasons and messages are upstream's.
    """
    status = msgspec.json.decode(stored).get("status", {})
    before = {condition.get("type"): condition for condition in status.get("conditions", ())}
    after = [
        _condition(condition, before.get(condition.type), now) for condition in _conditions(remains)
    ]
    if after == list(before.values()):
        return None
    return msgspec.json.encode({"status": {"conditions": after}})


def has_other_finalizers(stored: bytes) -> bool:
    """Return whether finalizers of other components keep the namespace even once it is empty."""
    return any(name != _FINALIZER for name in _finalizers(msgspec.json.decode(stored)))


def finalized(stored: bytes) -> bytes:
    """Return the namespace without our finalizer, for its `/finalize` subresource."""
    document: dict[str, Any] = msgspec.json.decode(stored)
    kept = [name for name in _finalizers(document) if name != _FINALIZER]
    document.setdefault("spec", {})["finalizers"] = kept
    return msgspec.json.encode(document)


def _finalizers(document: dict[str, Any]) -> list[str]:
    """Return the finalizers in the spec of a namespace."""
    names: list[str] = document.get("spec", {}).get("finalizers", [])
    return names


class _Condition(Struct, frozen=True):
    type: str
    status: bool
    reason: str
    message: str


def _conditions(remains: Remains) -> Iterable[_Condition]:
    """Return the conditions of a namespace that is being deleted."""
    # The served resources are static, so these two conditions never report a failure.
    yield _Condition(
        "NamespaceDeletionDiscoveryFailure",
        False,
        "ResourcesDiscovered",
        "All resources successfully discovered",
    )
    yield _Condition(
        "NamespaceDeletionGroupVersionParsingFailure",
        False,
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    )
    yield _content_failure(remains)
    yield _content_remaining(remains)
    yield _finalizers_remaining(remains)


def _content_failure(remains: Remains) -> _Condition:
    """Return the condition on failed deletions."""
    kind = "NamespaceDeletionContentFailure"
    if not remains.failures:
        text = "All content successfully deleted, may be waiting on finalization"
        return _Condition(kind, False, "ContentDeleted", text)
    problems = ", ".join(sorted(set(remains.failures)))
    text = f"Failed to delete all resource types, {len(remains.failures)} remaining: {problems}"
    return _Condition(kind, True, "ContentDeletionFailed", text)


def _content_remaining(remains: Remains) -> _Condition:
    """Return the condition on objects that still exist."""
    kind = "NamespaceContentRemaining"
    if not remains.objects:
        return _Condition(kind, False, "ContentRemoved", "All content successfully removed")
    counts = (
        # `resource.group`; the core group's name is empty, which leaves a trailing dot.
        f"{resource if '.' in resource else f'{resource}.'} has {count} resource instances"
        for resource, count in sorted(remains.objects.items())
    )
    text = f"Some resources are remaining: {', '.join(counts)}"
    return _Condition(kind, True, "SomeResourcesRemain", text)


def _finalizers_remaining(remains: Remains) -> _Condition:
    """Return the condition on finalizers that are still set."""
    kind = "NamespaceFinalizersRemaining"
    if not remains.finalizers:
        text = "All content-preserving finalizers finished"
        return _Condition(kind, False, "ContentHasNoFinalizers", text)
    counts = (
        f"{name} in {count} resource instances"
        for name, count in sorted(remains.finalizers.items())
    )
    text = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
    return _Condition(kind, True, "SomeFinalizersRemain", text)


def _condition(
    condition: _Condition, before: dict[str, Any] | None, now: datetime
) -> dict[str, Any]:
    """Return a condition as a document; its transition time changes only with its status."""
    status = "True" if condition.status else "False"
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before.get("status") == status:
        since = before.get("lastTransitionTime", since)
    return {
        "type": condition.type,
        "status": status,
        "lastTransitionTime": since,
        "reason": condition.reason,
        "message": condition.message,
    }


def _root_ca_data(root_ca: str) -> dict[str, str]:
    return {"ca.crt": root_ca}
