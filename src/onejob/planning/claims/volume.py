"""The phase of a PersistentVolume, and what becomes of a released one."""

from typing import Literal

from msgspec import Struct

from onejob.objects.claims import Claim, PersistentVolume
from onejob.planning.claims.names import PROVISIONED_BY, PROVISIONER, volume_name


class VolumeStep(Struct, frozen=True):
    phase: Literal["Available", "Bound", "Released", "Failed"]
    message: str = ""
    #: Delete the volume's folder, then the volume.
    deletes: bool = False


def is_provisioned_here(volume: PersistentVolume) -> bool:
    """Return whether the volume is a folder made by the local provisioner.

    The name is compared as well, because the annotation can be copied into any volume.
    """
    reference = volume.spec.claim_ref
    return (
        volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        and reference is not None
        and volume.metadata.name == volume_name(reference.uid)
    )


def decide_volume(volume: PersistentVolume, claim: Claim | None) -> VolumeStep:
    """Return the step of a volume. `claim` is the newest version of the one that it refers to."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return VolumeStep("Available")
    if claim is not None and claim.metadata.uid == reference.uid:
        if claim.spec.volume_name == volume.metadata.name:
            return VolumeStep("Bound")
        if not claim.spec.volume_name:
            # The claim is about to be bound to it.
            return VolumeStep("Available" if not volume.status.phase else _kept(volume))
    if volume.spec.persistent_volume_reclaim_policy != "Delete":
        return VolumeStep("Released")
    if is_provisioned_here(volume):
        return VolumeStep("Released", deletes=True)
    if PROVISIONED_BY in volume.metadata.annotations:
        # Its own provisioner deletes it.
        return VolumeStep("Released")
    return VolumeStep("Failed", "onejob deletes only volumes that it has provisioned")


def _kept(volume: PersistentVolume) -> Literal["Available", "Bound", "Released", "Failed"]:
    match volume.status.phase:
        case "Bound" | "Released" | "Failed" as phase:
            return phase
        case _:
            return "Available"
