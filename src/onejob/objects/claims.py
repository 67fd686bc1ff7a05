"""Views of PersistentVolumeClaims, PersistentVolumes, StorageClasses and the Pods that use them."""

from typing import Final

import msgspec

from onejob.objects.meta import PODS, Key, LabelSelector, Meta, View
from onejob.objects.pod_spec import ClaimSource, EphemeralSource, claim_name

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
CLASSES: Final = "storageclasses.storage.k8s.io"


class VolumeResources(View, frozen=True):
    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ClaimSpec(View, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: VolumeResources = VolumeResources()
    selector: LabelSelector | None = None
    #: None if the default class applies; "" requests a volume without a class.
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_name: str = ""
    data_source: dict[str, str] | None = None
    data_source_ref: dict[str, str] | None = None


class ClaimStatus(View, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class Claim(View, frozen=True):
    """PersistentVolumeClaim."""

    metadata: Meta = Meta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> Key:
        return Key(CLAIMS, self.metadata.namespace, self.metadata.name)


class ClaimReference(View, frozen=True):
    namespace: str = ""
    name: str = ""
    #: "" while an administrator has reserved the volume for a claim of this name.
    uid: str = ""

    @property
    def key(self) -> Key:
        return Key(CLAIMS, self.namespace, self.name)


class HostPathSource(View, frozen=True):
    path: str = ""
    type: str = ""


class LocalSource(View, frozen=True):
    path: str = ""


class VolumeSpec(View, frozen=True):
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    claim_ref: ClaimReference | None = None
    host_path: HostPathSource | None = None
    local: LocalSource | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"


class VolumeStatus(View, frozen=True):
    phase: str = ""
    message: str = ""


class PersistentVolume(View, frozen=True):
    metadata: Meta = Meta()
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def key(self) -> Key:
        return Key(VOLUMES, "", self.metadata.name)


class StorageClass(View, frozen=True):
    metadata: Meta = Meta()
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"

    @property
    def key(self) -> Key:
        return Key(CLASSES, "", self.metadata.name)


class ClaimVolume(View, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class _ClaimPodSpec(View, frozen=True):
    node_name: str = ""
    volumes: tuple[ClaimVolume, ...] = ()


class _ClaimPodStatus(View, frozen=True):
    phase: str = ""


class ClaimPod(View, frozen=True):
    """Pod, as far as its claims are concerned."""

    metadata: Meta = Meta()
    spec: _ClaimPodSpec = _ClaimPodSpec()
    status: _ClaimPodStatus = _ClaimPodStatus()

    @property
    def key(self) -> Key:
        return Key(PODS, self.metadata.namespace, self.metadata.name)

    @property
    def claims(self) -> tuple[Key, ...]:
        """Claims that its volumes refer to, those of ephemeral volumes included."""
        return tuple(
            Key(CLAIMS, self.metadata.namespace, name)
            for volume in self.spec.volumes
            if (name := claim_name(self.metadata.name, volume))
        )

    @property
    def terminal(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


read_claim = msgspec.json.Decoder(Claim).decode
read_volume = msgspec.json.Decoder(PersistentVolume).decode
read_class = msgspec.json.Decoder(StorageClass).decode
read_claim_pod = msgspec.json.Decoder(ClaimPod).decode
