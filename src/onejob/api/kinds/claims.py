"""Strategies of PersistentVolumeClaims and PersistentVolumes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.claim_rules import NOT_SOURCE
from onejob.api.kinds.printing import AGE, NAME, age, column, name_of
from onejob.api.kinds.stored import StoredStrategy
from onejob.api.strategy import Document
from onejob.planning.claims.names import CLAIM_PROTECTION, VOLUME_PROTECTION
from onejob.wire.field_errors import FieldError, forbidden, invalid
from onejob.wire.quantity import canonical_quantity, parse_quantity

_SHORT_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_VOLUME_MODE: Final = column("VolumeMode", "Filesystem or Block.", wide=True)
_ATTRIBUTES: Final = column("VolumeAttributesClass", "Class of changeable attributes.")


class _ProtectedStrategy(StoredStrategy):
    """Strategy of a kind whose new objects get a finalizer, by which a controller protects them."""

    finalizer = ""

    def prepare_create(self, doc: Document) -> None:
        super().prepare_create(doc)
        finalizers = doc["metadata"].setdefault("finalizers", [])
        if self.finalizer not in finalizers:
            finalizers.append(self.finalizer)


class ClaimStrategy(_ProtectedStrategy):
    """Strategy of PersistentVolumeClaims. Their spec is immutable, but for the volume and a larger
    request."""

    finalizer = CLAIM_PROTECTION

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_update(new, old) + _claim_changes(new, old)

    def columns(self) -> list[dict[str, Any]]:
        return _CLAIM_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        spec, status = doc.get("spec") or {}, doc.get("status") or {}
        bound = bool(spec.get("volumeName"))
        return [
            name_of(doc),
            _phase(doc),
            spec.get("volumeName", ""),
            _storage(status.get("capacity")) if bound else "",
            _modes(status.get("accessModes") or ()) if bound else "",
            spec.get("storageClassName") or "",
            spec.get("volumeAttributesClassName", "<unset>"),
            age(doc, now),
            spec.get("volumeMode", "<unset>"),
        ]


class VolumeStrategy(_ProtectedStrategy):
    """Strategy of PersistentVolumes."""

    finalizer = VOLUME_PROTECTION

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_update(new, old) + _volume_changes(new, old)

    def columns(self) -> list[dict[str, Any]]:
        return _VOLUME_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        spec, status = doc.get("spec") or {}, doc.get("status") or {}
        claim = spec.get("claimRef") or {}
        return [
            name_of(doc),
            _storage(spec.get("capacity")),
            _modes(spec.get("accessModes") or ()),
            spec.get("persistentVolumeReclaimPolicy", ""),
            _phase(doc),
            f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
            spec.get("storageClassName", ""),
            spec.get("volumeAttributesClassName", "<unset>"),
            status.get("reason", ""),
            age(doc, now),
            spec.get("volumeMode", "<unset>"),
        ]


_CLAIM_COLUMNS: Final = [
    NAME,
    column("Status", "Phase of the claim."),
    column("Volume", "The volume that the claim is bound to."),
    column("Capacity", "Capacity of the volume."),
    column("Access Modes", "Access modes of the volume."),
    column("StorageClass", "StorageClass of the pvc"),
    _ATTRIBUTES,
    AGE,
    _VOLUME_MODE,
]
_VOLUME_COLUMNS: Final = [
    NAME,
    column("Capacity", "Capacity of the volume."),
    column("Access Modes", "How the volume may be mounted."),
    column("Reclaim Policy", "What happens to the volume when its claim is deleted."),
    column("Status", "Phase of the volume."),
    column("Claim", "The claim that the volume is bound to."),
    column("StorageClass", "StorageClass of the pv"),
    _ATTRIBUTES,
    column("Reason", "Why the volume is in its phase."),
    AGE,
    _VOLUME_MODE,
]


def _phase(doc: Document) -> str:
    if doc["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((doc.get("status") or {}).get("phase", ""))


def _storage(amounts: Mapping[str, Any] | None) -> str:
    return canonical_quantity((amounts or {}).get("storage", "0"))


def _modes(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in modes)


def _claim_changes(new: Document, old: Document) -> list[FieldError]:
    """Return the errors of a changed spec."""
    after, before = dict(new["spec"]), dict(old["spec"])
    errors: list[FieldError] = []
    if not before.get("volumeName"):
        # It may be set once.
        before.pop("volumeName", None)
        after.pop("volumeName", None)
    if before.get("storageClassName") is None and after.get("storageClassName"):
        # The default class is set when it exists.
        del after["storageClassName"]
    request, requested = _request(after), _request(before)
    if (new.get("status") or {}).get("phase") == "Bound":
        for spec in (after, before):
            spec.pop("volumeAttributesClassName", None)
            spec["resources"] = {**(spec.get("resources") or {}), "requests": None}
    if after != before:
        text = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        errors.append(forbidden("spec", text))
    if request < requested:
        capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
        if request <= parse_quantity(capacity).nanos:
            path = "spec.resources.requests.storage"
            errors.append(forbidden(path, "field can not be less than status.capacity"))
    if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
        errors.append(invalid("volumeMode", new["spec"].get("volumeMode"), "field is immutable"))
    return errors


def _request(spec: Mapping[str, Any]) -> int:
    requests = (spec.get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage", "0")).nanos


def _volume_changes(new: Document, old: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    if _source(new) != _source(old):
        text = "spec.persistentvolumesource is immutable after creation"
        errors.append(forbidden("spec.persistentvolumesource", text))
    if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
        errors.append(invalid("volumeMode", new["spec"].get("volumeMode"), "field is immutable"))
    return errors


def _source(doc: Document) -> dict[str, Any]:
    return {name: value for name, value in doc["spec"].items() if name not in NOT_SOURCE}
