"""Documents of ReplicaSets and their Pods, and the annotations that record revisions."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.objects.deployment import API_VERSION, Deployment, ReplicaSet, ReplicaSetStatus
from onejob.objects.meta import Meta
from onejob.planning.deployment.claiming import owner_reference
from onejob.planning.names import LAST_APPLIED

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
#: Annotations of a Deployment that its ReplicaSets do not take over.
_NOT_COPIED: Final = frozenset(
    {LAST_APPLIED, REVISION, _REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS}
)
#: Characters without vowels and look-alikes, as in generated names.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_HISTORY_CHARACTERS: Final = 2000
#: Characters. The server truncates a generateName to this length and appends five characters.
_MAX_PREFIX_LENGTH: Final = 58


def template_of(raw: msgspec.Raw) -> dict[str, Any]:
    """Return a Pod template without the hash label, by which ReplicaSets are told apart."""
    template: dict[str, Any] = msgspec.json.decode(raw)
    metadata = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    metadata.pop("labels", None)
    metadata.pop("creationTimestamp", None)
    if labels:
        metadata["labels"] = labels
    return {**template, "metadata": metadata}


def template_hash(template: Mapping[str, Any], collisions: int) -> str:
    """Return a short hash of a template; `collisions` changes it if its name was taken."""
    text = msgspec.json.encode(template, order="sorted") + (
        b"%d" % collisions if collisions else b""
    )
    # FNV-1a with 64 bits.
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    result = ""
    for _ in range(10):
        value, rest = divmod(value, len(_ALPHABET))
        result += _ALPHABET[rest]
    return result


def revision_of(annotations: Mapping[str, str]) -> int:
    """Return the revision in annotations; 0 if there is none, or no number."""
    text = annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def replica_set_annotations(
    deployment: Deployment, old: Mapping[str, str], revision: int, max_replicas: int
) -> dict[str, str]:
    """Return the annotations of a Deployment's current ReplicaSet, given its present ones."""
    copied = {
        name: value
        for name, value in deployment.metadata.annotations.items()
        if name not in _NOT_COPIED
    }
    result = {**old, **copied}
    before = revision_of(old)
    if before < revision:
        result[REVISION] = str(revision)
        if before:
            # The revision was current before, and is so again after a roll-back.
            entries = [*filter(None, old.get(_REVISION_HISTORY, "").split(",")), str(before)]
            while len(",".join(entries)) > _MAX_HISTORY_CHARACTERS:
                del entries[0]
            result[_REVISION_HISTORY] = ",".join(entries)
    return {**result, **size_annotations(deployment, max_replicas)}


def size_annotations(deployment: Deployment, max_replicas: int) -> dict[str, str]:
    return {
        DESIRED_REPLICAS: str(deployment.spec.replicas),
        MAX_REPLICAS: str(max_replicas),
    }


def replica_set_document(
    deployment: Deployment, replicas: int, annotations: Mapping[str, str]
) -> bytes:
    """Return the ReplicaSet of a Deployment's present template."""
    template = template_of(deployment.spec.template)
    value = template_hash(template, deployment.status.collision_count or 0)
    labels = {**template["metadata"].get("labels", {}), HASH_LABEL: value}
    template["metadata"] = {**template["metadata"], "labels": labels}
    selector = msgspec.to_builtins(deployment.spec.selector)
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH_LABEL: value}
    spec: dict[str, Any] = {"replicas": replicas, "selector": selector, "template": template}
    if deployment.spec.min_ready_seconds:
        spec["minReadySeconds"] = deployment.spec.min_ready_seconds
    metadata = deployment.metadata
    document = {
        "apiVersion": API_VERSION,
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata.name}-{value}",
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": dict(annotations),
            "ownerReferences": [owner_reference("Deployment", metadata)],
        },
        "spec": spec,
    }
    return msgspec.json.encode(document)


def pod_document(replica_set: ReplicaSet) -> bytes:
    """Return a Pod of a ReplicaSet."""
    template = msgspec.json.decode(replica_set.spec.template)
    given, owner = template.get("metadata") or {}, replica_set.metadata
    kept = ("labels", "annotations", "finalizers")
    metadata = {
        "generateName": f"{owner.name[: _MAX_PREFIX_LENGTH - 1]}-",
        "namespace": owner.namespace,
        "ownerReferences": [owner_reference("ReplicaSet", owner)],
        **{name: given[name] for name in kept if given.get(name)},
    }
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return msgspec.json.encode(document)


def declares_ports(raw: msgspec.Raw) -> bool:
    """Return whether containers of a Pod template declare ports."""
    spec = msgspec.json.decode(raw).get("spec") or {}
    return any(container.get("ports") for container in spec.get("containers") or ())


def status_patch(metadata: Meta, old: Struct, new: Struct) -> bytes:
    """Return a merge patch for `/status` that fails with Conflict if the object has changed."""
    # Required in the status of a ReplicaSet, also if it is 0.
    changed: dict[str, Any] = (
        {"replicas": new.replicas} if isinstance(new, ReplicaSetStatus) else {}
    )
    for name, field in zip(new.__struct_fields__, new.__struct_encode_fields__, strict=True):
        value = getattr(new, name)
        if value != getattr(old, name):
            # A default is written as null: fields with it are not stored.
            changed.setdefault(field, value or None)
    body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": changed}
    return msgspec.json.encode(body)
