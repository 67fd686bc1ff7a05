"""The next step of one PersistentVolumeClaim: bind, provision, wait or lose its volume."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.claims import Claim, PersistentVolume, StorageClass
from onejob.planning.claims.names import (
    BIND_COMPLETED,
    IS_DEFAULT,
    PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_CONSUMER,
)
from onejob.wire.quantity import parse_quantity
from onejob.wire.selectors import matcher_of


class AssignClass(Struct, frozen=True):
    """Set the default class in a claim without one."""

    name: str


class BindTo(Struct, frozen=True):
    """Bind the claim to this volume, as far as that is not done."""

    volume: PersistentVolume


class Provision(Struct, frozen=True):
    """Create a volume of this class."""

    storage_class: StorageClass


class Wait(Struct, frozen=True):
    """Leave the claim Pending; the rest is the Event that explains it."""

    reason: str
    message: str
    type: str = "Warning"


class Lose(Struct, frozen=True):
    """Set the phase Lost: the volume of the claim is gone."""

    message: str
    reason: str = "ClaimLost"


ClaimStep: TypeAlias = AssignClass | BindTo | Provision | Wait | Lose

_LOST_REFERENCE = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
_LOST_VOLUME = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
_MISBOUND = "Two claims are bound to the same volume, this one is bound incorrectly"


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class, the newest one if there are several; None without one."""
    defaults = [each for each in classes if each.metadata.annotations.get(IS_DEFAULT) == "true"]
    # As upstream: newest first, then by name.
    defaults.sort(key=lambda each: each.metadata.name)
    defaults.sort(key=lambda each: str(each.metadata.creation_timestamp), reverse=True)
    return defaults[0] if defaults else None


def decide_claim(
    claim: Claim,
    volumes: Mapping[str, PersistentVolume],
    classes: Mapping[str, StorageClass],
) -> ClaimStep:
    """Return the next step of a claim that is not being deleted; volumes and classes by name."""
    if BIND_COMPLETED in claim.metadata.annotations:
        return _decide_bound(claim, volumes)
    if claim.spec.volume_name:
        return _decide_requested(claim, volumes.get(claim.spec.volume_name))
    found = find_volume(claim, volumes.values())
    if found is not None and not (_is_unreserved(found) and _waits_for_pod(claim, classes)):
        return BindTo(found)
    return _decide_unbound(claim, classes)


def _decide_bound(claim: Claim, volumes: Mapping[str, PersistentVolume]) -> ClaimStep:
    if not claim.spec.volume_name:
        return Lose(_LOST_REFERENCE)
    volume = volumes.get(claim.spec.volume_name)
    if volume is None:
        return Lose(_LOST_VOLUME)
    reference = volume.spec.claim_ref
    if reference is not None and not _refers_to(volume, claim):
        return Lose(_MISBOUND, "ClaimMisbound")
    return BindTo(volume)


def _decide_requested(claim: Claim, volume: PersistentVolume | None) -> ClaimStep:
    """Return the step of a claim that names its volume."""
    name = claim.spec.volume_name
    if volume is None:
        text = f'waiting for the volume "{name}", which does not exist'
        return Wait("FailedBinding", text, "Normal")
    if volume.spec.claim_ref is not None and not _refers_to(volume, claim):
        return Wait("FailedBinding", f'volume "{name}" already bound to a different claim.')
    if problem := mismatch(claim, volume):
        text = f'Cannot bind to requested volume "{name}": {problem}'
        return Wait("VolumeMismatch", text)
    return BindTo(volume)


def _decide_unbound(claim: Claim, classes: Mapping[str, StorageClass]) -> ClaimStep:
    """Return the step of a claim for which no volume exists."""
    name = claim.spec.storage_class_name
    if name is None and (default := default_class(classes.values())) is not None:
        return AssignClass(default.metadata.name)
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return Wait("FailedBinding", text, "Normal")
    storage_class = classes.get(name)
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{name}" not found'
        return Wait("ProvisioningFailed", text)
    if _waits_for_pod(claim, classes):
        text = "waiting for first consumer to be created before binding"
        return Wait("WaitForFirstConsumer", text, "Normal")
    if storage_class.provisioner != PROVISIONER:
        text = (
            "Waiting for a volume to be created either by the external provisioner "
            f"'{storage_class.provisioner}' or manually by the system administrator. If volume "
            "creation is delayed, please verify that the provisioner is running and correctly "
            "registered."
        )
        return Wait("ExternalProvisioning", text, "Normal")
    if problem := _unsupported(claim):
        return Wait("ProvisioningFailed", problem)
    return Provision(storage_class)


def _waits_for_pod(claim: Claim, classes: Mapping[str, StorageClass]) -> bool:
    """Return whether the claim is bound only once a Pod uses it."""
    storage_class = classes.get(claim.spec.storage_class_name or "")
    if storage_class is None or storage_class.volume_binding_mode != WAIT_FOR_CONSUMER:
        return False
    return SELECTED_NODE not in claim.metadata.annotations


def _unsupported(claim: Claim) -> str:
    """Return why no folder can serve as the claim's volume; "" if one can."""
    if claim.spec.volume_mode != "Filesystem":
        return f"{claim.spec.volume_mode} volumes are not provided, only folders (Filesystem)"
    if claim.spec.data_source or claim.spec.data_source_ref:
        return "volumes are not created from a dataSource"
    if claim.spec.selector is not None:
        return "a claim with a selector gets no new volume, only an existing one that matches"
    return ""


def find_volume(claim: Claim, volumes: Iterable[PersistentVolume]) -> PersistentVolume | None:
    """Return the volume reserved for the claim, else the smallest free one that matches it."""
    free = []
    for volume in volumes:
        if _refers_to(volume, claim):
            if not mismatch(claim, volume):
                return volume
        elif volume.spec.claim_ref is None and not _is_unsuitable(claim, volume):
            free.append(volume)
    return min(free, key=lambda each: (capacity_of(each), each.metadata.name), default=None)


def _is_unsuitable(claim: Claim, volume: PersistentVolume) -> bool:
    if volume.metadata.deleting or volume.status.phase in ("Released", "Failed", "Bound"):
        return True
    selector = claim.spec.selector
    if selector is not None and not matcher_of(selector).matches(volume.metadata.labels):
        return True
    return bool(mismatch(claim, volume))


def mismatch(claim: Claim, volume: PersistentVolume) -> str:
    """Return why the claim cannot use the volume, in upstream's words; "" if it can."""
    if request_of(claim) > capacity_of(volume):
        return "requested PV is too small"
    if (claim.spec.storage_class_name or "") != volume.spec.storage_class_name:
        return "storageClassName does not match"
    if claim.spec.volume_mode != volume.spec.volume_mode:
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def request_of(claim: Claim) -> int:
    """Return the requested bytes."""
    return parse_quantity(claim.spec.resources.requests.get("storage", "0")).nanos // 10**9


def capacity_of(volume: PersistentVolume) -> int:
    return parse_quantity(volume.spec.capacity.get("storage", "0")).nanos // 10**9


def _is_unreserved(volume: PersistentVolume) -> bool:
    return volume.spec.claim_ref is None


def _refers_to(volume: PersistentVolume, claim: Claim) -> bool:
    """Return whether the volume is bound to the claim or reserved for it."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and reference.key == claim.key
        and reference.uid in ("", claim.metadata.uid)
    )
