"""Validation of claims, volumes and StorageClasses."""

from typing import Any, Final

from onejob.api.kinds.pod.claim_spec import (
    VOLUME_MODES,
    access_mode_errors,
    claim_spec_errors,
    positive_errors,
)
from onejob.api.kinds.pod.volumes import backstep_errors, validate_host_path
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, not_supported, required

#: Fields of a volume's spec that are not its source.
NOT_SOURCE: Final = frozenset(
    {
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
        "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName",
        "volumeMode",
    }
)  # fmt: skip
_RECLAIM_POLICIES: Final = ["Delete", "Recycle", "Retain"]
_CLASS_POLICIES: Final = ["Delete", "Retain"]
_BINDING_MODES: Final = ["Immediate", "WaitForFirstConsumer"]


def check_claim(doc: Document) -> list[FieldError]:
    return claim_spec_errors(doc.get("spec") or {}, "spec")


def check_volume(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    errors = access_mode_errors(spec.get("accessModes") or (), "spec")
    capacity = spec["capacity"]
    if list(capacity) != ["storage"]:
        errors.append(not_supported("spec.capacity", capacity, ["storage"]))
    errors += [
        error
        for name, amount in capacity.items()
        for error in positive_errors(amount, f"spec.capacity[{name}]")
    ]
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    if policy and policy not in _RECLAIM_POLICIES:
        path = "spec.persistentVolumeReclaimPolicy"
        errors.append(not_supported(path, policy, _RECLAIM_POLICIES))
    return errors + _source_errors(spec)


def _source_errors(spec: dict[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    if not spec.keys() - NOT_SOURCE:
        errors.append(required("spec", "must specify a volume type"))
    if (host_path := spec.get("hostPath")) is not None:
        if not host_path.get("path"):
            errors.append(required("spec.hostPath.path"))
        else:
            errors += validate_host_path(host_path, "spec.hostPath")
    if (local := spec.get("local")) is not None:
        if not local.get("path"):
            errors.append(required("spec.local.path"))
        else:
            errors += backstep_errors(local["path"], "spec.local.path")
        if not (spec.get("nodeAffinity") or {}).get("required"):
            errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errors.append(not_supported("spec.volumeMode", mode, VOLUME_MODES))
    return errors


def check_storage_class(doc: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    policy, mode = doc.get("reclaimPolicy"), doc.get("volumeBindingMode")
    if policy and policy not in _CLASS_POLICIES:
        errors.append(not_supported("reclaimPolicy", policy, _CLASS_POLICIES))
    if mode not in _BINDING_MODES:
        errors.append(not_supported("volumeBindingMode", mode, _BINDING_MODES))
    return errors
